// Rule 5: top_k, top_p, min_p. Each keeps the first tokens of rule 3's order, so each is a cut, and no token
// is sorted.
#pragma once

#include "mass.hpp"
#include "select.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// A kept set on its way through the stages. It starts as the whole row above -inf; the first filter that
// cuts turns it into candidates: keys in ascending token.
struct Kept {
  const Row& row;
  Workspace& work;
  Law law;
  bool whole;
  bool weighed;    // masses (candidates: each token's; whole: each block's) and total belong to the law
  int64_t count;   // candidates
  uint64_t total;  // mass
};

// ---- masses -------------------------------------------------------------------------------------------

// Blocks whose best logit has mass 0 are not opened.
inline void weigh_blocks(Kept& kept) {
  kept.total = 0;
  for (int64_t b = 0; b < kept.row.blocks(); ++b) {
    uint64_t mass = 0;
    if (exponent(kept.law, kept.work.best[b]) > kZeroExponent) {
      prefetch(kept.row.block(b));
      mass = block_mass(kept.law, kept.row.block(b));
    }
    kept.work.sums[b] = mass;
    kept.total += mass;
  }
}

inline void weigh_candidates(Kept& kept) {
  kept.total = 0;
  for (int64_t i = 0; i < kept.count; i += kLanes) {
    float logits[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) logits[lane] = logit_of(kept.work.keys[i + lane]);
    store_masses(masses_of(kept.law, load(logits)), kept.work.masses + i);
  }
  for (int64_t i = 0; i < kept.count; ++i) kept.total += kept.work.masses[i];
}

inline void weigh(Kept& kept) {
  if (kept.weighed) return;
  if (kept.whole) {
    weigh_blocks(kept);
  } else {
    weigh_candidates(kept);
  }
  kept.weighed = true;
}

// ---- cuts ---------------------------------------------------------------------------------------------

// Turns the whole row into candidates: all tokens whose logit reaches `bound`.
inline void open(Kept& kept, float bound) {
  kept.count = collect(kept.row, kept.work.best, bound, kept.work.keys);
  kept.whole = false;
  kept.weighed = false;
}

// Drops the candidates below the cut. The loops have no branch to guess wrong.
inline void drop_below(Kept& kept, uint64_t cut) {
  Workspace& work = kept.work;
  int64_t left = 0;
  if (!kept.weighed) {
    for (int64_t i = 0; i < kept.count; ++i) {
      const uint64_t key = work.keys[i];
      work.keys[left] = key;
      left += key >= cut;
    }
    kept.count = left;
    return;
  }
  kept.total = 0;
  for (int64_t i = 0; i < kept.count; ++i) {
    const uint64_t key = work.keys[i];
    const uint64_t mass = work.masses[i];
    work.keys[left] = key;
    work.masses[left] = mass;
    left += key >= cut;
    kept.total += key >= cut ? mass : 0;
  }
  kept.count = left;
}

inline uint64_t cut_by_count(Kept& kept, int64_t k) {
  std::memcpy(kept.work.keys_left, kept.work.keys, static_cast<size_t>(kept.count) * 8);
  return cut_among(kept.work.keys_left, ByCount{}, kept.count, static_cast<uint64_t>(k));
}

inline uint64_t cut_by_mass(Kept& kept, uint64_t need) {
  const size_t bytes = static_cast<size_t>(kept.count) * 8;
  std::memcpy(kept.work.keys_left, kept.work.keys, bytes);
  std::memcpy(kept.work.masses_left, kept.work.masses, bytes);
  return cut_among(kept.work.keys_left, ByMass{kept.work.masses_left}, kept.count, need);
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

// ---- the stages ---------------------------------------------------------------------------------------

inline void filter_top_k(Kept& kept, int64_t k) {
  if (k <= 0 || k >= kept.row.vocabulary()) return;
  const Workspace& work = kept.work;
  const int64_t blocks = kept.row.blocks();
  const bool by_lane = needs_lane_bests(k, blocks);
  open(kept, bound_for_count(by_lane ? work.lane_best : work.best,
                             by_lane ? blocks * kLanes : blocks, k, kept.law.top));
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

inline void filter_top_p(Kept& kept, float top_p) {
  if (top_p >= 1.0f) return;
  weigh(kept);
  const uint64_t need = nucleus_need(top_p, kept.total);
  if (kept.whole) {
    open(kept, nucleus_bound(kept, kept.total - need));
    weigh(kept);
  }
  drop_below(kept, cut_by_mass(kept, need));
}

inline void filter_min_p(Kept& kept, float min_p) {
  if (min_p <= 0x1p-60f) return;
  const double y = natural_log(static_cast<double>(min_p)) * kLog2E - 0x1p-19;
  const float bound = lowest_logit(kept.law, static_cast<float>(y));
  if (!kept.whole) {
    drop_below(kept, key_of(bound, -1));
  } else if (bound > kLowest) {
    open(kept, bound);
  }
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
