// One row from start to end: the only file that orders the steps. scan -> filters -> masses -> draw.
#pragma once

#include "filters.hpp"
#include "philox.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// A kept set: either candidates, or the whole row with the total mass of each of its blocks.
struct Kept {
  Law law;
  bool whole;
  Candidates candidates;
  uint64_t total;
};

// The total mass of each block; blocks whose best logit has mass 0 are not opened.
inline uint64_t weigh_blocks(const Row& row, Law law, const Workspace& work) {
  uint64_t sum = 0;
  for (int64_t b = 0; b < row.blocks(); ++b) {
    uint64_t mass = 0;
    if (exponent(law, work.best[b]) > kZeroExponent) {
      prefetch(row.block(b));
      mass = block_mass(law, row.block(b));
    }
    work.sums[b] = mass;
    sum += mass;
  }
  return sum;
}

// Rule 5 without top_k: the candidates are what min_p, or the mass that the nucleus may leave out, bounds.
inline void keep_from_row(const Row& row, const Settings& settings, Workspace& work, Kept& kept) {
  const float top_p = static_cast<float>(settings.top_p);
  const float min_p = static_cast<float>(settings.min_p);
  const float min_p_lowest = min_p_bound(kept.law, min_p);
  Candidates& candidates = kept.candidates;
  if (top_p >= 1.0f) {
    kept.whole = min_p_lowest == kLowest;
    if (kept.whole) {
      kept.total = weigh_blocks(row, kept.law, work);
      return;
    }
    candidates.count = collect(row, work.best, min_p_lowest, candidates.keys);
    kept.total = weigh(candidates, kept.law);
    return;
  }
  const uint64_t all = weigh_blocks(row, kept.law, work);
  const uint64_t need = nucleus_need(top_p, all);
  const float bound = nucleus_bound(kept.law, all - need, row.vocabulary());
  candidates.count = collect(row, work.best, bound, candidates.keys);
  weigh(candidates, kept.law);
  kept.total = keep_nucleus(candidates, need, work);
  if (min_p_lowest > kLowest) {
    kept.total = drop_below(candidates, key_of(min_p_lowest, -1), true);
  }
}

inline void keep_top_k_first(const Row& row, const Settings& settings, Workspace& work, Kept& kept) {
  const float bound = bound_for_top_k(work.best, row.blocks(), settings.top_k, kept.law.top);
  Candidates& candidates = kept.candidates;
  candidates.count = collect(row, work.best, bound, candidates.keys);
  keep_top_k(candidates, settings.top_k, work);
  kept.total = weigh(candidates, kept.law);
  const uint64_t need = nucleus_need(static_cast<float>(settings.top_p), kept.total);
  if (need > 0) kept.total = keep_nucleus(candidates, need, work);
  const float min_p_lowest = min_p_bound(kept.law, static_cast<float>(settings.min_p));
  if (min_p_lowest > kLowest) {
    kept.total = drop_below(candidates, key_of(min_p_lowest, -1), true);
  }
}

inline void keep(const Row& row, const Settings& settings, Workspace& work, Kept& kept) {
  kept.law.scale = scale_of(settings.temperature);
  kept.whole = false;
  kept.candidates = {work.keys, work.masses, 0};
  if (settings.top_k > 0 && settings.top_k < row.vocabulary()) {
    keep_top_k_first(row, settings, work, kept);
  } else {
    keep_from_row(row, settings, work, kept);
  }
}

// The masses of one block, in ascending token.
inline void block_masses(const Row& row, Law law, int64_t b, uint64_t* masses) {
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    const Masses lanes = masses_of(law, load(row.block(b) + 4 * i));
    for (int lane = 0; lane < kLanes; ++lane) masses[i + lane] = mass_at(lanes, lane);
  }
}

// The first place whose running mass exceeds r; r is below the masses' total.
inline int64_t first_above(const uint64_t* masses, uint64_t* r) {
  int64_t i = 0;
  for (; *r >= masses[i]; ++i) *r -= masses[i];
  return i;
}

// Rule 6.
inline int64_t draw(const Row& row, const Settings& settings, const Workspace& work,
                    const Kept& kept) {
  const uint64_t u = uniform(settings.seed, settings.position, settings.stream, 0);
  uint64_t r = static_cast<uint64_t>((static_cast<unsigned __int128>(u) * kept.total) >> 64);
  if (!kept.whole) return token_of(kept.candidates.keys[first_above(kept.candidates.masses, &r)]);
  const int64_t b = first_above(work.sums, &r);
  uint64_t masses[kBlock];
  block_masses(row, kept.law, b, masses);
  return b * kBlock + first_above(masses, &r);
}

// T is rounded before it is compared: 1e-50 is 0.
inline bool is_greedy(const Settings& settings) {
  return static_cast<float>(settings.temperature) == 0.0f;
}

Status sample(const void* logits, int64_t vocabulary, const Settings& settings, Workspace& work,
              int64_t* token) {
  const Row row(logits, vocabulary);
  Kept kept;
  *token = -1;
  const Status status = scan(row, work.best, &kept.law.top);
  if (status != kOk) return status;
  if (is_greedy(settings)) {
    *token = first_token(row, work.best, kept.law.top);
    return kOk;
  }
  keep(row, settings, work, kept);
  *token = draw(row, settings, work, kept);
  return kOk;
}

// All tokens above -inf with their masses.
inline int64_t list_row(const Row& row, Law law, int64_t* tokens, uint64_t* masses) {
  int64_t count = 0;
  uint64_t in_block[kBlock];
  for (int64_t b = 0; b < row.blocks(); ++b) {
    block_masses(row, law, b, in_block);
    for (int64_t i = 0; i < kBlock; ++i) {
      if (load_one(row.block(b) + 4 * i) == -kInfinity) continue;
      tokens[count] = b * kBlock + i;
      masses[count++] = in_block[i];
    }
  }
  return count;
}

Status kept_set(const void* logits, int64_t vocabulary, const Settings& settings, Workspace& work,
                int64_t* tokens, uint64_t* masses, int64_t* count) {
  const Row row(logits, vocabulary);
  Kept kept;
  *count = 0;
  const Status status = scan(row, work.best, &kept.law.top);
  if (status != kOk) return status;
  if (is_greedy(settings)) {
    tokens[0] = first_token(row, work.best, kept.law.top);
    masses[0] = uint64_t{1} << 40;
    *count = 1;
    return kOk;
  }
  keep(row, settings, work, kept);
  if (kept.whole) {
    *count = list_row(row, kept.law, tokens, masses);
    return kOk;
  }
  *count = kept.candidates.count;
  for (int64_t i = 0; i < *count; ++i) {
    tokens[i] = token_of(kept.candidates.keys[i]);
    masses[i] = kept.candidates.masses[i];
  }
  return kOk;
}

}  // namespace

extern const Kernels kernels;
const Kernels kernels = {FASTSAMPLE_ISA_NAME, sample, kept_set};

}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
