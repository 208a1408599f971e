// Who may be kept, found without sorting the row: the best logit of each block bounds the search, only
// blocks that pass are opened, and a cut is found among the candidates by their keys.
#pragma once

#include "keys.hpp"
#include "rows.hpp"
#include "words.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// What to compare unread logits with, so that the answer is that of their read values with a read `bound`:
// all denormals are read as 0.
inline float unread_bound(float bound) {
  return bound == 0.0f ? from_ordered(ordered(-kSmallestNormal) + 1) : bound;
}

inline bool holds_invalid(const Row& row) {
  for (int64_t b = 0; b < row.blocks(); ++b) {
    const char* block = row.block(b);
    for (int64_t i = 0; i < kBlock; ++i) {
      uint32_t bits;
      std::memcpy(&bits, block + 4 * i, sizeof bits);
      if (bits == 0x7F800000u || (bits & 0x7FFFFFFFu) > 0x7F800000u) return true;
    }
  }
  return false;
}

inline bool all_finite(Floats sum) {
  bool finite = true;
  for (int lane = 0; lane < kLanes; ++lane) finite &= sum[lane] - sum[lane] == 0.0f;
  return finite;
}

// Writes each block's best logit (and, if asked, that of each of its lanes) and the row's top logit. One
// pass, the only one over all of a row for most settings. Sums betray NaN: they stay NaN once they are.
// They also become NaN where large finite logits overflow, so a suspicion is looked into. A finite sum
// shows that no logit was -inf.
template <bool kLaneBests>
inline Status scan(const Row& row, Workspace& work, float* top) {
  constexpr int kVectors = static_cast<int>(kBlock) / kLanes;
  Floats row_best = fill(-kInfinity);
  Floats sums[2] = {};
  work.is_finite = false;
  for (int64_t b = 0; b < row.blocks(); ++b) {
    if (b == row.full_blocks()) work.is_finite = all_finite(sums[0] + sums[1]);
    row.prefetch(b);
    const char* block = row.block(b);
    Floats bests[2] = {fill(-kInfinity), fill(-kInfinity)};
    for (int i = 0; i < kVectors; i += 2) {
      for (int j = 0; j < 2; ++j) {
        const Floats logits = load(block + 4 * kLanes * (i + j));
        bests[j] = larger(bests[j], logits);
        sums[j] += logits;
      }
    }
    const Floats block_best = larger(bests[0], bests[1]);
    row_best = larger(row_best, block_best);
    work.best[b] = read(largest(block_best));
    if (kLaneBests) std::memcpy(work.lane_best + b * kLanes, &block_best, sizeof block_best);
  }
  for (int64_t i = 0; i < kPadding; ++i) work.best[row.blocks() + i] = -kInfinity;
  work.has_lane_bests = kLaneBests;
  *top = read(largest(row_best));
  const Floats sum = sums[0] + sums[1];
  work.is_finite |= all_finite(sum);
  bool suspicious = *top == kInfinity;
  for (int lane = 0; lane < kLanes; ++lane) suspicious |= sum[lane] != sum[lane];
  if (suspicious && holds_invalid(row)) return kInvalid;
  return *top == -kInfinity ? kEmpty : kOk;
}

// A row that another thread writes during the call may give any token, but never one outside itself.
inline int64_t inside(const Row& row, int64_t token) {
  return token >= 0 && token < row.vocabulary() ? token : row.vocabulary() - 1;
}

// The first token whose logit is the top one.
inline int64_t first_token(const Row& row, const float* best, float top) {
  int64_t b = 0;
  while (best[b] != top) ++b;
  const char* block = row.block(b);
  const Floats bound = fill(unread_bound(top));
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    const uint32_t found = at_least(load(block + 4 * i), bound);
    if (found) return inside(row, b * kBlock + i + __builtin_ctz(found));
  }
  return b * kBlock;  // the row has changed since the scan
}

inline int64_t count_at_least(const float* bests, int64_t length, float bound) {
  Ints count = {};
  for (int64_t i = 0; i < length; i += kLanes) count -= load(bests + i) >= bound;
  return sum_of(count);
}

// Groups of tokens whose bests are known: all blocks, or all lanes of all blocks. Blocks are enough for a
// small k; for a large one their bests say too little.
struct Groups {
  const float* bests;  // with room for whole vectors, -inf past the last
  int64_t count;
};
inline bool needs_lane_bests(int64_t k, int64_t blocks) { return k > blocks / 4; }
inline Groups groups_for(const Row& row, const Workspace& work, int64_t k) {
  if (work.has_lane_bests && needs_lane_bests(k, row.blocks())) {
    return {work.lane_best, row.blocks() * kLanes};
  }
  return {work.best, row.blocks()};
}

// The logits between which a bound is searched: `low` is reached often enough, `high` is not.
struct Range {
  uint32_t low;
  uint32_t high;

  bool is_open() const { return high - low > 1; }
  // Halves the values at first, which finds a row's bulk in few steps, then the floats between them,
  // which ends at neighbours whatever the values are.
  uint32_t middle(int round) const {
    constexpr int kByValue = 12;
    const uint32_t halfway = low + (high - low) / 2;
    if (round >= kByValue) return halfway;
    const uint32_t by_value = ordered(from_ordered(low) / 2 + from_ordered(high - 1) / 2);
    return by_value > low && by_value < high ? by_value : halfway;
  }
};

// A logit that at least `k` tokens of the row reach, and few more: k groups whose best reaches it hold k
// such tokens. The lowest finite one, if the groups cannot tell. Fewer than k are known to exceed `top`.
inline float bound_for_count(const Row& row, const Workspace& work, int64_t k, float top) {
  const Groups groups = groups_for(row, work, k);
  if (k > groups.count) return kLowest;
  const int64_t enough = k + k / 8;
  Range range = {ordered(kLowest), ordered(top) + 1};
  for (float step = 1.0f; step <= -kLowest; step *= 2) {
    const uint32_t lower = ordered(top - step);
    if (lower <= range.low) break;
    const int64_t count = count_at_least(groups.bests, groups.count, from_ordered(lower));
    if (count >= k) {
      range.low = lower;
      break;
    }
    range.high = lower;
  }
  for (int round = 0; range.is_open(); ++round) {
    const uint32_t middle = range.middle(round);
    const int64_t count = count_at_least(groups.bests, groups.count, from_ordered(middle));
    if (count < k) {
      range.high = middle;
    } else {
      range.low = middle;
      if (count <= enough) break;
    }
  }
  return read(from_ordered(range.low));
}

// The lowest read logit above this one.
inline float next_above(float logit) {
  const float next = from_ordered(ordered(logit) + 1);
  if (read(next) == next) return next;
  return next > 0 ? kSmallestNormal : 0.0f;
}

// Appends the keys of the lanes whose bit is set, `first` being the token of the first lane. Up to a whole
// vector of words past them is overwritten.
inline int64_t append_keys(Floats logits, uint32_t found, int64_t first, uint64_t* keys) {
  Ints bits = (Ints)logits;
  bits = (bits & 0x7F800000) == 0 ? Ints{} : bits;
  const Ints order = bits ^ ((bits >> 31) | static_cast<int32_t>(0x80000000));
#if FASTSAMPLE_LANES == 16
  const Ints lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Ints tokens = ~(lanes + static_cast<int32_t>(first));
  const __mmask16 mask = static_cast<__mmask16>(found);
  const __m512i high = _mm512_maskz_compress_epi32(mask, (__m512i)order);
  const __m512i low = _mm512_maskz_compress_epi32(mask, (__m512i)tokens);
  // Words are pairs: the low half first.
  const __m512i even = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i odd =
      _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8);
  _mm512_storeu_si512(keys, _mm512_permutex2var_epi32(low, even, high));
  _mm512_storeu_si512(keys + 8, _mm512_permutex2var_epi32(low, odd, high));
#else
  int64_t count = 0;
  for (uint32_t rest = found; rest; rest &= rest - 1) {
    const int lane = __builtin_ctz(rest);
    keys[count++] = uint64_t{static_cast<uint32_t>(order[lane])} << 32 |
                    static_cast<uint32_t>(~(first + lane));
  }
#endif
  return __builtin_popcount(found);
}

// Of the lanes in `equal`, the first `most`.
inline uint32_t first_bits(uint32_t equal, int64_t most) {
  uint32_t kept = 0;
  for (; most > 0 && equal; --most, equal &= equal - 1) kept |= equal & -equal;
  return kept;
}

constexpr int64_t kAll = INT64_MAX;

// The blocks whose best logit reaches `bound`, in ascending order. All of them are asked for at once: each
// may be in the third-level cache again.
inline int64_t blocks_from(const Row& row, const float* best, float bound, uint32_t* blocks) {
  int64_t count = 0;
  for (int64_t b = 0; b < row.blocks(); ++b) {
    blocks[count] = static_cast<uint32_t>(b);
    count += best[b] >= bound;
  }
  for (int64_t i = 0; i < count; ++i) row.prefetch_block(blocks[i]);
  return count;
}

// The keys of the tokens whose logit reaches `bound` (finite), in ascending token; of those that equal it
// only the first `most_equal`. `keys` has room for a whole vector more.
inline int64_t collect(const Row& row, const Workspace& work, float bound, int64_t most_equal,
                       uint64_t* keys) {
  const Floats bounds = fill(unread_bound(bound));
  const Floats above = fill(unread_bound(next_above(bound)));
  const int64_t blocks = blocks_from(row, work.best, bound, work.blocks);
  int64_t count = 0;
  for (int64_t n = 0; n < blocks; ++n) {
    const int64_t b = work.blocks[n];
    if (most_equal <= 0 && work.best[b] <= bound) continue;
    const char* block = row.block(b);
    for (int64_t i = 0; i < kBlock; i += kLanes) {
      const Floats logits = load(block + 4 * i);
      uint32_t found = at_least(logits, bounds);
      if (!found) continue;
      if (most_equal != kAll) {
        const uint32_t larger = at_least(logits, above);
        const uint32_t equal = first_bits(found & ~larger, most_equal);
        most_equal -= __builtin_popcount(equal);
        found = larger | equal;
      }
      count += append_keys(logits, found, b * kBlock + i, keys + count);
    }
  }
  return count;
}

// ---- the cut: the largest key so that it and all larger ones weigh at least `need` -------------------

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
inline uint64_t sample_median(const uint64_t* keys, int64_t count) {
  constexpr int kSamples = 9;
  uint64_t samples[kSamples];
  for (int i = 0; i < kSamples; ++i) {
    const uint64_t key = keys[count * (2 * i + 1) / (2 * kSamples)];
    int at = i;
    for (; at > 0 && samples[at - 1] > key; --at) samples[at] = samples[at - 1];
    samples[at] = key;
  }
  return samples[kSamples / 2];
}

// A pivot that halves the range of the keys, for rows that fool the samples.
inline uint64_t middle_of_range(const uint64_t* keys, int64_t count) {
  uint64_t low = keys[0];
  uint64_t high = keys[0];
  for (int64_t i = 1; i < count; ++i) {
    low = keys[i] < low ? keys[i] : low;
    high = keys[i] > high ? keys[i] : high;
  }
  return low + (high - low) / 2 + 1;
}

// Halves the candidates by a pivot until few are left; `scratch` holds what is left of them. All of them
// together must weigh at least `need`, and `need` at least 1.
inline uint64_t cut_among(Weighed candidates, int64_t count, uint64_t need, Weighed scratch) {
  bool fooled = false;
  while (count > kFew) {
    const uint64_t pivot =
        fooled ? middle_of_range(candidates.keys, count) : sample_median(candidates.keys, count);
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

// Sorts keys, which come in ascending token, into rule 3's order; `scratch` has room for as many. By digits
// of the logit from the last to the first, each pass stable, so equal logits stay in ascending token.
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

// How many tokens come before this one in rule 3's order.
inline int64_t count_before(const Row& row, const float* best, uint64_t key) {
  const float logit = logit_of(key);
  const int64_t token = token_of(key);
  const Floats above = fill(unread_bound(next_above(logit)));
  const Floats equal = fill(unread_bound(logit));
  int64_t count = 0;
  for (int64_t b = 0; b < row.blocks(); ++b) {
    if (best[b] < logit) continue;
    const char* block = row.block(b);
    for (int64_t i = 0; i < kBlock; i += kLanes) {
      const Floats logits = load(block + 4 * i);
      const int64_t first = b * kBlock + i;
      uint32_t before = at_least(logits, above);
      if (first < token) {
        const uint32_t lower = token - first >= 32 ? ~0u : (1u << (token - first)) - 1;
        before |= at_least(logits, equal) & lower;
      }
      count += __builtin_popcount(before);
    }
  }
  return count;
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
