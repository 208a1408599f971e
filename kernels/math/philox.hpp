// Section 6: the random generator Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011). It is a function of its arguments,
// so a draw depends on nothing but seed, position, stream and purpose.
#pragma once

#include <cstdint>

namespace fastsample {

struct Words {
  uint32_t word[4];
};

// static: each object keeps its own copy, see simd.hpp.
static inline Words philox4x32(uint64_t key, Words counter) {
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  uint32_t* c = counter.word;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * c[2];
    c[0] = static_cast<uint32_t>(product1 >> 32) ^ c[1] ^ key0;
    c[1] = static_cast<uint32_t>(product1);
    c[2] = static_cast<uint32_t>(product0 >> 32) ^ c[3] ^ key1;
    c[3] = static_cast<uint32_t>(product0);
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// The U of a draw, uniform in [0, 2^64); purpose 0 is the draw of a token.
static inline uint64_t uniform(uint64_t seed, uint64_t position, uint32_t stream, uint32_t purpose) {
  const Words words = philox4x32(
      seed, {{static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), stream, purpose}});
  return words.word[0] | uint64_t{words.word[1]} << 32;
}

}  // namespace fastsample
