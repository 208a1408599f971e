// Section 6, steps 1 and 2: which rows are listed, and how many heavy tokens a level may have.
#pragma once

#include "runtime/types.hpp"

namespace fastsample {

// static: each object keeps its own copy, see simd.hpp.

// Whether a filter can drop a token of a row of so many tokens; its value is rounded to float32.
static inline bool acts(Op op, float value, int64_t vocabulary) {
  switch (op) {
    case Op::kCount: return value > 0 && value < static_cast<float>(vocabulary);
    case Op::kMass:
    case Op::kBand: return value != 1.0f;
    case Op::kThresholdOfDeviation: return value > 0;
    default: return value > 0x1p-60f;
  }
}

// Whether a filter that acts leaves so few tokens, or such an odd set of them, that all get clocks.
static inline bool lists(Op op, float value) {
  constexpr float kListedCount = 128.0f;
  constexpr float kListedShare = 0.5f;
  return (op == Op::kCount && value < kListedCount) || (op == Op::kMass && value < kListedShare) ||
         op == Op::kBand;
}

// Step 1: whether every kept token arrives by a clock of its own.
static inline bool is_listed(const RowParams& params, int64_t vocabulary) {
  bool is_filtered = false;
  for (int i = 0; i < kMaxStages && params.ops[i] != Op::kEnd; ++i) {
    const float value = static_cast<float>(params.values[i]);
    if (params.ops[i] == Op::kScale) {
      if (is_filtered && value != 1.0f) return true;
    } else if (acts(params.ops[i], value, vocabulary)) {
      if (lists(params.ops[i], value)) return true;
      is_filtered = true;
    }
  }
  return false;
}

// Step 2: the smallest v from 1 on with vocabulary <= 2^v, and H.
static inline int vocabulary_bits(int64_t vocabulary) {
  int v = 1;
  while (vocabulary > int64_t{1} << v) ++v;
  return v;
}
static inline int64_t most_heavy_tokens(int v) {
  return static_cast<int64_t>(__builtin_sqrt(static_cast<double>((int64_t{1} << v) / 32)));
}

}  // namespace fastsample
