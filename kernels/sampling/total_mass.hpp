// The total mass of a kept set in each reduction (section 8).
#pragma once

#include "sampling/kept_set.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// Float masses of listed keys use the memory of integer masses.
inline char* listed_float_masses(const Workspace& work) { return reinterpret_cast<char*>(work.masses); }

inline void write_float_masses(const KeptSet& kept) {
  for (int64_t i = 0; i < kept.count; i += kLanes) {
    store(listed_float_masses(kept.work) + 4 * i, float_masses_of(kept.scaling, logits_of(kept.work.keys + i)));
  }
}

// The listed tokens from `start` on that are in one block of section 8: where they end, and their mass.
struct RuleBlock {
  int64_t end;
  float mass;
};
inline RuleBlock rule_block(const KeptSet& kept, int64_t start) {
  const uint64_t* const keys = kept.work.keys;
  const char* const values = listed_float_masses(kept.work);
  const int64_t block = token_of(keys[start]) / kRuleBlock;
  int64_t end = start + 1;
  while (end < kept.count && token_of(keys[end]) / kRuleBlock == block) ++end;
  // Common in short lists: two tokens have the same sum in one lane and in two.
  if (end == start + 1) return {end, load_one(values + 4 * start)};
  if (end == start + 2) return {end, load_one(values + 4 * start) + load_one(values + 4 * start + 4)};
  float lanes[kRuleLanes] = {};
  for (int64_t i = start; i < end; ++i) {
    lanes[token_of(keys[i]) % kRuleLanes] += load_one(values + 4 * i);
  }
  return {end, sum_of_rule_lanes(lanes)};
}

inline double sum_listed_fixed(const KeptSet& kept) {
  double total = 0;
  for (int64_t start = 0; start < kept.count;) {
    const RuleBlock block = rule_block(kept, start);
    total += block.mass;
    start = block.end;
  }
  return total;
}

inline double sum_listed_fast(const KeptSet& kept) {
  const char* const values = listed_float_masses(kept.work);
  Floats lanes = {};
  int64_t i = 0;
  for (; i + kLanes <= kept.count; i += kLanes) lanes += load(values + 4 * i);
  float sum = sum_of(lanes);
  for (; i < kept.count; ++i) sum += load_one(values + 4 * i);
  return sum;
}

inline void compute_float_masses(KeptSet& kept) {
  const bool fixed = kept.reduction == kFixed;
  kept.has_masses = false;
  if (kept.in_place) {
    kept.float_total = fixed ? float_mass_from<FixedSum>(kept.row, kept.work, kept.scaling, kept.cut)
                             : float_mass_from<FastSum>(kept.row, kept.work, kept.scaling, kept.cut);
    return;
  }
  write_float_masses(kept);
  kept.float_total = fixed ? sum_listed_fixed(kept) : sum_listed_fast(kept);
}

inline void compute_masses(KeptSet& kept) {
  if (kept.reduction == kExact) {
    compute_integer_masses(kept);
    kept.float_total = to_float_mass(kept.total);
  } else {
    compute_float_masses(kept);
  }
  if (!kept.in_place || kept.cut != lowest_key()) return;
  kept.work.row_scale = kept.scaling.scale;
  kept.work.row_total = kept.float_total;
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
