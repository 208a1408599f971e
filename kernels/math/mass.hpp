// Section 4: the integer mass of a token, and section 7's logarithm. Every operation is rounded on its own
// (the build forbids fused multiply-add), so all instruction sets give the same bits.
#pragma once

#include "simd/simd.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// The m and s of section 4: the top logit and log2(e) / temperature. They map a logit x to y = (x - m) * s.
//
// m must have been read by section 1; other logits need not be: taking a denormal x for 0 changes y by less than
// 2^-126 * 2^64 where |m| is small enough for that to matter, and p rounds to 1 with either y.
struct Scaling {
  float top;
  float scale;
};

constexpr double kLog2E = 1.4426950408889634;
constexpr float kMinExponent2 = -64.0f;
// A token whose y is this or less has mass 0.
constexpr float kZeroMassExponent2 = -41.0f;

inline float scale_of(double temperature) {
  double scale = kLog2E / static_cast<double>(static_cast<float>(temperature));
  scale = scale < 0x1p-126 ? 0x1p-126 : scale;
  return static_cast<float>(scale > 0x1p64 ? 0x1p64 : scale);
}

inline float exponent2(Scaling scaling, float logit) {
  const float y = (logit - scaling.top) * scaling.scale;
  return y > kMinExponent2 ? y : kMinExponent2;
}

// From here on V is a vector or a pack of vectors.
template <class V>
FASTSAMPLE_INLINE V exponent2(Scaling scaling, const V& logits) {
  return larger_negative((logits - scaling.top) * scaling.scale, kMinExponent2);
}

// 2^y = 2 * p * half, for y in [-64, 0]; twice `half` is 2^k. The power is halved because of kRound: kRound must
// be even to round ties as the rule does, and a sum with it then has the exponent field of the half in its low
// bits. doubled(half) is a normal number for y >= -126.
constexpr float kRound = 12582912.0f + 126.0f;  // 1.5 * 2^23: adding it rounds to an integer
template <class V>
struct Power {
  V p;
  V half;
};

// Unsigned, since lanes past the end of a list may hold any number, and the shift may overflow.
FASTSAMPLE_INLINE Floats half_of_two_to(Floats t) { return (Floats)((Uints)t << 23); }
FASTSAMPLE_INLINE Pack half_of_two_to(const Pack& t) {
  return each([&](int i) { return half_of_two_to(t.vector[i]); });
}
FASTSAMPLE_INLINE Floats doubled(Floats half) { return (Floats)((Uints)half + (1u << 23)); }

template <class V>
FASTSAMPLE_INLINE V polynomial(const V& f) {
  V p = f * 0x1.5bda40p-10f + 0x1.3ce8acp-7f;
  p = p * f + 0x1.c6b6e4p-5f;
  p = p * f + 0x1.ebf9c2p-3f;
  p = p * f + 0x1.62e42ap-1f;
  return p * f + 1.0f;
}

template <class V>
FASTSAMPLE_INLINE Power<V> power(const V& y) {
  const V t = y + kRound;
  return {polynomial(y - (t - kRound)), half_of_two_to(t)};
}

// mass = high * 2^20 + low. Both are bits of float32 sums that round where the rule rounds.
struct Masses {
  Ints high;
  Ints low;
};

// The bits of the constants that are added; a sum over many tokens subtracts them once. Both constants are half
// of the rule's, as the power is, which changes the exponent fields and nothing else.
constexpr int32_t kHighBits = 0x40C00000;  // 6.0f
constexpr int32_t kLowBits = 0x36C00000;   // 1.5 * 2^-18

// The product is exact, so high and low are the rule's for v = 2^y, halved.
template <class V>
FASTSAMPLE_INLINE V high_part(const Power<V>& v) {
  return add_exact_product(v.p, v.half, 6.0f);
}
// The rule's (v - (high - 12)) + 1.5 * 2^-17. Its first two differences are exact. So is the one here, which
// subtracts both constants at once: like them it is a multiple of half the rule's 2^-20. One rounding remains
// in either form.
template <class V>
FASTSAMPLE_INLINE V low_part(const Power<V>& v, const V& high) {
  return add_exact_product(v.p, v.half, (6.0f + 0x1.8p-18f) - high);
}

FASTSAMPLE_INLINE Masses masses_of(Scaling scaling, Floats logits) {
  const Power<Floats> v = power(exponent2(scaling, logits));
  const Floats high = high_part(v);
  return {(Ints)((Uints)high - static_cast<uint32_t>(kHighBits)),
          (Ints)((Uints)low_part(v, high) - static_cast<uint32_t>(kLowBits))};
}

inline void store_masses(const Masses& masses, uint64_t* target) {
  typedef int32_t HalfInts __attribute__((vector_size(2 * kLanes)));
  typedef int64_t HalfWords __attribute__((vector_size(4 * kLanes)));
  typedef uint64_t HalfUwords __attribute__((vector_size(4 * kLanes)));
  HalfInts high[2];
  HalfInts low[2];
  std::memcpy(high, &masses.high, sizeof high);
  std::memcpy(low, &masses.low, sizeof low);
  for (int half = 0; half < 2; ++half) {
    const HalfUwords words = ((HalfUwords) __builtin_convertvector(high[half], HalfWords) << 20) +
                             (HalfUwords) __builtin_convertvector(low[half], HalfWords);
    std::memcpy(target + half * kLanes / 2, &words, sizeof words);
  }
}

inline uint64_t mass_of(Scaling scaling, float logit) {
  uint64_t masses[kLanes];
  store_masses(masses_of(scaling, fill(logit)), masses);
  return masses[0];
}

// The mass of the top token.
constexpr uint64_t kTopMass = uint64_t{1} << 40;

// The total mass of at most a span, added pack by pack. It has 512 masses of at most 2^40, so 32 bits hold the
// final sums of both parts; intermediate sums may wrap.
class SpanMass {
 public:
  typedef uint64_t Total;
  static constexpr int64_t kBlocks = kSpan;
  static constexpr bool kHasZeros = true;  // a kept token may have mass 0

  FASTSAMPLE_INLINE void add(const Power<Pack>& v) {
    const Pack high = high_part(v);
    const Pack low = low_part(v, high);
    for (int i = 0; i < kPack; ++i) {
      high_ += (Uints)high.vector[i];
      low_ += (Uints)low.vector[i];
    }
    vectors_ += kPack;
  }
  uint64_t total() const {
    const Uints high = high_ - vectors_ * static_cast<uint32_t>(kHighBits);
    const Uints low = low_ - vectors_ * static_cast<uint32_t>(kLowBits);
    return (static_cast<uint64_t>(static_cast<int32_t>(sum_of(high))) << 20) +
           static_cast<uint64_t>(static_cast<int32_t>(sum_of(low)));
  }

 private:
  Uints high_ = {};
  Uints low_ = {};
  uint32_t vectors_ = 0;
};

// An integer below 2^52 as a float64, exactly. Here and below Real is double or Doubles, Bits as wide.
template <class Real, class Bits>
FASTSAMPLE_INLINE Real as_double(Bits n) {
  constexpr uint64_t kTwoTo52 = 0x4330000000000000;
  return bits_as<Real>(n | kTwoTo52) - 0x1p52;
}

// Section 7's ln for positive normal z: the reduction of FreeBSD and musl, without a call of the C library.
template <class Real, class Bits>
FASTSAMPLE_INLINE Real natural_log(Real z) {
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e00000000;
  constexpr uint64_t kOne = 0x3ff0000000000000;
  constexpr double G0 = 0x1.5555555555593p-1, G1 = 0x1.999999997fa04p-2, G2 = 0x1.2492494229359p-2,
                   G3 = 0x1.c71c51d8e78afp-3, G4 = 0x1.7466496cb03dep-3, G5 = 0x1.39a09d078c69fp-3,
                   G6 = 0x1.2f112df3e5244p-3;
  const Bits bits = bits_as<Bits>(z) + (kOne - kSqrtHalf);
  const Real e = as_double<Real, Bits>(bits >> 52) - 1023.0;
  const Real f = bits_as<Real>((bits & ((uint64_t{1} << 52) - 1)) + kSqrtHalf) - 1.0;
  const Real q = f / (2.0 + f);
  const Real w = q * q;
  const Real v = w * w;
  const Real r = w * (G0 + v * (G2 + v * (G4 + v * G6))) + v * (G1 + v * (G3 + v * G5));
  const Real h = (0.5 * f) * f;
  return e * 0x1.62e42feep-1 - ((h - (q * (h + r) + e * 0x1.a39ef35793c76p-33)) - f);
}
inline double natural_log(double z) { return natural_log<double, uint64_t>(z); }

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
