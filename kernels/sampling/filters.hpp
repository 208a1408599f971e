// Rule 5: top_k, top_p, min_p. Each keeps the first tokens of rule 3's order, so each is a cut: no token is
// sorted, and the stages may come in any order.
#pragma once

#include "sampling/nucleus.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// ---- the stages ---------------------------------------------------------------------------------------

inline void set_temperature(Kept& kept, double temperature) {
  kept.law.scale = scale_of(temperature);
  kept.weighed = false;
}

// Keeps the first k tokens.
inline void keep_first(Kept& kept, int64_t k) {
  if (k >= kept.row.vocabulary()) return;
  if (!kept.whole) {
    if (kept.count > k) drop_below(kept, cut_by_count(kept, k));
    return;
  }
  cut_to(kept, cut_at_count(kept, k), false);
}

// k may be beyond int64_t: then nothing is cut.
inline void filter_count(Kept& kept, double k) {
  if (k <= 0 || k >= static_cast<double>(kept.row.vocabulary())) return;
  const int64_t count = static_cast<int64_t>(k);
  keep_first(kept, count > kept.min_keep ? count : kept.min_keep);
}

inline void filter_mass(Kept& kept, float share) {
  if (share >= 1.0f) return;
  if (kept.whole) {
    keep_from(kept, nucleus_of_whole(kept, share), true);
  } else {
    filter_below(kept, nucleus_of_listed(kept, share));
  }
}

inline void filter_threshold(Kept& kept, float share) {
  if (share <= 0x1p-60f) return;
  const double y = natural_log(static_cast<double>(share)) * kLog2E - 0x1p-19;
  const uint64_t cut = first_key_of(lowest_logit(kept.law, static_cast<float>(y)));
  if (kept.whole) {
    keep_from(kept, {cut}, false);
  } else {
    filter_below(kept, cut);
  }
}

inline void apply_stages(Kept& kept, const RowParams& params) {
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
  weigh(kept);
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
