// Who may be kept, found without sorting the row: the best logit of each block bounds the search, and only
// blocks that pass are opened.
#pragma once

#include "sampling/cuts.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

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

// Running maxima of a block's logits and sums of a row's, two of each side by side.
struct Seen {
  Floats best_even = fill(-kInfinity);
  Floats best_odd = fill(-kInfinity);
  Floats sum_even = {};
  Floats sum_odd = {};
};

// Writes each block's best logit (and, if asked, those of its parts) and the row's top logit. One
// pass, the only one over all of a row for most settings. Sums betray NaN: they stay NaN once they are.
// They also become NaN where large finite logits overflow, so a suspicion is looked into. A finite sum
// shows that no logit was -inf.
template <bool kPartBests>
inline Status scan(const Row& row, Workspace& work, float* top) {
  Floats row_best = fill(-kInfinity);
  Seen seen = {};
  work.is_finite = false;
  for (int64_t b = 0; b < row.blocks(); ++b) {
    if (b == row.full_blocks()) work.is_finite = all_finite(seen.sum_even + seen.sum_odd);
    row.prefetch(b);
    seen = row.with_block(b, [=](auto load) __attribute__((always_inline)) {
      Seen next = {{}, {}, seen.sum_even, seen.sum_odd};
      next.best_even = next.best_odd = fill(-kInfinity);
      for (int64_t i = 0; i < kBlock; i += 2 * kLanes) {
        const Floats even = load(i);
        const Floats odd = load(i + kLanes);
        next.best_even = larger(next.best_even, even);
        next.best_odd = larger(next.best_odd, odd);
        next.sum_even = add_beside_maxima(next.sum_even, even);
        next.sum_odd = add_beside_maxima(next.sum_odd, odd);
      }
      return next;
    });
    const Floats block_best = larger(seen.best_even, seen.best_odd);
    row_best = larger(row_best, block_best);
    const Parts parts = largest_of_parts(block_best);
    work.best[b] = read(largest(parts));
    if (kPartBests) std::memcpy(work.part_best + b * kParts, &parts, sizeof parts);
  }
  for (int64_t i = 0; i < kPadding; ++i) {
    work.best[row.blocks() + i] = -kInfinity;
    if (kPartBests) work.part_best[row.blocks() * kParts + i] = -kInfinity;
  }
  work.has_part_bests = kPartBests;
  work.whole_scale = 0;
  *top = read(largest(largest_of_parts(row_best)));
  const Floats sum = seen.sum_even + seen.sum_odd;
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

// Groups of tokens whose bests are known: all blocks, or the parts of all blocks. Blocks are enough for a
// small k; for a large one their bests say too little.
struct Groups {
  const float* bests;  // with room for whole vectors, -inf past the last
  int64_t count;
};
inline bool needs_part_bests(int64_t k, int64_t blocks) { return k > blocks / 4; }
inline Groups groups_for(const Row& row, const Workspace& work, int64_t k) {
  if (work.has_part_bests && needs_part_bests(k, row.blocks())) {
    return {work.part_best, row.blocks() * kParts};
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

inline int64_t count_at_least(Groups groups, float bound) {
  Ints count = {};
  for (int64_t i = 0; i < groups.count; i += kLanes) count -= load(groups.bests + i) >= bound;
  return sum_of(count);
}

// A logit that at least `k` tokens of the row reach, and few more: k groups whose best reaches it hold k
// such tokens. The lowest finite one, if the groups cannot tell. No token exceeds `top`.
inline float bound_for_count(const Row& row, const Workspace& work, int64_t k, float top) {
  const Groups groups = groups_for(row, work, k);
  if (k > groups.count) return kLowest;
  const int64_t enough = k + k / 16;
  Range range = {ordered(kLowest), ordered(top) + 1};
  for (float step = 1.0f; step <= -kLowest; step *= 2) {
    const uint32_t lower = ordered(top - step);
    if (lower <= range.low) break;
    if (count_at_least(groups, from_ordered(lower)) >= k) {
      range.low = lower;
      break;
    }
    range.high = lower;
  }
  for (int round = 0; range.is_open(); ++round) {
    const uint32_t middle = range.middle(round);
    const int64_t count = count_at_least(groups, from_ordered(middle));
    if (count < k) {
      range.high = middle;
    } else {
      range.low = middle;
      if (count <= enough) break;
    }
  }
  return read(from_ordered(range.low));
}

// Tokens that were found, in ascending order, with the bits of their logits: what keys are made of. Each
// array has room for a whole vector more.
struct Finds {
  char* bits;    // of a find after the other, four bytes each
  char* tokens;
};

// They lie where a search for a cut has its scratch, later.
inline Finds finds_of(const Workspace& work) {
  return {reinterpret_cast<char*>(work.keys_left), reinterpret_cast<char*>(work.masses_left)};
}

// Adds the lanes of some vectors whose bits are set to `count` finds; returns how many there are then. The
// bits are gone through by words: a branch for each vector would be guessed wrong too often.
template <int kVectors>
__attribute__((always_inline)) inline int64_t add_found(Finds finds, int64_t count, const char* vectors,
                                                        const uint32_t (&found)[kVectors], int64_t first) {
  constexpr int kWord = 64 / kLanes;  // vectors whose bits fill a word
  for (int start = 0; start < kVectors; start += kWord) {
    uint64_t word = 0;
    for (int i = start; i < kVectors && i < start + kWord; ++i) {
      word |= uint64_t{found[i]} << ((i - start) * kLanes);
    }
    for (; word; word &= word - 1) {
      const int at = start * kLanes + __builtin_ctzll(word);
      const uint32_t token = static_cast<uint32_t>(first + at);
      std::memcpy(finds.bits + 4 * count, vectors + 4 * at, 4);
      std::memcpy(finds.tokens + 4 * count++, &token, 4);
    }
  }
  return count;
}

// The key of a logit's bits, its high half: rule 1's reading included.
inline Ints order_of(Ints bits) {
  bits = (bits & 0x7F800000) == 0 ? Ints{} : bits;
  return bits ^ ((bits >> 31) | static_cast<int32_t>(0x80000000));
}

// Writes as many keys as there are finds, and up to a whole vector of words past them.
inline int64_t write_keys(Finds finds, int64_t count, uint64_t* keys) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const Ints order = order_of((Ints)load(finds.bits + 4 * i));
    const Ints tokens = ~(Ints)load(finds.tokens + 4 * i);
    store(keys + i, (Floats)interleave_low(tokens, order));
    store(keys + i + kLanes / 2, (Floats)interleave_high(tokens, order));
  }
  return count;
}

// Of the lanes in `equal`, the first `most`.
inline uint32_t first_bits(uint32_t equal, int64_t most) {
  uint32_t kept = 0;
  for (; most > 0 && equal; --most, equal &= equal - 1) kept |= equal & -equal;
  return kept;
}

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

constexpr int64_t kTooMany = -1;

// The keys of the tokens that `find` finds among those whose block reaches `bound`, in ascending token, into
// work.keys; or kTooMany, if they might be more than `most`. find(logits, first) gives a vector's bits.
template <class Find>
inline int64_t list_found(const Row& row, const Workspace& work, float bound, int64_t most, Find find) {
  const int64_t blocks = blocks_from(row, work.best, bound, work.blocks);
  const Finds finds = finds_of(work);
  int64_t count = 0;
  for (int64_t n = 0; n < blocks; ++n) {
    if (count + kBlock > most) return kTooMany;
    const int64_t b = work.blocks[n];
    const char* block = row.block(b);
    uint32_t found[kBlock / kLanes];
    for (int i = 0; i < kBlock / kLanes; ++i) {
      found[i] = find(load(block + 4 * kLanes * i), b * kBlock + i * kLanes);
    }
    count = add_found(finds, count, block, found, b * kBlock);
  }
  return write_keys(finds, count, work.keys);
}

// Lists the tokens whose key reaches `from` and not `to`.
inline int64_t list_between(const Row& row, const Workspace& work, uint64_t from, uint64_t to) {
  const Cut low(from);
  const Cut high(to);
  return list_found(row, work, logit_of(from), work.room, [&](Floats logits, int64_t first) {
    return at_least(logits, low.bound_at(first)) & ~at_least(logits, high.bound_at(first));
  });
}

// Lists the tokens whose logit reaches `bound`; if they are more than `most`, kTooMany.
inline int64_t list_from_logit(const Row& row, const Workspace& work, float bound, int64_t most) {
  const Floats bounds = fill(unread_bound(bound));
  return list_found(row, work, bound, most, [&](Floats logits, int64_t) { return at_least(logits, bounds); });
}

// Lists tokens whose key reaches `from`; of those whose logit is that of `from` the first `most_equal`.
inline int64_t list_few_equal(const Row& row, const Workspace& work, uint64_t from, int64_t most_equal) {
  const Cut low(from);
  const Floats above = fill(unread_bound(next_above(logit_of(from))));
  return list_found(row, work, logit_of(from), work.room, [&](Floats logits, int64_t first) {
    const uint32_t larger = at_least(logits, above);
    const uint32_t equal = first_bits(at_least(logits, low.bound_at(first)) & ~larger, most_equal);
    most_equal -= __builtin_popcount(equal);
    return larger | equal;
  });
}

// How many tokens there are from a cut up, in the blocks from `b` on.
inline int64_t count_from(const Row& row, const float* best, uint64_t key, int64_t b = 0) {
  const Cut cut(key);
  const float bound = logit_of(key);
  int64_t count = 0;
  for (; b < row.blocks(); ++b) {
    if (best[b] < bound) continue;
    const char* block = row.block(b);
    for (int64_t i = 0; i < kBlock; i += kLanes) {
      count += __builtin_popcount(at_least(load(block + 4 * i), cut.bound_at(b * kBlock + i)));
    }
  }
  return count;
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
