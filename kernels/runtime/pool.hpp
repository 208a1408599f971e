// A pool of threads whose workers sleep on condition variables. It survives fork, and several callers may use it
// at once.
#pragma once

#include <cstdint>

namespace fastsample {

// Workers stay until the process ends, so a mistake such as n_threads = 2^31 - 1 must not start as many.
constexpr int kMaxThreads = 256;

// The most threads that a call may use: the limit, or the number of processors that the caller may run on.
int max_threads();
// Limits all later calls; a limit below 1 is no limit. The library also exports both as C functions,
// fastsample_get_num_threads and fastsample_set_num_threads.
void limit_threads(int threads);

// Calls task(context, i) once for each i in [0, count), on the calling thread and up to threads - 1
// workers; returns when all calls have returned. A thread takes runs of run_length neighbours. Rethrows the first
// exception of a task.
void parallel_for(int64_t count, int64_t run_length, int threads, void (*task)(void* context, int64_t i),
                  void* context);

}  // namespace fastsample
