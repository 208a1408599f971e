// Rule 5's top_p under each reduction: what a nucleus must weigh, and the cut where it does. The fixed one adds
// float masses in rule 3's order; integer masses, in any order, find the same cut unless it is a close thing.
#pragma once

#include "sampling/truncate.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// The integer mass that a nucleus must reach, of a kept set of this total.
inline uint64_t nucleus_need(float top_p, uint64_t total) {
  const int64_t share = static_cast<int64_t>(static_cast<double>(top_p) * 0x1p31) - 1024;
  if (share <= 0) return 1;
  const unsigned __int128 product = static_cast<unsigned __int128>(share) * total;
  return static_cast<uint64_t>((product + 0x7FFFFFFF) >> 31);
}

// The float mass that it must reach, and the least integer mass that is as much.
inline double float_need(float top_p, double weight) { return (static_cast<double>(top_p) - 0x1p-21) * weight; }
inline uint64_t as_integer_need(double need) {
  const double units = need * 0x1p40;
  if (!(units > 1 && units < 0x1p63)) return 1;  // not below 2^63: the row has changed since the scan
  const uint64_t whole = static_cast<uint64_t>(units);
  return whole + (static_cast<double>(whole) < units);
}

// Whether a cut by integer masses is that of a float64 sum in rule 3's order. It is if each token down to it
// has a float mass of at least 2^-17, for then the integer mass is 2^40 times that, and if no sum of these,
// all less than `need` and the cut's own mass, has a bit below a float64's last: the sums are exact. Masses
// do not always fall with the logit, but none before the cut is half as large as the cut's.
inline bool sums_are_exact(Law law, uint64_t cut, uint64_t need) {
  const float logit = logit_of(cut);
  const float value = logit >= kLowest ? float_mass_of(law, logit) : 0.0f;
  if (value < 0x1p-16f) return false;
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const int exponent = static_cast<int>(bits >> 23) - 127;
  return need + mass_of(law, logit) <= uint64_t{1} << (69 + exponent < 63 ? 69 + exponent : 63);
}

// Whether it is that cut for another reason: the sum is too far from `need`, there and before it, for rounding
// to matter. `total` is about what the tokens from the cut up weigh, `value` the cut's own mass.
inline bool is_sure(double total, double value, double slack, double need) {
  return total - value + slack < need && need <= total - slack;
}
// How far a float64 sum over `count` tokens can be from the true one in rule 3's order, half a last bit of the
// weight for each, and by lanes and spans, which takes fewer steps; a quarter more is allowed for.
inline double sum_slack(const Kept& kept, int64_t count) {
  return 1.25 * 0x1p-53 * kept.weight * static_cast<double>(count + 4096);
}
inline bool surely_cuts(const Kept& kept, uint64_t cut, uint64_t total, int64_t count, double need) {
  const double slack = 0x1p-41 * static_cast<double>(count) + sum_slack(kept, count);
  return is_sure(weight_of(total), weight_of(mass_of(kept.law, logit_of(cut))), slack, need);
}
// The same by a sum of float masses, for smaller masses than integers can tell apart.
inline bool surely_cuts_whole(const Kept& kept, uint64_t cut, double need) {
  const double total = weigh_floats_from<WideSum>(kept.row, kept.work, kept.law, cut);
  const double value = static_cast<double>(float_mass_of(kept.law, logit_of(cut)));
  return is_sure(total, value, sum_slack(kept, kept.row.vocabulary()), need);
}

// Adds the float masses of sorted keys to a running sum until it reaches `need`; returns that key, or kNoKey.
inline uint64_t first_to_reach(Law law, const uint64_t* keys, int64_t count, double need, double* running) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const Floats values = float_masses_of(law, logits_of(keys + i));
    for (int lane = 0; lane < kLanes && i + lane < count; ++lane) {
      *running += static_cast<double>(values[lane]);
      if (*running >= need) return keys[i + lane];
    }
  }
  return kNoKey;
}

// The cut by such a sum over the listed keys; all stay where it never gets there.
inline uint64_t cut_listed_in_order(const Kept& kept, double need) {
  uint64_t* const sorted = kept.work.masses_left;
  std::memcpy(sorted, kept.work.keys, static_cast<size_t>(kept.count) * sizeof *sorted);
  sort_keys(sorted, kept.work.keys_left, kept.count);
  double running = 0;
  const uint64_t key = first_to_reach(kept.law, sorted, kept.count, need, &running);
  return key == kNoKey ? smallest(sorted, kept.count) : key;
}

// A key down to which all sums are exact. A nucleus that ended there would have passed as exact, so this one
// ends below; the margin is for the rounding of the weight.
inline uint64_t exact_key(const Kept& kept) {
  float exponent = -16;
  for (double most = 0x1p13; most < 1.001 * kept.weight + 2; most *= 2) ++exponent;
  return first_key_of(lowest_logit(kept.law, exponent));
}

// The same over a whole kept set. As far as sums are exact, they are had without an order; from there on as
// many tokens are listed at a time as there is room for.
inline uint64_t cut_whole_in_order(const Kept& kept, double need) {
  const int64_t most = kept.work.room - kBlock;
  uint64_t high = exact_key(kept);
  if (high < kept.cut) return kept.cut;
  double running = weight_of(weigh_from(kept.row, kept.work, kept.law, high));
  const int64_t exact = count_from(kept.row, kept.work.best, high);
  for (int64_t k = exact + most; high > kept.cut; k += most) {
    const uint64_t low = cut_at_count(kept, k).cut;
    const int64_t count = list_between(kept.row, kept.work, low, high);
    if (count <= 0) break;  // the row has changed since the scan
    sort_keys(kept.work.keys, kept.work.keys_left, count);
    const uint64_t key = first_to_reach(kept.law, kept.work.keys, count, need, &running);
    if (key != kNoKey) return key;
    high = low;
  }
  return kept.cut;
}

// ---- the cut that ends a nucleus ------------------------------------------------------------------------

inline Found nucleus_of_whole(Kept& kept, float top_p) {
  weigh(kept);
  if (kept.reduction == kExact) return cut_at_mass(kept, nucleus_need(top_p, kept.total));
  const double need = float_need(top_p, kept.weight);
  const uint64_t integer_need = as_integer_need(need);
  // Near enough: the search only guesses by it.
  kept.total = as_integer_need(kept.weight);
  const Found found = cut_at_mass(kept, integer_need);
  if (kept.reduction == kFast || sums_are_exact(kept.law, found.cut, integer_need)) return found;
  const bool known = found.total > 0;
  if (known && surely_cuts(kept, found.cut, found.total, kept.row.vocabulary(), need)) return found;
  if (known && surely_cuts_whole(kept, found.cut, need)) return found;
  return {cut_whole_in_order(kept, need)};
}

inline uint64_t nucleus_of_listed(Kept& kept, float top_p) {
  weigh(kept);
  if (kept.reduction == kExact) return cut_by_mass(kept, nucleus_need(top_p, kept.total));
  const double need = float_need(top_p, kept.weight);
  const uint64_t integer_need = as_integer_need(need);
  weigh_listed(kept.work, kept.law, kept.count);
  const uint64_t cut = cut_by_mass(kept, integer_need);
  if (kept.reduction == kFast || sums_are_exact(kept.law, cut, integer_need)) return cut;
  const uint64_t total = listed_weight_from(kept, kept.count, cut);
  if (cut > 0 && surely_cuts(kept, cut, total, kept.count, need)) return cut;
  return cut_listed_in_order(kept, need);
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
