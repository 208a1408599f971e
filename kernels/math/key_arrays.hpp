// Arrays of 64-bit words, keys and masses: sums, and what is left of an array when a cut passes through it.
#pragma once

#include "simd/simd.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

inline uint64_t sum_of_words(const uint64_t* words, int64_t count) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += words[i];
  return sum;
}

// What the keys from `pivot` up weigh: their masses, or their number where `masses` is null.
inline uint64_t weight_from(const uint64_t* keys, const uint64_t* masses, int64_t count, uint64_t pivot) {
  uint64_t weight = 0;
  if (!masses) {
    for (int64_t i = 0; i < count; ++i) weight += keys[i] >= pivot;
  } else {
    for (int64_t i = 0; i < count; ++i) weight += keys[i] >= pivot ? masses[i] : 0;
  }
  return weight;
}

// Keys with their masses, which may be null.
struct Weighed {
  uint64_t* keys;
  uint64_t* masses;
};

// Moves the keys on one side of the pivot (from it up, or below it) to `target`, in their order, with their
// masses; their number comes back. `target` may be `source`; it has room for whole vectors. No branch
// depends on the keys.
template <bool kFromPivotUp>
inline int64_t move_side(Weighed source, int64_t count, uint64_t pivot, Weighed target) {
  int64_t left = 0;
#if defined(__AVX512F__)
  const __m512i pivots = _mm512_set1_epi64(static_cast<int64_t>(pivot));
  for (int64_t i = 0; i < count; i += 8) {
    const __m512i keys = _mm512_loadu_si512(source.keys + i);
    __mmask8 side = _mm512_cmpge_epu64_mask(keys, pivots);
    if (!kFromPivotUp) side = static_cast<__mmask8>(~side);
    if (count - i < 8) side &= static_cast<__mmask8>((1u << (count - i)) - 1);
    if (source.masses) {
      const __m512i masses = _mm512_loadu_si512(source.masses + i);
      _mm512_storeu_si512(target.masses + left, _mm512_maskz_compress_epi64(side, masses));
    }
    _mm512_storeu_si512(target.keys + left, _mm512_maskz_compress_epi64(side, keys));
    left += __builtin_popcount(side);
  }
#else
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t key = source.keys[i];
    target.keys[left] = key;
    if (source.masses) target.masses[left] = source.masses[i];
    left += (key >= pivot) == kFromPivotUp;
  }
#endif
  return left;
}

// The first place whose running mass exceeds r, which is below the masses' total; r is what is left there.
// The last place, where a row that changed during the call makes the total another one.
inline int64_t first_above(const uint64_t* masses, int64_t count, uint64_t* r) {
  constexpr int64_t kStride = 64;
  int64_t i = 0;
  for (; i + kStride < count; i += kStride) {
    const uint64_t sum = sum_of_words(masses + i, kStride);
    if (*r < sum) break;
    *r -= sum;
  }
  for (; i < count - 1 && *r >= masses[i]; ++i) *r -= masses[i];
  return i;
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
