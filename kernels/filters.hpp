// Rule 5: top_k, top_p, min_p. Each keeps the first tokens of rule 3's order, so each is a cut: no token is
// sorted, and the stages may come in any order.
#pragma once

#include "mass.hpp"
#include "select.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// A kept set on its way through the stages: either the tokens of the row from a floor up, or candidates,
// keys in ascending token. It starts as the row above -inf.
struct Kept {
  const Row& row;
  Workspace& work;
  int64_t min_keep;
  Law law;
  bool whole;
  float floor;     // whole: a read logit
  bool weighed;    // masses (candidates: each token's; whole: each block's) and total belong to the law
  int64_t count;   // candidates
  uint64_t total;  // mass
};

inline Kept all_of(const Row& row, Workspace& work, Law law, int64_t min_keep) {
  return {row, work, min_keep, law, true, kLowest, false, 0, 0};
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

// ---- masses -------------------------------------------------------------------------------------------

// Blocks that hold nothing above mass 0, or below the floor, are not opened.
template <bool kFloor>
inline uint64_t weigh_blocks(const Kept& kept) {
  const float least = lowest_logit(kept.law, next_above(kZeroExponent));
  const float opened = kFloor && kept.floor > least ? kept.floor : least;
  const float unread = unread_bound(kept.floor);
  uint64_t total = 0;
  for (int64_t b = 0; b < kept.row.blocks(); ++b) {
    uint64_t mass = 0;
    if (kept.work.best[b] >= opened) {
      kept.row.prefetch(b);
      mass = block_mass<kFloor>(kept.law, kept.row.block(b), unread);
    }
    kept.work.sums[b] = mass;
    total += mass;
  }
  return total;
}

inline uint64_t weigh_candidates(const Kept& kept) {
  for (int64_t i = 0; i < kept.count; i += kLanes) {
    float logits[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) logits[lane] = logit_of(kept.work.keys[i + lane]);
    store_masses(masses_of(kept.law, load(logits)), kept.work.masses + i);
  }
  return sum_of_words(kept.work.masses, kept.count);
}

inline void weigh(Kept& kept) {
  if (kept.weighed) return;
  if (!kept.whole) {
    kept.total = weigh_candidates(kept);
  } else if (kept.floor == kLowest) {
    kept.total = weigh_blocks<false>(kept);
  } else {
    kept.total = weigh_blocks<true>(kept);
  }
  kept.weighed = true;
}

// ---- cuts ---------------------------------------------------------------------------------------------

// Turns the row into candidates: the tokens whose logit reaches `bound`; of those that equal it only the
// first `most_equal`.
inline void open(Kept& kept, float bound, int64_t most_equal = kAll) {
  if (bound < kept.floor) {
    bound = kept.floor;
    most_equal = kAll;
  }
  kept.count = collect(kept.row, kept.work, bound, most_equal, kept.work.keys);
  kept.whole = false;
  kept.weighed = false;
}

inline Weighed candidates(const Kept& kept, bool with_masses) {
  return {kept.work.keys, with_masses ? kept.work.masses : nullptr};
}

inline void drop_below(Kept& kept, uint64_t cut) {
  const Weighed all = candidates(kept, kept.weighed);
  kept.count = move_side<true>(all, kept.count, cut, all);
  if (kept.weighed) kept.total = sum_of_words(kept.work.masses, kept.count);
}

inline uint64_t cut_by_count(const Kept& kept, int64_t k) {
  return cut_among(candidates(kept, false), kept.count, static_cast<uint64_t>(k),
                   {kept.work.keys_left, nullptr});
}

inline uint64_t cut_by_mass(const Kept& kept, uint64_t need) {
  return cut_among(candidates(kept, true), kept.count, need,
                   {kept.work.keys_left, kept.work.masses_left});
}

// Opens the row at a logit that a filter gives, or lower if min_keep asks for more tokens.
inline void open_for_filter(Kept& kept, float bound) {
  if (kept.min_keep > 1) {
    const float enough = bound_for_count(kept.row, kept.work, kept.min_keep, kept.law.top);
    bound = enough < bound ? enough : bound;
  }
  open(kept, bound);
}

// Drops what is below a filter's cut, but never the first min_keep tokens.
inline void filter_below(Kept& kept, uint64_t cut) {
  if (kept.min_keep > 1) {
    const uint64_t least = kept.count > kept.min_keep ? cut_by_count(kept, kept.min_keep) : 0;
    cut = least < cut ? least : cut;
  }
  drop_below(kept, cut);
}

// ---- the stages ---------------------------------------------------------------------------------------

inline void set_temperature(Kept& kept, double temperature) {
  kept.law.scale = scale_of(temperature);
  kept.weighed = false;
}

inline void filter_top_k(Kept& kept, int64_t k) {
  if (k <= 0) return;
  k = k > kept.min_keep ? k : kept.min_keep;
  if (k >= kept.row.vocabulary()) return;
  if (kept.whole) open(kept, bound_for_count(kept.row, kept.work, k, kept.law.top), k);
  if (kept.count > k) drop_below(kept, cut_by_count(kept, k));
}

// The mass that a nucleus must reach, of a kept set of this total.
inline uint64_t nucleus_need(float top_p, uint64_t total) {
  const int64_t share = static_cast<int64_t>(static_cast<double>(top_p) * 0x1p31) - 1024;
  if (share <= 0) return 1;
  const unsigned __int128 product = static_cast<unsigned __int128>(share) * total;
  return static_cast<uint64_t>((product + 0x7FFFFFFF) >> 31);
}

// A logit below which all tokens together weigh at most `spare`: a nucleus that may leave `spare` out lies
// above it. With y the exponent of half a token's share, a token below y weighs at most 2^(y + 40) + 1/2
// and a few ulp, which is below its share; where the share is under 2, y is where masses become 0.
inline float nucleus_bound(const Kept& kept, uint64_t spare) {
  const uint64_t each = spare / static_cast<uint64_t>(kept.row.vocabulary()) / 2;
  const float y = each == 0 ? kZeroExponent : static_cast<float>(23 - __builtin_clzll(each));
  return lowest_logit(kept.law, y);
}

// Opens the row at a logit that the nucleus surely lies above. The first guesses are high: a nucleus is
// mostly small, and whether a guess was right is seen when its tokens are weighed.
inline void open_for_nucleus(Kept& kept, uint64_t need) {
  constexpr int64_t kFirstGuess = 128;
  const uint64_t spare = kept.total - need;
  const int64_t most = groups_for(kept.row, kept.work, kept.row.blocks()).count;
  float bound = kept.law.top;
  for (int64_t guess = kFirstGuess; guess < most; guess *= 4) {
    bound = bound_for_count(kept.row, kept.work, guess, bound);
    open(kept, bound);
    weigh(kept);
    if (kept.total >= need && kept.count >= kept.min_keep) return;
    kept.whole = true;
  }
  open_for_filter(kept, nucleus_bound(kept, spare));
  weigh(kept);
}

inline void filter_top_p(Kept& kept, float top_p) {
  if (top_p >= 1.0f) return;
  weigh(kept);
  const uint64_t need = nucleus_need(top_p, kept.total);
  if (kept.whole) open_for_nucleus(kept, need);
  filter_below(kept, cut_by_mass(kept, need));
}

// Many tokens are dearer to list than to leave in place.
inline bool is_dense(const Kept& kept, float bound) {
  const int64_t blocks = kept.row.blocks();
  return kept.min_keep <= 1 && count_at_least(kept.work.best, blocks, bound) > blocks / 4;
}

inline void filter_min_p(Kept& kept, float min_p) {
  if (min_p <= 0x1p-60f) return;
  const double y = natural_log(static_cast<double>(min_p)) * kLog2E - 0x1p-19;
  const float bound = lowest_logit(kept.law, static_cast<float>(y));
  if (!kept.whole) {
    filter_below(kept, key_of(bound, -1));
  } else if (bound > kept.floor && is_dense(kept, bound)) {
    kept.floor = bound;
    kept.weighed = false;
  } else if (bound > kept.floor) {
    open_for_filter(kept, bound);
    filter_below(kept, key_of(bound, -1));
  }
}

inline void apply_stages(Kept& kept, const Settings& settings) {
  for (uint32_t stages = settings.stages; stages != 0; stages >>= 4) {
    switch (stages & 15) {
      case kTemperature: set_temperature(kept, settings.temperature); break;
      case kTopK: filter_top_k(kept, settings.top_k); break;
      case kTopP: filter_top_p(kept, static_cast<float>(settings.top_p)); break;
      case kMinP: filter_min_p(kept, static_cast<float>(settings.min_p)); break;
      default: break;
    }
  }
  weigh(kept);
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
