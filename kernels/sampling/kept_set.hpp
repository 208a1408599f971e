// The kept set as it passes through the stages of section 5, and its masses.
#pragma once

#include "math/float_mass.hpp"
#include "sampling/select.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// Either in place, the tokens of the row whose sort key is at least `cut`; or listed, the keys of its tokens in
// ascending token in work.keys. At first it is in place and holds all tokens above -inf.
struct KeptSet {
  const Row& row;
  Workspace& work;
  int64_t min_keep;
  Reduction reduction;
  Scaling scaling;
  bool in_place;
  uint64_t cut;        // in place: the lowest key
  uint64_t highest;    // no kept token has a larger key
  uint64_t passing;    // the lowest key that all thresholds keep, if the temperature has not changed since
  bool has_masses;  // the integer masses (listed: of each token; in place: of each span) and total are computed
  int64_t count;  // listed: the number of tokens
  uint64_t total;  // integer mass
  double float_total;  // float mass; in the reduction exact, `total` relative to the top token's mass
};

inline KeptSet all_tokens(const Row& row, Workspace& work, Scaling scaling, int64_t min_keep,
                          Reduction reduction) {
  return {row, work, min_keep, reduction, scaling, true, lowest_key(), kNoKey, lowest_key(), false, 0, 0, 0};
}

// The lowest read logit whose exponent is at least y. Exponents rise with the logit, so bisection finds it. The first
// two steps try floats around an estimate, which most often leaves few steps.
inline float lowest_logit(Scaling scaling, float y) {
  constexpr uint32_t kNear = 128;
  uint32_t low = ordinal(kLowest);
  uint32_t high = ordinal(scaling.top);
  const auto divide = [&](uint32_t at) {
    if (exponent2(scaling, read(from_ordinal(at))) >= y) {
      high = at;
    } else {
      low = at + 1;
    }
  };
  const uint32_t estimate = ordinal(scaling.top + y / scaling.scale);
  if (low + kNear < estimate && estimate + kNear < high) {
    divide(estimate + kNear);
    divide(estimate - kNear);
  }
  while (low < high) divide(low + (high - low) / 2);
  return read(from_ordinal(low));
}

// The number of kept tokens.
inline int64_t count_kept(const KeptSet& kept) {
  if (!kept.in_place) return kept.count;
  return count_from(kept.row, kept.work.block_max, kept.cut);
}

// ---- masses -------------------------------------------------------------------------------------------

template <class Sum>
int64_t spans_of(const Row& row) {
  return (row.blocks() + Sum::kBlocks - 1) / Sum::kBlocks;
}

// Adds the masses of a block's logits that are at least bound_at(i), where load(i) is a vector from the i-th on.
template <class Sum, class Load, class BoundAt>
FASTSAMPLE_INLINE void add_block_from(Sum& sum, Scaling scaling, Load load, BoundAt bound_at) {
  for (int64_t i = 0; i < kBlock; i += kPack * kLanes) {
    const Pack logits = each([&](int j) { return load(i + j * kLanes); });
    Power<Pack> v = power(exponent2(scaling, logits));
    v.half = each(
        [&](int j) { return logits.vector[j] >= bound_at(i + j * kLanes) ? v.half.vector[j] : Floats{}; });
    sum.add(v);
  }
}

// Adds the masses of all of a block's logits.
template <class Sum, class Load>
FASTSAMPLE_INLINE void add_block(Sum& sum, Scaling scaling, Load load) {
  for (int64_t i = 0; i < kBlock; i += kPack * kLanes) {
    sum.add(power(exponent2(scaling, each([&](int j) { return load(i + j * kLanes); }))));
  }
}

// Adds the masses of a block whose tokens have different bounds. Few blocks need that, so all dtypes share the code.
template <class Sum>
__attribute__((noinline)) Sum add_split_block(Sum sum, const Row& row, Scaling scaling, const Cut& cut,
                                              int64_t b) {
  const char* block = row.block(b);
  add_block_from(
      sum, scaling, [=](int64_t i) { return load(block + 4 * i); },
      [&](int64_t i) { return cut.bound_at(b * kBlock + i); });
  return sum;
}

// A block is read if its largest logit is at least this.
template <class Sum>
float lowest_read(Scaling scaling, float bound) {
  if (!Sum::kHasZeros) return bound;
  const float with_mass = lowest_logit(scaling, next_above(kZeroMassExponent2));
  return bound > with_mass ? bound : with_mass;
}

// The total mass of the tokens whose key is at least `key`; writes the mass of each span to `masses`. Blocks in
// which no token counts are not read. Without kCut all tokens above -inf must count, and the mass of -inf be 0 without
// a comparison.
template <bool kCut, class Sum>
typename Sum::Total sum_spans(const Row& row, const Workspace& work, Scaling scaling, uint64_t key,
                              typename Sum::Total* masses) {
  const float least = lowest_read<Sum>(scaling, logit_of(key));
  const Cut cut(key);
  typename Sum::Total total = 0;
  for (int64_t span = 0; span < spans_of<Sum>(row); ++span) {
    const int64_t after = (span + 1) * Sum::kBlocks;
    const int64_t end = after < row.blocks() ? after : row.blocks();
    Sum sum;
    for (int64_t b = span * Sum::kBlocks; b < end; ++b) {
      if (work.block_max[b] < least) continue;
      row.prefetch(b);
      if (kCut ? cut.splits(b * kBlock) : b >= row.full_blocks()) {
        sum = add_split_block(sum, row, scaling, cut, b);
        continue;
      }
      row.with_block(b, [&](auto load) __attribute__((always_inline)) {
        if (!kCut) {
          add_block(sum, scaling, load);
        } else {
          const Floats bound = cut.bound_at(b * kBlock);
          add_block_from(sum, scaling, load, [=](int64_t) { return bound; });
        }
      });
    }
    masses[span] = sum.total();
    total += masses[span];
  }
  return total;
}

inline uint64_t mass_from(const Row& row, const Workspace& work, Scaling scaling, uint64_t key) {
  return key == lowest_key() ? sum_spans<false, SpanMass>(row, work, scaling, key, work.span_masses)
                             : sum_spans<true, SpanMass>(row, work, scaling, key, work.span_masses);
}

template <class Sum>
double float_mass_from(const Row& row, const Workspace& work, Scaling scaling, uint64_t key) {
  return sum_spans<true, Sum>(row, work, scaling, key, work.span_totals);
}

// An integer mass relative to the top token's.
inline double to_float_mass(uint64_t mass) { return static_cast<double>(mass) * 0x1p-40; }

// The logits of a vector's lanes of keys.
inline Floats logits_of(const uint64_t* keys) {
  const Ints order = seconds((Ints)load(keys), (Ints)load(keys + kLanes / 2));
  return (Floats)(order ^ (~(order >> 31) | static_cast<int32_t>(0x80000000)));
}

// Writes the masses of work.keys; returns their total.
inline uint64_t compute_listed_masses(Workspace& work, Scaling scaling, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) {
    store_masses(masses_of(scaling, logits_of(work.keys + i)), work.masses + i);
  }
  return sum_words(work.masses, count);
}

inline void compute_integer_masses(KeptSet& kept) {
  if (kept.has_masses) return;
  kept.total = kept.in_place ? mass_from(kept.row, kept.work, kept.scaling, kept.cut)
                             : compute_listed_masses(kept.work, kept.scaling, kept.count);
  kept.has_masses = true;
}

// The masses of one block of a kept set in place, in ascending token; returns their total.
inline uint64_t block_masses(const KeptSet& kept, int64_t b, uint64_t* masses) {
  const char* block = kept.row.block(b);
  const Cut cut(kept.cut);
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    const Floats logits = load(block + 4 * i);
    const Floats kept_logits = logits >= cut.bound_at(b * kBlock + i) ? logits : fill(-kInfinity);
    store_masses(masses_of(kept.scaling, kept_logits), masses + i);
  }
  return sum_words(masses, kBlock);
}

// ---- smaller kept sets --------------------------------------------------------------------------------

inline KeyMasses listed_keys(const KeptSet& kept, bool with_masses) {
  return {kept.work.keys, with_masses ? kept.work.masses : nullptr};
}

inline KeyMasses scratch(const KeptSet& kept, bool with_masses) {
  return {kept.work.scratch_keys, with_masses ? kept.work.scratch_masses : nullptr};
}

inline void drop_below(KeptSet& kept, uint64_t cut) {
  const KeyMasses all = listed_keys(kept, kept.has_masses);
  kept.count = move_side<true>(all, kept.count, cut, all);
  if (kept.has_masses) kept.total = sum_words(kept.work.masses, kept.count);
}

// Lists the tokens whose key is at least `key`, or keeps them in place if they might not fit.
inline void list_from(KeptSet& kept, uint64_t key) {
  const int64_t count = key == lowest_key_of(logit_of(key))
                            ? list_from_logit(kept.row, kept.work, logit_of(key), kept.work.capacity)
                            : list_between(kept.row, kept.work, key, key_above(kept.scaling.top));
  kept.in_place = count == kTooMany;
  if (kept.in_place) {
    kept.cut = key;
  } else {
    kept.count = count;
  }
  kept.has_masses = false;
}

inline void list_kept(KeptSet& kept) {
  if (kept.in_place) list_from(kept, kept.cut);
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
