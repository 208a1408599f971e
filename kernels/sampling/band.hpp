// Section 5's BAND op: the tokens whose exponent y is nearest to its mean c. It can drop the top token, so its result
// is always listed.
#pragma once

#include "sampling/kept_sums.hpp"
#include "sampling/nucleus.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

inline Floats distances(Scaling scaling, float center, const uint64_t* keys) {
  const Floats difference = exponent2(scaling, logits_of(keys)) - center;
  return (Floats)((Uints)difference & 0x7FFFFFFFu);
}

// Lists at least the tokens within the distance that BAND will find; false where they do not fit.
//
// The tokens down to a nucleus, and the first min_keep, reach what BAND needs, so its distance is at most that of
// the first or the last of them. A relative 2^-20 more covers the rounding of distances.
inline bool list_near(KeptSet& kept, float center, uint64_t need) {
  if (!kept.in_place) return true;
  uint64_t last = cut_at_mass(kept, need).cut;
  if (kept.min_keep > 1) {
    const uint64_t least = cut_at_count(kept, kept.min_keep).cut;
    last = least < last ? least : last;
  }
  const double first_distance = -static_cast<double>(center);
  const double last_distance = static_cast<double>(center) - exponent2(kept.scaling, logit_of(last));
  const double farthest = first_distance > last_distance ? first_distance : last_distance;
  const float lowest = static_cast<float>(center - farthest * (1 + 0x1p-20));
  const uint64_t from = lowest_key_of(lowest_logit(kept.scaling, lowest));
  list_from(kept, from > kept.cut ? from : kept.cut);
  return !kept.in_place;
}

// The least distance within which the listed tokens weigh `need`: masses, or 1 a token.
inline float distance_reaching(const KeptSet& kept, float center, uint64_t need, bool by_mass) {
  uint64_t* const keys = kept.work.scratch_keys;  // nearest first; distinct, as select_cut requires
  for (int64_t i = 0; i < kept.count; i += kLanes) {
    const Uints nearness = ~(Uints)distances(kept.scaling, center, kept.work.keys + i);
    for (int lane = 0; lane < kLanes; ++lane) {
      keys[i + lane] = uint64_t{nearness[lane]} << 32 | static_cast<uint32_t>(i + lane);
    }
  }
  const KeyMasses candidates = {keys, by_mass ? kept.work.masses : nullptr};
  const uint64_t cut = select_cut(candidates, kept.count, need, scratch(kept, by_mass));
  const uint32_t bits = ~static_cast<uint32_t>(cut >> 32);
  float distance;
  std::memcpy(&distance, &bits, sizeof distance);
  return distance;
}

// Keeps the listed tokens within a distance; m is taken from them.
inline void keep_within(KeptSet& kept, float center, float distance) {
  uint64_t* const keys = kept.work.keys;
  int64_t moved = 0;
  uint64_t highest = 0;
  for (int64_t i = 0; i < kept.count; i += kLanes) {
    const uint32_t near = at_least(fill(distance), distances(kept.scaling, center, keys + i));
    for (int64_t lane = 0; lane < kLanes && i + lane < kept.count; ++lane) {
      const uint64_t key = keys[i + lane];
      const bool is_near = near >> lane & 1;
      keys[moved] = key;
      moved += is_near;
      highest = is_near && key > highest ? key : highest;
    }
  }
  kept.count = moved;
  kept.highest = highest;
  kept.scaling.top = logit_of(highest);
  kept.has_masses = false;
}

// False where the workspace is too small.
__attribute__((noinline)) bool filter_band(KeptSet& kept, float share) {
  if (share >= 1.0f) return true;
  compute_integer_masses(kept);
  const uint64_t need = nucleus_target(share, kept.total);
  const float center = mean_exponent2(kept, kept.total);
  if (!list_near(kept, center, need)) return false;
  compute_integer_masses(kept);
  float distance = distance_reaching(kept, center, need, true);
  if (kept.min_keep > 1) {
    const int64_t least = kept.min_keep < kept.count ? kept.min_keep : kept.count;
    const float far = distance_reaching(kept, center, static_cast<uint64_t>(least), false);
    distance = far > distance ? far : distance;
  }
  keep_within(kept, center, distance);
  return true;
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
