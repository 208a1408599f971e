// The cut of a kept set by a count or a mass, and the kept set above a cut.
#pragma once

#include "sampling/threshold_in_place.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// ---- cuts of a kept set in place ------------------------------------------------------------------------

inline uint64_t smallest(const uint64_t* keys, int64_t count) {
  uint64_t key = kNoKey;
  for (int64_t i = 0; i < count; ++i) key = keys[i] < key ? keys[i] : key;
  return key;
}

// Lists at least the first k tokens: all that reach a bound which k tokens reach; or, if those are many more than
// k, the tokens above it and the first k that equal it. Returns their number, or kTooMany.
inline int64_t list_first(const KeptSet& kept, int64_t k) {
  if (k > kept.work.capacity) return kTooMany;
  const float bound = bound_for_count(kept.row, kept.work, k, kept.scaling.top);
  const uint64_t from = lowest_key_of(bound);
  if (from > kept.cut) {
    const int64_t expected = 16 * k + 16 * kBlock;
    const int64_t most = expected < kept.work.capacity ? expected : kept.work.capacity;
    const int64_t count = list_from_logit(kept.row, kept.work, bound, most);
    if (count != kTooMany) return count;
  }
  return list_few_equal(kept.row, kept.work, from > kept.cut ? from : kept.cut, k);
}

// The key of the k-th token, or of the last one if there are fewer.
inline SearchResult cut_at_count(const KeptSet& kept, int64_t k) {
  const int64_t count = list_first(kept, k);
  if (count != kTooMany) {
    const bool fewer = count <= k;
    const uint64_t cut = fewer ? smallest(kept.work.keys, count)
                               : cut_of_listed<false>(kept, count, static_cast<uint64_t>(k));
    return {cut, true, count};
  }
  const uint64_t need = static_cast<uint64_t>(k);
  const uint64_t all = static_cast<uint64_t>(count_kept(kept));
  if (all <= need) return {kept.cut};
  return cut_in_place<false>(kept, need, {kept.cut, key_above(kept.scaling.top), all, 0});
}

// The key of the last token of the nucleus. Most nuclei are small, so the first tokens are tried first.
constexpr int64_t kFirstNucleus = 128;
inline SearchResult cut_at_mass(const KeptSet& kept, uint64_t need) {
  const uint64_t top = key_above(kept.scaling.top);
  Bracket bracket = {kept.cut, top, kept.total, 0};
  if (need <= kFirstNucleus * kTopMass) {
    const int64_t count = list_first(kept, kFirstNucleus);
    if (count != kTooMany) {
      const uint64_t weight = compute_listed_masses(kept.work, kept.scaling, count);
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

// Whether so many tokens are kept that listing them costs more than keeping them in place.
inline bool is_dense(const KeptSet& kept, uint64_t cut) {
  const int64_t blocks = kept.row.blocks();
  return count_at_least({kept.work.block_max, blocks}, logit_of(cut)) > blocks / 4;
}

// Keeps the tokens whose key is at least the cut.
inline void cut_to(KeptSet& kept, const SearchResult& found, bool by_mass) {
  if (found.listed) {
    kept.in_place = false;
    kept.has_masses = by_mass;
    kept.count = found.count;
    drop_below(kept, found.cut);
    return;
  }
  if (found.has_masses) {
    kept.total = found.total;
  } else if (by_mass || found.cut > kept.cut) {
    kept.has_masses = false;  // a search by mass has overwritten them
  }
  if (found.cut <= kept.cut) return;
  kept.cut = found.cut;
  if (!kept.has_masses && !is_dense(kept, kept.cut)) list_kept(kept);
}

// Keeps the tokens whose key is at least a filter's cut, and at least the first min_keep.
inline void keep_from(KeptSet& kept, const SearchResult& found, bool by_mass) {
  if (kept.min_keep <= 1) return cut_to(kept, found, by_mass);
  // Listed keys are now those of this second search.
  const uint64_t least = cut_at_count(kept, kept.min_keep).cut;
  cut_to(kept, {found.cut < least ? found.cut : least}, by_mass);
}

// ---- cuts of a listed kept set --------------------------------------------------------------------------

inline uint64_t cut_by_count(const KeptSet& kept, int64_t k) {
  return select_cut(listed_keys(kept, false), kept.count, static_cast<uint64_t>(k), scratch(kept, false));
}

inline uint64_t cut_by_mass(const KeptSet& kept, uint64_t need) {
  return select_cut(listed_keys(kept, true), kept.count, need, scratch(kept, true));
}

// Drops the tokens below a filter's cut, except the first min_keep.
inline void filter_below(KeptSet& kept, uint64_t cut) {
  if (kept.min_keep > 1) {
    const uint64_t least = kept.count > kept.min_keep ? cut_by_count(kept, kept.min_keep) : 0;
    cut = least < cut ? least : cut;
  }
  drop_below(kept, cut);
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
