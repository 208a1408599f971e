// The sum of any array of numbers, in each of section 8's three reduction modes.
#pragma once

#include <cstddef>

#include "runtime/types.hpp"

namespace fastsample {

// An array in the caller's memory; strides in bytes. It is read in C order: the last axis varies fastest.
struct Strided {
  const char* data;
  int dimensions;
  const std::ptrdiff_t* shape;
  const std::ptrdiff_t* strides;
  DType dtype;
};

// `threads` 0 chooses by the number of numbers. They throw std::bad_alloc.
ExactSum exact_sum(const Kernels& kernels, const Strided& array, int threads);
double fixed_sum(const Kernels& kernels, const Strided& array, int threads);
// Each thread sums a share; the shares are added in the type in which the numbers are added.
double fast_sum(const Kernels& kernels, const Strided& array, int threads);

}  // namespace fastsample
