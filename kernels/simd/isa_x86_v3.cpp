// The kernels compiled for x86-64-v3 (AVX2): 8 lanes.
#define FASTSAMPLE_ISA x86_v3
#define FASTSAMPLE_ISA_NAME "x86-64-v3"
#define FASTSAMPLE_LANES 8
#include "sampling/kernels.hpp"
