// Section 5: the stages in their order. All ops but BAND keep the first tokens of section 3's order, so each is a cut,
// and no token is sorted.
#pragma once

#include "sampling/band.hpp"

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

// ---- thresholds ---------------------------------------------------------------------------------------

constexpr float kNoThreshold = -kInfinity;

// Section 5's a and b.
inline double log2_of(float share) { return natural_log(static_cast<double>(share)) * kLog2E - 0x1p-19; }
inline double log2_of_total(KeptSet& kept) {
  compute_integer_masses(kept);
  return natural_log(static_cast<double>(kept.total)) * kLog2E - 40;
}

// The threshold on y, or kNoThreshold where all are kept.
inline float threshold_of(KeptSet& kept, Op op, float value) {
  if (op == Op::kThresholdOfDeviation) {
    if (value == 0.0f) return kNoThreshold;
    const double distance = static_cast<double>(value) * deviation_of(kept);
    return static_cast<float>(-distance * static_cast<double>(kept.scaling.scale));
  }
  if (value <= 0x1p-60f) return kNoThreshold;
  const double share = log2_of(value);
  if (op == Op::kThresholdOfTotal) return static_cast<float>(share + log2_of_total(kept));
  if (op == Op::kThresholdOfTopShare) return static_cast<float>(share - log2_of_total(kept));
  return static_cast<float>(share);
}

// The lowest key that a threshold keeps; 0 where it keeps all.
inline uint64_t threshold_cut(KeptSet& kept, Op op, float value) {
  constexpr float kHighest = -0x1p-36f;  // keeps all tokens whose logit is m
  const float threshold = threshold_of(kept, op, value);
  if (threshold == kNoThreshold) return 0;
  const float y = threshold < kHighest ? threshold : kHighest;
  const uint64_t cut = lowest_key_of(lowest_logit(kept.scaling, y));
  kept.passing = cut > kept.passing ? cut : kept.passing;
  return cut;
}

inline void filter_threshold(KeptSet& kept, Op op, float value) {
  const uint64_t cut = threshold_cut(kept, op, value);
  if (cut == 0) return;
  if (kept.in_place) {
    keep_from(kept, {cut}, false);
  } else {
    filter_below(kept, cut);
  }
}

// ---- all stages ---------------------------------------------------------------------------------------

// Masses may be missing after it. False where the workspace is too small for BAND.
inline bool apply_stages(KeptSet& kept, const RowParams& params) {
  for (int i = 0; i < kMaxStages && params.ops[i] != Op::kEnd; ++i) {
    const Op op = params.ops[i];
    const double value = params.values[i];
    switch (op) {
      case Op::kScale: set_temperature(kept, value); break;
      case Op::kCount: filter_count(kept, value); break;
      case Op::kMass: filter_mass(kept, static_cast<float>(value)); break;
      case Op::kThreshold:
      case Op::kThresholdOfTotal:
      case Op::kThresholdOfTopShare:
      case Op::kThresholdOfDeviation: filter_threshold(kept, op, static_cast<float>(value)); break;
      case Op::kBand:
        if (!filter_band(kept, static_cast<float>(value))) return false;
        break;
      case Op::kEnd: break;
    }
  }
  return true;
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
