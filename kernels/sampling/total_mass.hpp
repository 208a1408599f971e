// What a kept set weighs under its reduction (rule 8).
#pragma once

#include "sampling/kept.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// The float masses of listed keys lie where their integer masses would.
inline char* listed_float_masses(const Workspace& work) { return reinterpret_cast<char*>(work.masses); }

inline void list_float_masses(const Kept& kept) {
  for (int64_t i = 0; i < kept.count; i += kLanes) {
    store(listed_float_masses(kept.work) + 4 * i, float_masses_of(kept.law, logits_of(kept.work.keys + i)));
  }
}

// Where the listed tokens end that share a block of rule 8 with the one at `start`, and what these weigh.
struct RuleBlock {
  int64_t end;
  float weight;
};
inline RuleBlock rule_block(const Kept& kept, int64_t start) {
  const uint64_t* const keys = kept.work.keys;
  const char* const values = listed_float_masses(kept.work);
  const int64_t block = token_of(keys[start]) / kRuleBlock;
  int64_t end = start + 1;
  while (end < kept.count && token_of(keys[end]) / kRuleBlock == block) ++end;
  // Most blocks hold a token or two of a short list: whatever their lanes, theirs is the only sum.
  if (end == start + 1) return {end, load_one(values + 4 * start)};
  if (end == start + 2) return {end, load_one(values + 4 * start) + load_one(values + 4 * start + 4)};
  float lanes[kRuleLanes] = {};
  for (int64_t i = start; i < end; ++i) {
    lanes[token_of(keys[i]) % kRuleLanes] += load_one(values + 4 * i);
  }
  return {end, sum_of_rule_lanes(lanes)};
}

inline double weigh_listed_fixed(const Kept& kept) {
  double weight = 0;
  for (int64_t start = 0; start < kept.count;) {
    const RuleBlock block = rule_block(kept, start);
    weight += block.weight;
    start = block.end;
  }
  return weight;
}

inline double weigh_listed_fast(const Kept& kept) {
  const char* const values = listed_float_masses(kept.work);
  Floats lanes = {};
  int64_t i = 0;
  for (; i + kLanes <= kept.count; i += kLanes) lanes += load(values + 4 * i);
  float sum = sum_of(lanes);
  for (; i < kept.count; ++i) sum += load_one(values + 4 * i);
  return sum;
}

inline void weigh_floats(Kept& kept) {
  const bool fixed = kept.reduction == kFixed;
  kept.weighed = false;
  if (kept.whole) {
    kept.weight = fixed ? weigh_floats_from<FixedSum>(kept.row, kept.work, kept.law, kept.cut)
                        : weigh_floats_from<FastSum>(kept.row, kept.work, kept.law, kept.cut);
    return;
  }
  list_float_masses(kept);
  kept.weight = fixed ? weigh_listed_fixed(kept) : weigh_listed_fast(kept);
}

inline void weigh(Kept& kept) {
  if (kept.reduction == kExact) {
    weigh_integers(kept);
    kept.weight = weight_of(kept.total);
  } else {
    weigh_floats(kept);
  }
  if (!kept.whole || kept.cut != lowest_key()) return;
  kept.work.whole_scale = kept.law.scale;
  kept.work.whole_weight = kept.weight;
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
