// A cut is the sort key from which tokens are kept. How vectors of logits compare with a cut, and how to find one
// among listed keys.
#pragma once

#include "math/ordinal.hpp"
#include "sampling/row.hpp"
#include "math/key_arrays.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// The number with which unread logits compare as their read values do with a read `bound`: every denormal is read
// as 0.
inline float unread_bound(float bound) {
  return bound == 0.0f ? from_ordinal(ordinal(-kSmallestNormal) + 1) : bound;
}

// The lowest read logit above this one.
inline float next_above(float logit) {
  const float next = from_ordinal(ordinal(logit) + 1);
  if (read(next) == next) return next;
  return next > 0 ? kSmallestNormal : 0.0f;
}

// Larger than every key.
constexpr uint64_t kNoKey = ~uint64_t{0};

// The lowest key of this logit: that of the last possible token.
inline uint64_t lowest_key_of(float logit) { return sort_key(logit, -1); }
// All tokens above -inf have this key or a larger one.
inline uint64_t lowest_key() { return lowest_key_of(kLowest); }
// No token has so large a key.
inline uint64_t key_above(float top) { return lowest_key_of(next_above(top)); }

// Compares vectors of unread logits with a key: the tokens with that key or a larger one have a logit of at least
// bound_at().
class Cut {
 public:
  explicit Cut(uint64_t key)
      : bound_(unread_bound(logit_of(key))),
        bound_past_(unread_bound(next_above(logit_of(key)))),
        last_(token_of(key)) {}

  // Do bounds differ between the tokens of the block that starts here?
  bool splits(int64_t first) const { return first <= last_ && last_ < first + kBlock - 1; }
  // The bounds of a vector of logits that starts at this token.
  Floats bound_at(int64_t first) const {
    if (first > last_) return fill(bound_past_);
    return first + kLanes - 1 <= last_ ? fill(bound_) : mixed(first);
  }

 private:
  __attribute__((noinline)) Floats mixed(int64_t first) const {
    Floats bounds = fill(bound_past_);
    for (int64_t lane = 0; first + lane <= last_; ++lane) bounds[lane] = bound_;
    return bounds;
  }

  float bound_;
  float bound_past_;  // of the tokens past `last_`
  int64_t last_;
};

// ---- among listed keys: the largest cut with a weight of at least `need` -------------------------------

constexpr int64_t kFew = 64;

inline uint64_t select_cut_few(KeyMasses candidates, int64_t count, uint64_t need) {
  uint64_t cut = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t key = candidates.keys[i];
    const uint64_t weight = weight_from(candidates.keys, candidates.masses, count, key);
    cut = weight >= need && key > cut ? key : cut;
  }
  return cut;
}

// The median of nine evenly spaced keys.
inline uint64_t median_of_nine(const uint64_t* keys, int64_t count) {
  constexpr int kNine = 9;
  uint64_t keys_apart[kNine];
  for (int i = 0; i < kNine; ++i) {
    const uint64_t key = keys[count * (2 * i + 1) / (2 * kNine)];
    int at = i;
    for (; at > 0 && keys_apart[at - 1] > key; --at) keys_apart[at] = keys_apart[at - 1];
    keys_apart[at] = key;
  }
  return keys_apart[kNine / 2];
}

// A pivot that halves the range of the keys, for when such medians fail.
inline uint64_t middle_of_range(const uint64_t* keys, int64_t count) {
  uint64_t low = keys[0];
  uint64_t high = keys[0];
  for (int64_t i = 1; i < count; ++i) {
    low = keys[i] < low ? keys[i] : low;
    high = keys[i] > high ? keys[i] : high;
  }
  return low + (high - low) / 2 + 1;
}

// Quickselect by weight: a pivot splits the candidates until few are left, which `scratch` holds. The weight of
// all of them must be at least `need`, and `need` at least 1.
inline uint64_t select_cut(KeyMasses candidates, int64_t count, uint64_t need, KeyMasses scratch) {
  bool pivot_failed = false;
  while (count > kFew) {
    const uint64_t pivot = pivot_failed ? middle_of_range(candidates.keys, count)
                                        : median_of_nine(candidates.keys, count);
    const uint64_t weight = weight_from(candidates.keys, candidates.masses, count, pivot);
    const int64_t before = count;
    if (weight >= need) {
      count = move_side<true>(candidates, count, pivot, scratch);
    } else {
      count = move_side<false>(candidates, count, pivot, scratch);
      need -= weight;
    }
    candidates = scratch;
    pivot_failed = count > before - before / 8;
  }
  return select_cut_few(candidates, count, need);
}

// ---- order: only for keys that are returned to a caller -------------------------------------------------

// Sorts keys in ascending token into section 3's order; `scratch` is as long. A radix sort by digits of the logit,
// the lowest first; each pass is stable, so equal logits stay in ascending token.
inline void radix_sort(uint64_t* keys, uint64_t* scratch, int64_t count) {
  constexpr int kDigits = 256;
  for (int shift = 32; shift < 64; shift += 8) {
    int64_t start[kDigits + 1] = {};
    for (int64_t i = 0; i < count; ++i) ++start[(~keys[i] >> shift & 255) + 1];
    for (int digit = 0; digit < kDigits; ++digit) start[digit + 1] += start[digit];
    for (int64_t i = 0; i < count; ++i) scratch[start[~keys[i] >> shift & 255]++] = keys[i];
    uint64_t* swap = keys;
    keys = scratch;
    scratch = swap;
  }
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
