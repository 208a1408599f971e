// Rows over threads: a small pool whose workers sleep on condition variables. It survives fork, and several
// callers may use it at once.
#pragma once

#include <cstdint>

namespace fastsample {

// Workers stay until the process ends, so a slip such as 2^31 - 1 must not start them all.
constexpr int kMostThreads = 256;

// The most that a call may use: what limit_threads said, else the processors that the caller may run on.
int most_threads();
// For every call to come; below 1 takes the limit away. The library also exports both as C functions,
// fastsample_get_num_threads and fastsample_set_num_threads.
void limit_threads(int threads);

// Calls task(context, i) once for each i in [0, count), on the calling thread and up to threads - 1
// workers; returns when all calls have returned. A thread takes run_length neighbours at a time. The first
// exception of a task is thrown again here.
void parallel_for(int64_t count, int64_t run_length, int threads, void (*task)(void* context, int64_t i),
                  void* context);

}  // namespace fastsample
