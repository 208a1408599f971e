// Section 2 after the mask, on the logits of one block in place: bias, then penalties in vectors.
#pragma once

#include "simd/simd.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// Section 1: an exponent field of 0 (denormal, -0) is +0.
inline float read(float logit) { return logit < kSmallestNormal && logit > -kSmallestNormal ? 0.0f : logit; }
FASTSAMPLE_INLINE Floats read_lanes(Floats x) { return ((Ints)x & 0x7F800000) != 0 ? x : Floats{}; }

constexpr int64_t kBlockGroups = kBlock / kCountGroup;

inline bool has_biases(const RowProcessors& a, int64_t b) {
  return a.bias_start && a.bias_start[b] != a.bias_start[b + 1];
}
inline bool reaches(const Penalty& penalty, int64_t b) {
  if (penalty.block_start) return penalty.block_start[b] != penalty.block_start[b + 1];
  return b * kBlockGroups < penalty.counts.group_count;
}
// Whether any operation but the mask changes a logit of block b.
inline bool has_edits(const RowProcessors& a, int64_t b) {
  if (has_biases(a, b)) return true;
  const Penalties* p = a.penalties;
  return p && (reaches(p->repetition, b) || reaches(p->frequency, b) || reaches(p->presence, b));
}

// Bits of the tokens of each group that occur in a penalty's scope.
struct BlockMembers {
  uint16_t groups[kBlockGroups];
};

FASTSAMPLE_INLINE Uints load_counts(const uint32_t* counts) {
  Uints lanes;
  std::memcpy(&lanes, counts, sizeof lanes);
  return lanes;
}

// Whether each of a vector's tokens, from the i-th of the block on, occurs.
FASTSAMPLE_INLINE Ints occurs(const BlockMembers& members, int64_t i) {
  const int32_t bits = members.groups[i / kCountGroup] >> i % kCountGroup;
  Ints weights;
  for (int lane = 0; lane < kLanes; ++lane) weights[lane] = 1 << lane;
  return ((bits - Ints{}) & weights) != 0;
}

// A group's bits, from the counts of its tokens.
inline uint16_t members_of(const uint32_t* counts) {
#if defined(__AVX512F__)
  const __m512i lanes = (__m512i)load_counts(counts);
  return _mm512_test_epi32_mask(lanes, lanes);
#else
  uint32_t bits = 0;
  for (int64_t i = 0; i < kCountGroup; i += kLanes) {
    const Floats ones = load_counts(counts + i) != 0 ? fill(1.0f) : Floats{};
    bits |= at_least(ones, fill(1.0f)) << i;
  }
  return static_cast<uint16_t>(bits);
#endif
}

inline void find_members(const Penalty& penalty, int64_t b, BlockMembers& members) {
  if (!penalty.block_start) {
    const uint32_t* counts = penalty.counts.counts + b * kBlock;
    for (int64_t g = 0; g < kBlockGroups; ++g) members.groups[g] = members_of(counts + g * kCountGroup);
    return;
  }
  members = {};
  for (uint32_t i = penalty.block_start[b]; i < penalty.block_start[b + 1]; ++i) {
    const uint64_t group = penalty.counts.groups[i];
    members.groups[(group >> kGroupBit) % kBlockGroups] = static_cast<uint16_t>(group);
  }
}

// Writes the counts of a sparse group to the places of its tokens, which are 0.
inline void spread(uint32_t tokens, const uint32_t* counts, uint32_t* target) {
#if defined(__AVX512F__)
  const __mmask16 some = static_cast<__mmask16>((1u << __builtin_popcount(tokens)) - 1);
  const __m512i lanes = _mm512_maskz_loadu_epi32(some, counts);
  _mm512_storeu_si512(target, _mm512_maskz_expand_epi32(static_cast<__mmask16>(tokens), lanes));
#else
  for (; tokens; tokens &= tokens - 1) target[__builtin_ctz(tokens)] = *counts++;
#endif
}

// The counts of a block's tokens, one each: those of `target` if the penalty's are sparse.
inline const uint32_t* find_counts(const Penalty& penalty, int64_t b, uint32_t* target) {
  if (!penalty.block_start) return penalty.counts.counts + b * kBlock;
  for (int64_t i = 0; i < kBlock; i += kLanes) store(target + i, Floats{});
  for (uint32_t i = penalty.block_start[b]; i < penalty.block_start[b + 1]; ++i) {
    const uint64_t group = penalty.counts.groups[i];
    const uint32_t* counts = penalty.counts.counts + (group >> kStartBit & kStartMask);
    uint32_t* const first = target + (group >> kGroupBit) % kBlockGroups * kCountGroup;
    spread(static_cast<uint16_t>(group), counts, first);
  }
  return target;
}

inline void add_biases(const RowProcessors& a, int64_t b, float* logits) {
  for (int64_t e = a.bias_start[b]; e < a.bias_start[b + 1]; ++e) {
    float& logit = logits[a.biases[e].token - b * kBlock];
    logit = read(read(logit) + a.biases[e].value);
  }
}

// Writes the penalised logits of a block. The result of every operation is read as section 1 reads an input.
inline void penalise(const Penalties& p, int64_t b, const char* source, float* target) {
  const bool repeats = reaches(p.repetition, b);
  const bool counted = reaches(p.frequency, b);
  const bool is_present = reaches(p.presence, b);
  BlockMembers repeated, present;
  alignas(64) uint32_t spread_counts[kBlock];
  if (repeats) find_members(p.repetition, b, repeated);
  if (is_present) find_members(p.presence, b, present);
  const uint32_t* const counts = counted ? find_counts(p.frequency, b, spread_counts) : nullptr;
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    const Floats before = read_lanes(load(source + 4 * i));
    Floats x = before;
    if (repeats) {
      const Floats changed = x > 0.0f ? x / p.repetition.value : x * p.repetition.value;
      x = occurs(repeated, i) ? read_lanes(changed) : x;
    }
    if (counted) {
      const Uints times = load_counts(counts + i);
      // As signed numbers: no history has 2^31 tokens, and unsigned ones are converted in parts, which may be fused.
      const Floats times_float = __builtin_convertvector((Ints)times, Floats);
      const Floats lost = read_lanes(p.frequency.value * times_float);
      x = times != 0 ? read_lanes(x - lost) : x;
    }
    if (is_present) x = occurs(present, i) ? read_lanes(x - p.presence.value) : x;
    store(target + i, before == -kInfinity ? before : x);
  }
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
