// The kernels compiled for x86-64-v4 (AVX-512): 16 lanes.
#define FASTSAMPLE_ISA x86_v4
#define FASTSAMPLE_ISA_NAME "x86-64-v4"
#define FASTSAMPLE_LANES 16
#include "sampling/kernels.hpp"
