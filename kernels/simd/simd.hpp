// Vectors of the machine's width: loads, maxima, comparisons. All other kernel code is written once, with these.
// Intrinsics are chosen by the features that the compiler's flags switch on.
// Everything is in an anonymous namespace: the linker would keep one copy of a function that the objects of
// several instruction sets share, and the baseline kernels might run its AVX-512 copy.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "runtime/types.hpp"

// float32 lanes of the widest vector.
#if defined(__AVX512F__)
#define FASTSAMPLE_LANES 16
#elif defined(__AVX2__)
#define FASTSAMPLE_LANES 8
#else
#define FASTSAMPLE_LANES 4
#endif

// For the steps of hot loops: GCC would call some of them, and pass vectors in memory.
#define FASTSAMPLE_INLINE __attribute__((always_inline)) inline

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

constexpr int kLanes = FASTSAMPLE_LANES;
typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef uint32_t Uints __attribute__((vector_size(4 * kLanes)));  // where a sum may wrap

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kSmallestNormal = std::numeric_limits<float>::min();

FASTSAMPLE_INLINE Floats load(const void* source) {
  Floats lanes;
  std::memcpy(&lanes, source, sizeof lanes);
  return lanes;
}

inline void store(void* target, Floats lanes) { std::memcpy(target, &lanes, sizeof lanes); }

FASTSAMPLE_INLINE Floats fill(float value) { return value - Floats{}; }

// The bits of a number, or of a vector's lanes, as another type.
template <class To, class From>
FASTSAMPLE_INLINE To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof from, "");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// b > a ? b : a in each lane: where b is NaN the result is a. Intrinsics for x86, where GCC makes two
// instructions of the expression; with the full mask it does not warn as it does about the plain intrinsic.
FASTSAMPLE_INLINE Floats larger(Floats a, Floats b) {
#if defined(__AVX512F__)
  return (Floats)_mm512_maskz_max_ps(0xFFFF, (__m512)b, (__m512)a);
#elif defined(__AVX2__)
  return (Floats)_mm256_max_ps((__m256)b, (__m256)a);
#elif defined(__SSE2__)
  return (Floats)_mm_max_ps((__m128)b, (__m128)a);
#else
  return b > a ? b : a;
#endif
}

// larger(y, low) for y <= +0 and low < 0: of two negative numbers the larger has the smaller bits. Integer units
// are idle where this is used; SSE2 lacks the instruction.
FASTSAMPLE_INLINE Floats larger_negative(Floats y, float low) {
#if defined(__SSE2__) && !defined(__SSE4_1__)
  return larger(y, fill(low));
#else
  const Uints bits = (Uints)y;
  const Uints lowest = (Uints)fill(low);
  return (Floats)(bits < lowest ? bits : lowest);
#endif
}

// a * b + c, rounded once where the processor can: only for what no result depends on. The build forbids fusing
// everywhere else; FASTSAMPLE_NEVER_FUSE forbids it here too, so that tests can compare.
FASTSAMPLE_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
#if defined(FASTSAMPLE_NEVER_FUSE)
  return a * b + c;
#elif defined(__AVX512F__)
  return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && defined(__FMA__)
  return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  return (Floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}
FASTSAMPLE_INLINE Floats multiply_add(Floats a, Floats b, float c) { return multiply_add(a, b, fill(c)); }

// a * b + c where the product is exact: then a fused multiply-add rounds as two operations do.
FASTSAMPLE_INLINE Floats add_exact_product(Floats a, Floats b, Floats c) { return multiply_add(a, b, c); }
FASTSAMPLE_INLINE Floats add_exact_product(Floats a, Floats b, float c) {
  return add_exact_product(a, b, fill(c));
}

// Whether any lane of some vectors is NaN. Two vectors are compared at a time.
class NanCheck {
 public:
#if defined(__AVX512F__)
  FASTSAMPLE_INLINE void add(Floats a, Floats b) {
    ordered_ = _mm512_mask_cmp_ps_mask(ordered_, (__m512)a, (__m512)b, _CMP_ORD_Q);
  }
  bool any() const { return ordered_ != 0xFFFF; }

 private:
  __mmask16 ordered_ = 0xFFFF;
#else
  FASTSAMPLE_INLINE void add(Floats a, Floats b) { unordered_ |= are_unordered(a, b); }
  bool any() const {
    int32_t lanes = 0;
    for (int lane = 0; lane < kLanes; ++lane) lanes |= unordered_[lane];
    return lanes != 0;
  }

 private:
  static FASTSAMPLE_INLINE Ints are_unordered(Floats a, Floats b) {
#if defined(__AVX2__)
    return (Ints)_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_UNORD_Q);
#elif defined(__SSE2__)
    return (Ints)_mm_cmpunord_ps((__m128)a, (__m128)b);
#else
    return (a != a) | (b != b);
#endif
  }

  Ints unordered_ = {};
#endif
};

typedef uint64_t Uwords __attribute__((vector_size(4 * kLanes)));
typedef double Doubles __attribute__((vector_size(4 * kLanes)));
constexpr int kWordLanes = kLanes / 2;  // lanes of these two

// The 64-bit products of lanes 0, 2, 4, ...
inline Uwords multiply_even(Uints a, Uints b) {
#if defined(__AVX512F__)
  return (Uwords)_mm512_maskz_mul_epu32(0xFF, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (Uwords)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (Uwords)_mm_mul_epu32((__m128i)a, (__m128i)b);
#elif defined(__aarch64__)
  return (Uwords)vmull_u32(vmovn_u64((uint64x2_t)a), vmovn_u64((uint64x2_t)b));
#else
  constexpr uint64_t kLow = 0xFFFFFFFF;
  return ((Uwords)a & kLow) * ((Uwords)b & kLow);
#endif
}

// Pairs of lanes: the 64-bit products of both, added.
inline Uwords multiply_pairs(Uints a, Uints b) {
  return multiply_even(a, b) + multiply_even((Uints)((Uwords)a >> 32), (Uints)((Uwords)b >> 32));
}

// Several vectors that take the same steps in turn, so that a step need not wait for the one before. The
// processor's window is too small to overlap chains of this length by itself.
constexpr int kPack = 4;
struct Pack {
  Floats vector[kPack];
};

template <class Step>
FASTSAMPLE_INLINE Pack each(Step step) {
  Pack result;
  for (int i = 0; i < kPack; ++i) result.vector[i] = step(i);
  return result;
}

FASTSAMPLE_INLINE const Floats& nth(const Pack& pack, int i) { return pack.vector[i]; }
FASTSAMPLE_INLINE float nth(float all, int) { return all; }

FASTSAMPLE_INLINE Pack operator+(const Pack& a, float b) {
  return each([&](int i) { return a.vector[i] + b; });
}
FASTSAMPLE_INLINE Pack operator-(const Pack& a, float b) {
  return each([&](int i) { return a.vector[i] - b; });
}
FASTSAMPLE_INLINE Pack operator*(const Pack& a, float b) {
  return each([&](int i) { return a.vector[i] * b; });
}
FASTSAMPLE_INLINE Pack operator-(const Pack& a, const Pack& b) {
  return each([&](int i) { return a.vector[i] - b.vector[i]; });
}
FASTSAMPLE_INLINE Pack operator*(const Pack& a, const Pack& b) {
  return each([&](int i) { return a.vector[i] * b.vector[i]; });
}
FASTSAMPLE_INLINE Pack larger_negative(const Pack& y, float low) {
  return each([&](int i) { return larger_negative(y.vector[i], low); });
}
FASTSAMPLE_INLINE Pack operator-(float a, const Pack& b) {
  return each([&](int i) { return a - b.vector[i]; });
}
template <class C>
FASTSAMPLE_INLINE Pack add_exact_product(const Pack& a, const Pack& b, const C& c) {
  return each([&](int i) { return add_exact_product(a.vector[i], b.vector[i], nth(c, i)); });
}

// Bit i is set where lane i of a is at least lane i of b.
inline uint32_t at_least(Floats a, Floats b) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GE_OQ);
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_GE_OQ)));
#elif defined(__SSE2__)
  return static_cast<uint32_t>(_mm_movemask_ps(_mm_cmpge_ps((__m128)a, (__m128)b)));
#elif defined(__aarch64__)
  const Ints weights = {1, 2, 4, 8};
  return vaddvq_u32((uint32x4_t)((a >= b) & weights));
#else
  const Ints mask = a >= b;
  uint32_t bits = 0;
  for (int lane = 0; lane < kLanes; ++lane) bits |= (mask[lane] & 1u) << lane;
  return bits;
#endif
}

// The vector with lanes i and i + 8 (or i + 4) exchanged.
template <class Vector>
inline Vector exchange_8(Vector v) {
#if FASTSAMPLE_LANES == 16
  return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
#else
  return v;
#endif
}
template <class Vector>
inline Vector exchange_4(Vector v) {
#if FASTSAMPLE_LANES == 16
  return __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
#elif FASTSAMPLE_LANES == 8
  return __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
#else
  return v;
#endif
}

// Pairs of the lanes of two vectors, the first half of them or the second; and the second of each pair.
#if FASTSAMPLE_LANES == 16
inline Ints interleave_low(Ints a, Ints b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline Ints interleave_high(Ints a, Ints b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
inline Ints seconds(Ints a, Ints b) {
  return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}
#elif FASTSAMPLE_LANES == 8
inline Ints interleave_low(Ints a, Ints b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
inline Ints interleave_high(Ints a, Ints b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
inline Ints seconds(Ints a, Ints b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15); }
#else
inline Ints interleave_low(Ints a, Ints b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
inline Ints interleave_high(Ints a, Ints b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
inline Ints seconds(Ints a, Ints b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7); }
#endif

// The maxima of the lanes whose places are equal modulo 4.
typedef float Parts __attribute__((vector_size(16)));
inline Parts largest_of_parts(Floats lanes) {
  if (kLanes >= 16) lanes = larger(lanes, exchange_8(lanes));
  if (kLanes >= 8) lanes = larger(lanes, exchange_4(lanes));
  Parts parts;
  std::memcpy(&parts, &lanes, sizeof parts);
  return parts;
}

inline float largest(Parts parts) {
  const float a = parts[0] > parts[1] ? parts[0] : parts[1];
  const float b = parts[2] > parts[3] ? parts[2] : parts[3];
  return a > b ? a : b;
}

// The order of additions depends on the number of lanes.
template <class Vector>
inline auto sum_of(Vector lanes) {
  if (kLanes >= 16) lanes += exchange_8(lanes);
  if (kLanes >= 8) lanes += exchange_4(lanes);
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
