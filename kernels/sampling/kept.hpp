// A kept set on its way through the stages of rule 5, and what it weighs.
#pragma once

#include "math/float_mass.hpp"
#include "sampling/select.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// Either whole, the tokens of the row from a cut up, left where they are; or candidates, the keys listed in
// ascending token. It starts as the row above -inf.
struct Kept {
  const Row& row;
  Workspace& work;
  int64_t min_keep;
  Reduction reduction;
  Law law;
  bool whole;
  uint64_t cut;    // whole: the lowest key
  bool weighed;    // masses (candidates: each token's; whole: each span's) and total belong to the law
  int64_t count;   // candidates
  uint64_t total;  // integer mass
  double weight;   // float mass, where the reduction asks for it
};

inline Kept all_of(const Row& row, Workspace& work, Law law, int64_t min_keep, Reduction reduction) {
  return {row, work, min_keep, reduction, law, true, lowest_key(), false, 0, 0, 0};
}

// The lowest read logit whose exponent reaches y. Exponents rise with the logit, so halving finds it.
inline float lowest_logit(Law law, float y) {
  uint32_t low = ordered(kLowest);
  uint32_t high = ordered(law.top);
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (exponent(law, read(from_ordered(middle))) >= y) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return read(from_ordered(low));
}

// How many tokens are kept.
inline int64_t count_kept(const Kept& kept) {
  if (!kept.whole) return kept.count;
  const bool all = kept.cut == lowest_key() && kept.work.is_finite;
  const int64_t known = all ? kept.row.full_blocks() : 0;
  return known * kBlock + count_from(kept.row, kept.work.best, kept.cut, known);
}

// ---- masses -------------------------------------------------------------------------------------------

template <class Sum>
int64_t spans_of(const Row& row) {
  return (row.blocks() + Sum::kBlocks - 1) / Sum::kBlocks;
}

// Adds the masses of a block's logits, of which load(i) gives a vector from the i-th on, where they reach
// bound_at(i).
template <class Sum, class Load, class BoundAt>
__attribute__((always_inline)) inline void add_block_from(Sum& sum, Law law, Load load, BoundAt bound_at) {
  for (int64_t i = 0; i < kBlock; i += kPack * kLanes) {
    const Pack logits = each([&](int j) { return load(i + j * kLanes); });
    Power<Pack> v = power(exponents(law, logits));
    v.half = each(
        [&](int j) { return logits.vector[j] >= bound_at(i + j * kLanes) ? v.half.vector[j] : Floats{}; });
    sum.add(v);
  }
}

// Without a cut.
template <class Sum, class Load>
__attribute__((always_inline)) inline void add_block(Sum& sum, Law law, Load load) {
  for (int64_t i = 0; i < kBlock; i += kPack * kLanes) {
    sum.add(power(exponents(law, each([&](int j) { return load(i + j * kLanes); }))));
  }
}

// The bound that a block's best logit must reach to be opened.
template <class Sum>
float lowest_opened(Law law, float bound) {
  if (!Sum::kHasZeros) return bound;
  const float least = lowest_logit(law, next_above(kZeroExponent));
  return bound > least ? bound : least;
}

// What the tokens from a cut up weigh; each span's share goes to `sums`. Blocks in which no token counts are
// not opened. Without a cut there must be no -inf in the full blocks, unless it has mass 0 as it is.
template <bool kCut, class Sum>
typename Sum::Total weigh_spans(const Row& row, const Workspace& work, Law law, uint64_t key,
                                typename Sum::Total* sums) {
  const float opened = lowest_opened<Sum>(law, logit_of(key));
  const Cut cut(key);
  typename Sum::Total total = 0;
  for (int64_t span = 0; span < spans_of<Sum>(row); ++span) {
    const int64_t after = (span + 1) * Sum::kBlocks;
    const int64_t end = after < row.blocks() ? after : row.blocks();
    Sum sum;
    for (int64_t b = span * Sum::kBlocks; b < end; ++b) {
      if (work.best[b] < opened) continue;
      row.prefetch(b);
      const int64_t first = b * kBlock;
      row.with_block(b, [&](auto load) __attribute__((always_inline)) {
        if (!kCut && b < row.full_blocks()) {
          add_block(sum, law, load);
        } else if (cut.splits(first)) {
          add_block_from(sum, law, load, [&](int64_t i) { return cut.bound_at(first + i); });
        } else {
          const Floats bound_here = cut.bound_at(first);
          add_block_from(sum, law, load, [=](int64_t) { return bound_here; });
        }
      });
    }
    sums[span] = sum.total();
    total += sums[span];
  }
  return total;
}

inline uint64_t weigh_from(const Row& row, const Workspace& work, Law law, uint64_t key) {
  return key == lowest_key() ? weigh_spans<false, SpanMass>(row, work, law, key, work.sums)
                             : weigh_spans<true, SpanMass>(row, work, law, key, work.sums);
}

template <class Sum>
double weigh_floats_from(const Row& row, const Workspace& work, Law law, uint64_t key) {
  return key == lowest_key() && work.is_finite ? weigh_spans<false, Sum>(row, work, law, key, work.float_sums)
                                               : weigh_spans<true, Sum>(row, work, law, key, work.float_sums);
}

// The top token taken for 1.
inline double weight_of(uint64_t mass) { return static_cast<double>(mass) * 0x1p-40; }

// The logits of as many keys as there are lanes.
inline Floats logits_of(const uint64_t* keys) {
  const Ints order = seconds((Ints)load(keys), (Ints)load(keys + kLanes / 2));
  return (Floats)(order ^ (~(order >> 31) | static_cast<int32_t>(0x80000000)));
}

// Writes the masses of work.keys; their total comes back.
inline uint64_t weigh_listed(Workspace& work, Law law, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) {
    store_masses(masses_of(law, logits_of(work.keys + i)), work.masses + i);
  }
  return sum_of_words(work.masses, count);
}

inline void weigh_integers(Kept& kept) {
  if (kept.weighed) return;
  kept.total = kept.whole ? weigh_from(kept.row, kept.work, kept.law, kept.cut)
                          : weigh_listed(kept.work, kept.law, kept.count);
  kept.weighed = true;
}

// The masses of one block of a whole kept set, in ascending token; their total comes back.
inline uint64_t block_masses(const Kept& kept, int64_t b, uint64_t* masses) {
  const char* block = kept.row.block(b);
  const Cut cut(kept.cut);
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    const Floats logits = load(block + 4 * i);
    const Floats kept_logits = logits >= cut.bound_at(b * kBlock + i) ? logits : fill(-kInfinity);
    store_masses(masses_of(kept.law, kept_logits), masses + i);
  }
  return sum_of_words(masses, kBlock);
}

// ---- smaller kept sets --------------------------------------------------------------------------------

inline Weighed candidates(const Kept& kept, bool with_masses) {
  return {kept.work.keys, with_masses ? kept.work.masses : nullptr};
}

inline Weighed scratch(const Kept& kept, bool with_masses) {
  return {kept.work.keys_left, with_masses ? kept.work.masses_left : nullptr};
}

inline void drop_below(Kept& kept, uint64_t cut) {
  const Weighed all = candidates(kept, kept.weighed);
  kept.count = move_side<true>(all, kept.count, cut, all);
  if (kept.weighed) kept.total = sum_of_words(kept.work.masses, kept.count);
}

// Lists the tokens from a key up, or leaves the kept set whole where they might not fit.
inline void list_from(Kept& kept, uint64_t key) {
  const int64_t count = key == first_key_of(logit_of(key))
                            ? list_from_logit(kept.row, kept.work, logit_of(key), kept.work.room)
                            : list_between(kept.row, kept.work, key, key_above(kept.law.top));
  kept.whole = count == kTooMany;
  if (kept.whole) {
    kept.cut = key;
  } else {
    kept.count = count;
  }
  kept.weighed = false;
}

inline void list_kept(Kept& kept) {
  if (kept.whole) list_from(kept, kept.cut);
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
