// Logits as integers in the same order, and section 3's order of tokens as one integer.
#pragma once

#include <cstdint>
#include <cstring>

namespace fastsample {

// static: each object keeps its own copy, see simd.hpp.

// A logit as an unsigned integer: a larger logit has a larger ordinal.
static inline uint32_t ordinal(float logit) {
  uint32_t bits;
  std::memcpy(&bits, &logit, sizeof bits);
  return bits ^ (bits >> 31 ? 0xFFFFFFFFu : 0x80000000u);
}

static inline float from_ordinal(uint32_t bits) {
  bits ^= bits >> 31 ? 0x80000000u : 0xFFFFFFFFu;
  float logit;
  std::memcpy(&logit, &bits, sizeof logit);
  return logit;
}

// (ordinal, token) as one integer: a larger key is earlier in section 3's order. The keys of a row are distinct.
static inline uint64_t sort_key(float logit, int64_t token) {
  return uint64_t{ordinal(logit)} << 32 | static_cast<uint32_t>(~token);
}
static inline float logit_of(uint64_t key) { return from_ordinal(static_cast<uint32_t>(key >> 32)); }
static inline int64_t token_of(uint64_t key) { return static_cast<uint32_t>(~key); }

}  // namespace fastsample
