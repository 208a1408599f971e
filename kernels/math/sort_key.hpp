// Rule 3, the order of tokens, as one number.
#pragma once

#include <cstdint>
#include <cstring>

namespace fastsample {

// static: each object keeps its own copy, see lanes.hpp.

// Floats as unsigned integers in the same order.
static inline uint32_t ordered(float logit) {
  uint32_t bits;
  std::memcpy(&bits, &logit, sizeof bits);
  return bits ^ (bits >> 31 ? 0xFFFFFFFFu : 0x80000000u);
}

static inline float from_ordered(uint32_t bits) {
  bits ^= bits >> 31 ? 0x80000000u : 0xFFFFFFFFu;
  float logit;
  std::memcpy(&logit, &bits, sizeof logit);
  return logit;
}

// Rule 3 as one number: a larger key comes first. Keys of a row are distinct.
static inline uint64_t key_of(float logit, int64_t token) {
  return uint64_t{ordered(logit)} << 32 | static_cast<uint32_t>(~token);
}
static inline float logit_of(uint64_t key) { return from_ordered(static_cast<uint32_t>(key >> 32)); }
static inline int64_t token_of(uint64_t key) { return static_cast<uint32_t>(~key); }

}  // namespace fastsample
