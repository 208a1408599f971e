// Cuts through rule 3's order: what a row's lanes compare with, and where a cut lies among listed keys.
#pragma once

#include "math/sort_key.hpp"
#include "sampling/row.hpp"
#include "math/key_arrays.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// What to compare unread logits with, so that the answer is that of their read values with a read `bound`:
// all denormals are read as 0.
inline float unread_bound(float bound) {
  return bound == 0.0f ? from_ordered(ordered(-kSmallestNormal) + 1) : bound;
}

// The lowest read logit above this one.
inline float next_above(float logit) {
  const float next = from_ordered(ordered(logit) + 1);
  if (read(next) == next) return next;
  return next > 0 ? kSmallestNormal : 0.0f;
}

// The lowest key of this logit: that of the last token that could have it.
inline uint64_t first_key_of(float logit) { return key_of(logit, -1); }
// The key that all tokens above -inf reach.
inline uint64_t lowest_key() { return first_key_of(kLowest); }
// A key that no token reaches.
inline uint64_t key_above(float top) { return first_key_of(next_above(top)); }

// The tokens whose key reaches `key`, as vectors of unread logits see them.
class Cut {
 public:
  explicit Cut(uint64_t key)
      : bound_(unread_bound(logit_of(key))),
        bound_past_(unread_bound(next_above(logit_of(key)))),
        last_(token_of(key)) {}

  // Must the tokens of the block that starts here reach different logits?
  bool splits(int64_t first) const { return first <= last_ && last_ < first + kBlock - 1; }
  // What the logits of a vector that starts at this token must reach.
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

// ---- among listed keys: the largest key so that it and all larger ones weigh at least `need` ---------

constexpr int64_t kFew = 64;

inline uint64_t cut_among_few(Weighed candidates, int64_t count, uint64_t need) {
  uint64_t cut = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t key = candidates.keys[i];
    const uint64_t weight = weight_from(candidates.keys, candidates.masses, count, key);
    cut = weight >= need && key > cut ? key : cut;
  }
  return cut;
}

// The median of nine keys that lie apart.
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

// A pivot that halves the range of the keys, for rows that fool the nine.
inline uint64_t middle_of_range(const uint64_t* keys, int64_t count) {
  uint64_t low = keys[0];
  uint64_t high = keys[0];
  for (int64_t i = 1; i < count; ++i) {
    low = keys[i] < low ? keys[i] : low;
    high = keys[i] > high ? keys[i] : high;
  }
  return low + (high - low) / 2 + 1;
}

// Quickselect by weight: halves the candidates by a pivot until few are left; `scratch` holds what is left of
// them. All of them together must weigh at least `need`, and `need` at least 1.
inline uint64_t cut_among(Weighed candidates, int64_t count, uint64_t need, Weighed scratch) {
  bool fooled = false;
  while (count > kFew) {
    const uint64_t pivot = fooled ? middle_of_range(candidates.keys, count)
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
    fooled = count > before - before / 8;
  }
  return cut_among_few(candidates, count, need);
}

// ---- order: only for what is listed to a caller ---------------------------------------------------------

// Sorts keys, which come in ascending token, into rule 3's order; `scratch` has room for as many. A radix sort
// by digits of the logit from the last to the first, each pass stable, so equal logits stay in ascending
// token.
inline void sort_keys(uint64_t* keys, uint64_t* scratch, int64_t count) {
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
