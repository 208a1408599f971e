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

inline void filter_top_k(Kept& kept, int64_t k) {
  if (k > 0) keep_first(kept, k > kept.min_keep ? k : kept.min_keep);
}

inline void filter_top_p(Kept& kept, float top_p) {
  if (top_p >= 1.0f) return;
  if (kept.whole) {
    keep_from(kept, nucleus_of_whole(kept, top_p), true);
  } else {
    filter_below(kept, nucleus_of_listed(kept, top_p));
  }
}

inline void filter_min_p(Kept& kept, float min_p) {
  if (min_p <= 0x1p-60f) return;
  const double y = natural_log(static_cast<double>(min_p)) * kLog2E - 0x1p-19;
  const uint64_t cut = first_key_of(lowest_logit(kept.law, static_cast<float>(y)));
  if (kept.whole) {
    keep_from(kept, {cut}, false);
  } else {
    filter_below(kept, cut);
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
