// Rule 5: the stages in their order. Each keeps the first tokens of rule 3's order, so each is a cut, and no token
// is sorted.
#pragma once

#include "sampling/nucleus.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

inline void set_temperature(KeptSet& kept, double temperature) {
  kept.scaling.scale = scale_of(temperature);
  kept.has_masses = false;
}

// Keeps the first k tokens.
inline void keep_first(KeptSet& kept, int64_t k) {
  if (k >= kept.row.vocabulary()) return;
  if (!kept.in_place) {
    if (kept.count > k) drop_below(kept, cut_by_count(kept, k));
    return;
  }
  cut_to(kept, cut_at_count(kept, k), false);
}

// k may exceed int64_t: then all are kept.
inline void filter_count(KeptSet& kept, double k) {
  if (k <= 0 || k >= static_cast<double>(kept.row.vocabulary())) return;
  const int64_t count = static_cast<int64_t>(k);
  keep_first(kept, count > kept.min_keep ? count : kept.min_keep);
}

inline void filter_mass(KeptSet& kept, float share) {
  if (share >= 1.0f) return;
  if (kept.in_place) {
    keep_from(kept, nucleus_in_place(kept, share), true);
  } else {
    filter_below(kept, nucleus_of_listed(kept, share));
  }
}

inline void filter_threshold(KeptSet& kept, float share) {
  if (share <= 0x1p-60f) return;
  const double y = natural_log(static_cast<double>(share)) * kLog2E - 0x1p-19;
  const uint64_t cut = lowest_key_of(lowest_logit(kept.scaling, static_cast<float>(y)));
  if (kept.in_place) {
    keep_from(kept, {cut}, false);
  } else {
    filter_below(kept, cut);
  }
}

inline void apply_stages(KeptSet& kept, const RowParams& params) {
  for (int i = 0; i < kMaxStages && params.ops[i] != Op::kEnd; ++i) {
    const double value = params.values[i];
    switch (params.ops[i]) {
      case Op::kScale: set_temperature(kept, value); break;
      case Op::kCount: filter_count(kept, value); break;
      case Op::kMass: filter_mass(kept, static_cast<float>(value)); break;
      case Op::kThreshold: filter_threshold(kept, static_cast<float>(value)); break;
      case Op::kEnd: break;
    }
  }
  compute_masses(kept);
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
