// The kernels compiled for the least that the architecture has (SSE2 on x86-64): 4 lanes.
#define FASTSAMPLE_ISA baseline
#define FASTSAMPLE_ISA_NAME "baseline"
#define FASTSAMPLE_LANES 4
#include "sampling/kernels.hpp"
