// The sum of any array of numbers, in each of rule 8's three ways to add.
#pragma once

#include <cstddef>

#include "runtime/types.hpp"

namespace fastsample {

// An array as the caller holds it; strides in bytes. It is read with the last axis moving first.
struct Strided {
  const char* data;
  int dimensions;
  const std::ptrdiff_t* shape;
  const std::ptrdiff_t* strides;
  DType dtype;
};

// `threads` 0 is chosen by how many numbers there are. They throw std::bad_alloc.
ExactSum exact_sum(const Kernels& kernels, const Strided& array, int threads);
double fixed_sum(const Kernels& kernels, const Strided& array, int threads);
// Each thread adds up its share; the shares are added in the type that the numbers are added in.
double fast_sum(const Kernels& kernels, const Strided& array, int threads);

}  // namespace fastsample
