// Section 5's MASS op in each reduction: the mass that the nucleus must reach, and the cut where it does. The
// reduction fixed adds float masses in section 3's order; a search by integer masses finds the same cut unless the
// sum is very close to the target there.
#pragma once

#include "sampling/truncate.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// ceil(P W / 2^31): the integer mass that a nucleus must reach.
inline uint64_t nucleus_target(float top_p, uint64_t total) {
  const int64_t share = static_cast<int64_t>(static_cast<double>(top_p) * 0x1p31) - 1024;
  if (share <= 0) return 1;
  const unsigned __int128 product = static_cast<unsigned __int128>(share) * total;
  return static_cast<uint64_t>((product + 0x7FFFFFFF) >> 31);
}

// The float mass that it must reach in the other reductions, and the least integer mass that is as large.
inline double float_nucleus_target(float top_p, double total) {
  return (static_cast<double>(top_p) - 0x1p-21) * total;
}
inline uint64_t as_integer_target(double need) {
  const double units = need * 0x1p40;
  if (!(units > 1 && units < 0x1p63)) return 1;  // not below 2^63: the row has changed since the scan
  const uint64_t floor = static_cast<uint64_t>(units);
  return floor + (static_cast<double>(floor) < units);
}

// Whether float64 sums in section 3's order are exact down to the cut, and so give the cut that integer masses give.
// They are if each token has a float mass of at least 2^-17, since the integer mass is then 2^40 times that, and
// if float64 can represent their sums, all below `need` plus the cut's own mass. Masses can rise where logits
// fall, but none before the cut is less than half the cut's.
inline bool sums_are_exact(Scaling scaling, uint64_t cut, uint64_t need) {
  const float logit = logit_of(cut);
  const float value = logit >= kLowest ? float_mass_of(scaling, logit) : 0.0f;
  if (value < 0x1p-16f) return false;
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const int exponent = static_cast<int>(bits >> 23) - 127;
  return need + mass_of(scaling, logit) <= uint64_t{1} << (69 + exponent < 63 ? 69 + exponent : 63);
}

// Whether the sums at the cut and before it are too far from `need` for rounding to matter. `total` approximates
// the mass of the tokens down to the cut, `value` is the cut's own mass.
inline bool is_certain(double total, double value, double slack, double need) {
  return total - value + slack < need && need <= total - slack;
}
// A bound on the rounding error of a float64 sum over `count` tokens: half a unit in the last place of the total
// for each in section 3's order, fewer by lanes and spans; and a quarter more.
inline double sum_slack(const KeptSet& kept, int64_t count) {
  return 1.25 * 0x1p-53 * kept.float_total * static_cast<double>(count + 4096);
}
inline bool certainly_cuts(const KeptSet& kept, uint64_t cut, uint64_t total, int64_t count, double need) {
  const double slack = 0x1p-41 * static_cast<double>(count) + sum_slack(kept, count);
  return is_certain(to_float_mass(total), to_float_mass(mass_of(kept.scaling, logit_of(cut))), slack, need);
}
// The same with a sum of float masses, where masses are too small for integers.
inline bool certainly_cuts_in_place(const KeptSet& kept, uint64_t cut, double need) {
  const double total = float_mass_from<WideSum>(kept.row, kept.work, kept.scaling, cut);
  const double value = static_cast<double>(float_mass_of(kept.scaling, logit_of(cut)));
  return is_certain(total, value, sum_slack(kept, kept.row.vocabulary()), need);
}

// Adds the float masses of sorted keys to a running sum until it reaches `need`; returns that key, or kNoKey.
inline uint64_t first_to_reach(Scaling scaling, const uint64_t* keys, int64_t count, double need,
                               double* running) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const Floats values = float_masses_of(scaling, logits_of(keys + i));
    for (int lane = 0; lane < kLanes && i + lane < count; ++lane) {
      *running += static_cast<double>(values[lane]);
      if (*running >= need) return keys[i + lane];
    }
  }
  return kNoKey;
}

// The cut by such a sum over the listed keys; the lowest key if it never reaches `need`.
inline uint64_t cut_listed_in_order(const KeptSet& kept, double need) {
  uint64_t* const sorted = kept.work.scratch_masses;
  std::memcpy(sorted, kept.work.keys, static_cast<size_t>(kept.count) * sizeof *sorted);
  radix_sort(sorted, kept.work.scratch_keys, kept.count);
  double running = 0;
  const uint64_t key = first_to_reach(kept.scaling, sorted, kept.count, need, &running);
  return key == kNoKey ? smallest(sorted, kept.count) : key;
}

// A key down to which all sums are exact. sums_are_exact would have accepted a nucleus that ends there, so this one
// ends lower; the margin allows for the rounding of the total.
inline uint64_t exact_key(const KeptSet& kept) {
  float exponent = -16;
  for (double most = 0x1p13; most < 1.001 * kept.float_total + 2; most *= 2) ++exponent;
  return lowest_key_of(lowest_logit(kept.scaling, exponent));
}

// The cut by such a sum over a kept set in place. The exact part of the sum needs no order; below it, tokens are
// listed and sorted as many at a time as fit.
inline uint64_t cut_in_place_in_order(const KeptSet& kept, double need) {
  const int64_t most = kept.work.capacity - kBlock;
  uint64_t high = exact_key(kept);
  if (high < kept.cut) return kept.cut;
  double running = to_float_mass(mass_from(kept.row, kept.work, kept.scaling, high));
  const int64_t exact = count_from(kept.row, kept.work.block_max, high);
  for (int64_t k = exact + most; high > kept.cut; k += most) {
    const uint64_t low = cut_at_count(kept, k).cut;
    const int64_t count = list_between(kept.row, kept.work, low, high);
    if (count <= 0) break;  // the row has changed since the scan
    radix_sort(kept.work.keys, kept.work.scratch_keys, count);
    const uint64_t key = first_to_reach(kept.scaling, kept.work.keys, count, need, &running);
    if (key != kNoKey) return key;
    high = low;
  }
  return kept.cut;
}

// ---- the last token of the nucleus ----------------------------------------------------------------------

inline SearchResult nucleus_in_place(KeptSet& kept, float top_p) {
  compute_masses(kept);
  if (kept.reduction == kExact) return cut_at_mass(kept, nucleus_target(top_p, kept.total));
  const double need = float_nucleus_target(top_p, kept.float_total);
  const uint64_t integer_target = as_integer_target(need);
  // An approximation: the search uses it only to guess.
  kept.total = as_integer_target(kept.float_total);
  const SearchResult found = cut_at_mass(kept, integer_target);
  if (kept.reduction == kFast || sums_are_exact(kept.scaling, found.cut, integer_target)) return found;
  const bool known = found.total > 0;
  if (known && certainly_cuts(kept, found.cut, found.total, kept.row.vocabulary(), need)) return found;
  if (known && certainly_cuts_in_place(kept, found.cut, need)) return found;
  return {cut_in_place_in_order(kept, need)};
}

inline uint64_t nucleus_of_listed(KeptSet& kept, float top_p) {
  compute_masses(kept);
  if (kept.reduction == kExact) return cut_by_mass(kept, nucleus_target(top_p, kept.total));
  const double need = float_nucleus_target(top_p, kept.float_total);
  const uint64_t integer_target = as_integer_target(need);
  compute_listed_masses(kept.work, kept.scaling, kept.count);
  const uint64_t cut = cut_by_mass(kept, integer_target);
  if (kept.reduction == kFast || sums_are_exact(kept.scaling, cut, integer_target)) return cut;
  const uint64_t total = listed_weight_from(kept, kept.count, cut);
  if (cut > 0 && certainly_cuts(kept, cut, total, kept.count, need)) return cut;
  return cut_listed_in_order(kept, need);
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
