// Section 6: random words and the clocks of a race, for a vector of indices at a time.
#pragma once

#include "math/mass.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// What the random words of one draw have in common.
struct Place {
  uint64_t seed;
  uint64_t position;
  uint32_t stream;
};

// The purposes of random words (math/philox.hpp gives those of the inverse method).
constexpr uint32_t kInversePurpose = 0;
constexpr uint32_t kClockPurpose = 1;
constexpr uint32_t kArrivalPurpose = 2;
constexpr uint32_t kAfterRacePurpose = 3;

// Two vectors of 64-bit lanes, as many lanes as a vector of logits has.
struct WordPair {
  Uwords half[2];
};

template <class Step>
FASTSAMPLE_INLINE WordPair each_half(Step step) {
  return {{step(0), step(1)}};
}

// first, first + 1, ...
inline WordPair counting_from(uint64_t first) {
  Uwords places;
  for (int lane = 0; lane < kWordLanes; ++lane) places[lane] = static_cast<uint64_t>(lane);
  return {{places + first, places + (first + kWordLanes)}};
}

// Philox's counter: its four words in the lower halves of lanes, whose upper halves nothing reads.
struct Counter {
  Uwords word[4];
};

FASTSAMPLE_INLINE void mix(Counter& c, uint32_t key0, uint32_t key1) {
  const Uints factor0 = 0xD2511F53u - Uints{};
  const Uints factor1 = 0xCD9E8D57u - Uints{};
  const Uwords product0 = multiply_even((Uints)c.word[0], factor0);
  const Uwords product1 = multiply_even((Uints)c.word[2], factor1);
  c.word[0] = (product1 >> 32) ^ c.word[1] ^ uint64_t { key0 };
  c.word[1] = product1;
  c.word[2] = (product0 >> 32) ^ c.word[3] ^ uint64_t { key1 };
  c.word[3] = product0;
}

FASTSAMPLE_INLINE Uwords join(Uwords low, Uwords high) { return (low & 0xFFFFFFFFu) | high << 32; }

// The four words of each index: w0 + 2^32 w1 and w2 + 2^32 w3.
struct RandomWords {
  WordPair low;
  WordPair high;
};

constexpr int kRounds = 10;

// The two halves take turns, so that a round need not wait for the one before.
FASTSAMPLE_INLINE RandomWords random_words(const Place& place, const WordPair& index, uint32_t purpose) {
  Counter c[2];
  for (int i = 0; i < 2; ++i) {
    c[i] = {{Uwords{} + (place.position & 0xFFFFFFFFu), Uwords{} + (place.position >> 32),
             Uwords{} + uint64_t{place.stream}, (index.half[i] << 8) + uint64_t{purpose}}};
  }
  uint32_t key0 = static_cast<uint32_t>(place.seed);
  uint32_t key1 = static_cast<uint32_t>(place.seed >> 32);
#pragma GCC unroll 10
  for (int i = 0; i < kRounds; ++i) {
    mix(c[0], key0, key1);
    mix(c[1], key0, key1);
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return {each_half([&](int i) { return join(c[i].word[0], c[i].word[1]); }),
          each_half([&](int i) { return join(c[i].word[2], c[i].word[3]); })};
}

// -ln((floor(k / 2^12) + 0.5) * 2^-52): exponential with mean 1. Its argument is exact.
FASTSAMPLE_INLINE Doubles clock_of(Uwords k) {
  constexpr uint64_t kOne = 0x3ff0000000000000;
  return -natural_log<Doubles, Uwords>(bits_as<Doubles>(k >> 12 | kOne) - (1.0 - 0x1p-53));
}

// A clock in steps of 2^-32, rounded to nearest, as an integer: sums of them are exact.
FASTSAMPLE_INLINE Uwords in_steps(Doubles clocks) {
  constexpr double kRounder = 1572864.0;  // 1.5 * 2^20: its last bit is worth 2^-32
  constexpr uint64_t kRounderBits = 0x4138000000000000;
  return bits_as<Uwords>(clocks + kRounder) - kRounderBits;
}

// The upper halves of words.
FASTSAMPLE_INLINE Ints upper_halves(const WordPair& words) {
  return seconds((Ints)words.half[0], (Ints)words.half[1]);
}

// log2 within 1.5e-4 of positive normal numbers, by a polynomial in [1, 2). That of 0 is -127.
FASTSAMPLE_INLINE Floats near_log2(Floats numbers) {
  const Uints bits = (Uints)numbers;
  const Floats exponent = __builtin_convertvector((Ints)(bits >> 23), Floats);
  const Floats f = (Floats)((bits & 0x7FFFFFu) | 0x3F800000u) - 1.0f;
  Floats p = multiply_add(fill(-0.08001087690680804f), f, 0.31546760889308295f);
  p = multiply_add(p, f, -0.6729341930681533f);
  p = multiply_add(p, f, 1.4373021721432746f);
  p = multiply_add(p, f, 0.00010018903126107759f);
  return (exponent - 127.0f) + p;
}

// Clocks within kNearClock, from the upper halves of their words. Lanes of a word's upper half below kFarWord are not:
// their clocks are above 11.
constexpr float kNearClock = 1.5e-4f;
constexpr uint32_t kFarWord = 1u << 15;

FASTSAMPLE_INLINE Floats near_clocks(Uints words) {
  const Floats numbers = __builtin_convertvector((Ints)(words >> 1), Floats) + 0.5f;
  return (31.0f - near_log2(numbers)) * 0.69314718f;
}

inline bool any_below(Uints lanes, uint32_t least) {
  return at_least(__builtin_convertvector((Ints)(lanes < least), Floats), fill(0.0f)) != (1u << kLanes) - 1;
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
