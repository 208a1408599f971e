// The kernels compiled for NEON: 4 lanes.
#define FASTSAMPLE_ISA neon
#define FASTSAMPLE_ISA_NAME "neon"
#define FASTSAMPLE_LANES 4
#include "sampling/kernels.hpp"
