// Arrays of sort keys and of their masses: sums, and partitions by a key.
#pragma once

#include "simd/simd.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

inline uint64_t sum_words(const uint64_t* words, int64_t count) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += words[i];
  return sum;
}

// The weight of the keys >= pivot: their total mass, or their number where `masses` is null.
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
struct KeyMasses {
  uint64_t* keys;
  uint64_t* masses;
};

// Copies the keys on one side of the pivot (>= or <) to `target`, in their order, with their masses; returns
// their number. `target` may be `source`, and is written in full vectors. No branch depends on the keys.
template <bool kAtLeast>
inline int64_t move_side(KeyMasses source, int64_t count, uint64_t pivot, KeyMasses target) {
  int64_t moved = 0;
#if defined(__AVX512F__)
  const __m512i pivots = _mm512_set1_epi64(static_cast<int64_t>(pivot));
  for (int64_t i = 0; i < count; i += 8) {
    const __m512i keys = _mm512_loadu_si512(source.keys + i);
    __mmask8 side = _mm512_cmpge_epu64_mask(keys, pivots);
    if (!kAtLeast) side = static_cast<__mmask8>(~side);
    if (count - i < 8) side &= static_cast<__mmask8>((1u << (count - i)) - 1);
    if (source.masses) {
      const __m512i masses = _mm512_loadu_si512(source.masses + i);
      _mm512_storeu_si512(target.masses + moved, _mm512_maskz_compress_epi64(side, masses));
    }
    _mm512_storeu_si512(target.keys + moved, _mm512_maskz_compress_epi64(side, keys));
    moved += __builtin_popcount(side);
  }
#else
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t key = source.keys[i];
    target.keys[moved] = key;
    if (source.masses) target.masses[moved] = source.masses[i];
    moved += (key >= pivot) == kAtLeast;
  }
#endif
  return moved;
}

// The first index whose running mass exceeds r, which is below the total; r becomes the rest at that index. The
// last index where no running mass does, because another thread changed the row during the call.
inline int64_t first_exceeding(const uint64_t* masses, int64_t count, uint64_t* r) {
  constexpr int64_t kStride = 64;
  int64_t i = 0;
  for (; i + kStride < count; i += kStride) {
    const uint64_t sum = sum_words(masses + i, kStride);
    if (*r < sum) break;
    *r -= sum;
  }
  for (; i < count - 1 && *r >= masses[i]; ++i) *r -= masses[i];
  return i;
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
