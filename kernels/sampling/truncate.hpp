// Where a count or a mass cuts a kept set, whole or listed, and what is kept from there.
#pragma once

#include "sampling/threshold_in_place.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

constexpr uint64_t kNoKey = ~uint64_t{0};

// ---- cuts of a whole kept set ---------------------------------------------------------------------------

inline uint64_t smallest(const uint64_t* keys, int64_t count) {
  uint64_t key = kNoKey;
  for (int64_t i = 0; i < count; ++i) key = keys[i] < key ? keys[i] : key;
  return key;
}

// Lists the first k tokens at least: with all tokens down to a bound that k reach, unless they are many more;
// then with all above it, and the first k that equal it. Returns how many, or kTooMany.
inline int64_t list_head(const Kept& kept, int64_t k) {
  if (k > kept.work.room) return kTooMany;
  const float bound = bound_for_count(kept.row, kept.work, k, kept.law.top);
  const uint64_t from = first_key_of(bound);
  if (from > kept.cut) {
    const int64_t expected = 16 * k + 16 * kBlock;
    const int64_t most = expected < kept.work.room ? expected : kept.work.room;
    const int64_t count = list_from_logit(kept.row, kept.work, bound, most);
    if (count != kTooMany) return count;
  }
  return list_few_equal(kept.row, kept.work, from > kept.cut ? from : kept.cut, k);
}

// The key of the k-th token; the lowest one where there are fewer.
inline Found cut_at_count(const Kept& kept, int64_t k) {
  const int64_t count = list_head(kept, k);
  if (count != kTooMany) {
    const bool fewer = count <= k;
    const uint64_t cut = fewer ? smallest(kept.work.keys, count)
                               : cut_of_listed<false>(kept, count, static_cast<uint64_t>(k));
    return {cut, true, count};
  }
  const uint64_t need = static_cast<uint64_t>(k);
  const uint64_t all = static_cast<uint64_t>(count_kept(kept));
  if (all <= need) return {kept.cut};
  return cut_in_place<false>(kept, need, {kept.cut, key_above(kept.law.top), all, 0});
}

// The key that a nucleus of this mass ends with. Most nuclei are small: the first tokens are tried first.
constexpr int64_t kFirstNucleus = 128;
inline Found cut_at_mass(const Kept& kept, uint64_t need) {
  const uint64_t top = key_above(kept.law.top);
  Bracket bracket = {kept.cut, top, kept.total, 0};
  if (need <= kFirstNucleus * kTopMass) {
    const int64_t count = list_head(kept, kFirstNucleus);
    if (count != kTooMany) {
      const uint64_t weight = weigh_listed(kept.work, kept.law, count);
      if (weight >= need) {
        const uint64_t cut = cut_of_listed<true>(kept, count, need);
        return {cut, true, count, false, listed_weight_from(kept, count, cut)};
      }
      bracket.high = smallest(kept.work.keys, count);
      bracket.above = weight;
    }
  }
  return cut_in_place<true>(kept, need, bracket);
}

// Many tokens are dearer to list than to leave in place.
inline bool is_dense(const Kept& kept, uint64_t cut) {
  const int64_t blocks = kept.row.blocks();
  return count_at_least({kept.work.best, blocks}, logit_of(cut)) > blocks / 4;
}

// Keeps the tokens from a cut up.
inline void cut_to(Kept& kept, const Found& found, bool by_mass) {
  if (found.listed) {
    kept.whole = false;
    kept.weighed = by_mass;
    kept.count = found.count;
    drop_below(kept, found.cut);
    return;
  }
  if (found.weighed) {
    kept.total = found.total;
  } else if (by_mass || found.cut > kept.cut) {
    kept.weighed = false;  // a search by mass has left the masses of other cuts
  }
  if (found.cut <= kept.cut) return;
  kept.cut = found.cut;
  if (!kept.weighed && !is_dense(kept, kept.cut)) list_kept(kept);
}

// Keeps the tokens from a filter's cut up, but at least the first min_keep of those there were.
inline void keep_from(Kept& kept, const Found& found, bool by_mass) {
  if (kept.min_keep <= 1) return cut_to(kept, found, by_mass);
  // Its search lists other keys.
  const uint64_t least = cut_at_count(kept, kept.min_keep).cut;
  cut_to(kept, {found.cut < least ? found.cut : least}, by_mass);
}

// ---- cuts of candidates ---------------------------------------------------------------------------------

inline uint64_t cut_by_count(const Kept& kept, int64_t k) {
  return cut_among(candidates(kept, false), kept.count, static_cast<uint64_t>(k), scratch(kept, false));
}

inline uint64_t cut_by_mass(const Kept& kept, uint64_t need) {
  return cut_among(candidates(kept, true), kept.count, need, scratch(kept, true));
}

// Drops what is below a filter's cut, but never the first min_keep candidates.
inline void filter_below(Kept& kept, uint64_t cut) {
  if (kept.min_keep > 1) {
    const uint64_t least = kept.count > kept.min_keep ? cut_by_count(kept, kept.min_keep) : 0;
    cut = least < cut ? least : cut;
  }
  drop_below(kept, cut);
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
