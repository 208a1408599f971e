// Rows over threads: a small pool whose workers sleep on a condition variable. It survives fork, and
// several callers may use it at once.
#pragma once

#include <cstdint>

namespace fastsample {

int hardware_threads();

// Calls task(context, i) once for each i in [0, count), on the calling thread and up to threads - 1
// workers; returns when all calls have returned. The first exception of a task is thrown again here.
void parallel_for(int64_t count, int threads, void (*task)(void* context, int64_t i), void* context);

}  // namespace fastsample
