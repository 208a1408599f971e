// The kernels for one instruction set. setup.py compiles this file once for each line of isa_list.hpp, with the
// line's flags and its namespace as FASTSAMPLE_ISA.
#include "sampling/kernels.hpp"
