// Lists the tokens from a bound up without sorting the row: a search reads only the blocks whose largest logit reaches
// the bound.
#pragma once

#include "sampling/cuts.hpp"
#include "sampling/scan.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// If another thread writes the row during the call, the token may be any, but must be in the vocabulary.
inline int64_t clamp_token(const Row& row, int64_t token) {
  return token >= 0 && token < row.vocabulary() ? token : row.vocabulary() - 1;
}

// The first token with the top logit.
inline int64_t first_token(const Row& row, const float* block_max, float top) {
  int64_t b = 0;
  while (at_least(load(block_max + b), fill(top)) == 0) b += kLanes;
  while (block_max[b] != top) ++b;
  const char* block = row.block(b);
  const Floats bound = fill(unread_bound(top));
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    const uint32_t found = at_least(load(block + 4 * i), bound);
    if (found) return clamp_token(row, b * kBlock + i + __builtin_ctz(found));
  }
  return b * kBlock;  // the row has changed since the scan
}

// Groups of tokens with known maxima: all blocks, or the parts of all blocks. The maxima of blocks bound a small
// k well; a large one needs those of parts.
struct Groups {
  const float* maxima;  // followed by -inf up to a full vector
  int64_t count;
};
inline bool needs_part_max(int64_t k, int64_t blocks) { return k > blocks / 4; }
inline Groups groups_for(const Row& row, const Workspace& work, int64_t k) {
  if (work.has_part_max && needs_part_max(k, row.blocks())) {
    return {work.part_max, row.blocks() * kParts};
  }
  return {work.block_max, row.blocks()};
}

// The ordinals between which a bound is searched: enough groups reach `low`, too few reach `high`.
struct Range {
  uint32_t low;
  uint32_t high;

  bool is_open() const { return high - low > 1; }
  // Halves the interval of values at first, which reaches most of a row's logits in few steps, then that of
  // ordinals, which ends at adjacent floats for all values.
  uint32_t middle(int round) const {
    constexpr int kByValue = 12;
    const uint32_t halfway = low + (high - low) / 2;
    if (round >= kByValue) return halfway;
    const uint32_t by_value = ordinal(from_ordinal(low) / 2 + from_ordinal(high - 1) / 2);
    return by_value > low && by_value < high ? by_value : halfway;
  }
};

inline int64_t count_at_least(Groups groups, float bound) {
  Ints count = {};
  for (int64_t i = 0; i < groups.count; i += kLanes) count -= load(groups.maxima + i) >= bound;
  return sum_of(count);
}

// A logit that at least `k` tokens of the row reach, and few more: k groups whose maximum reaches it hold k such
// tokens. The lowest finite float if there are fewer than k groups. No token exceeds `top`.
inline float bound_for_count(const Row& row, const Workspace& work, int64_t k, float top) {
  const Groups groups = groups_for(row, work, k);
  if (k > groups.count) return kLowest;
  const int64_t enough = k + k / 16;
  Range range = {ordinal(kLowest), ordinal(top) + 1};
  for (float step = 1.0f; step <= -kLowest; step *= 2) {
    const uint32_t lower = ordinal(top - step);
    if (lower <= range.low) break;
    if (count_at_least(groups, from_ordinal(lower)) >= k) {
      range.low = lower;
      break;
    }
    range.high = lower;
  }
  for (int round = 0; range.is_open(); ++round) {
    const uint32_t middle = range.middle(round);
    const int64_t count = count_at_least(groups, from_ordinal(middle));
    if (count < k) {
      range.high = middle;
    } else {
      range.low = middle;
      if (count <= enough) break;
    }
  }
  return read(from_ordinal(range.low));
}

// Tokens that match a condition, in ascending order, and the bits of their logits: both halves of their keys, four
// bytes each. Each array has space for a full vector more.
struct Matches {
  char* bits;
  char* tokens;
};

// In memory that a later search for a cut uses as its scratch.
inline Matches match_buffers(const Workspace& work) {
  return {reinterpret_cast<char*>(work.scratch_keys), reinterpret_cast<char*>(work.scratch_masses)};
}

// Appends the lanes of some vectors whose bits are set; returns the new number of matches. No branch depends on one
// vector's bits, since it would often be mispredicted: AVX-512 stores what is left of each vector, other code loops
// over words of bits.
template <int kVectors>
FASTSAMPLE_INLINE int64_t append_matches(Matches matches, int64_t count, const char* vectors,
                                         const uint32_t (&bits)[kVectors], int64_t first) {
#if defined(__AVX512F__)
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (int i = 0; i < kVectors; ++i) {
    const __mmask16 some = static_cast<__mmask16>(bits[i]);
    const __m512i tokens = _mm512_add_epi32(lanes, _mm512_set1_epi32(static_cast<int>(first + i * kLanes)));
    const __m512i logits = (__m512i)load(vectors + 4 * kLanes * i);
    store(matches.bits + 4 * count, (Floats)_mm512_maskz_compress_epi32(some, logits));
    store(matches.tokens + 4 * count, (Floats)_mm512_maskz_compress_epi32(some, tokens));
    count += __builtin_popcount(bits[i]);
  }
#else
  constexpr int kWord = 64 / kLanes;  // vectors whose bits fill a word
  for (int start = 0; start < kVectors; start += kWord) {
    uint64_t word = 0;
    for (int i = start; i < kVectors && i < start + kWord; ++i) {
      word |= uint64_t{bits[i]} << ((i - start) * kLanes);
    }
    for (; word; word &= word - 1) {
      const int at = start * kLanes + __builtin_ctzll(word);
      const uint32_t token = static_cast<uint32_t>(first + at);
      std::memcpy(matches.bits + 4 * count, vectors + 4 * at, 4);
      std::memcpy(matches.tokens + 4 * count++, &token, 4);
    }
  }
#endif
  return count;
}

// The ordinals of unread logits, from their bits.
inline Ints ordinals(Ints bits) {
  bits = (bits & 0x7F800000) == 0 ? Ints{} : bits;
  return bits ^ ((bits >> 31) | static_cast<int32_t>(0x80000000));
}

// Writes the keys of matches, and up to a full vector of words past them; returns their number.
inline int64_t write_keys(Matches matches, int64_t count, uint64_t* keys) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const Ints high = ordinals((Ints)load(matches.bits + 4 * i));
    const Ints tokens = ~(Ints)load(matches.tokens + 4 * i);
    store(keys + i, (Floats)interleave_low(tokens, high));
    store(keys + i + kLanes / 2, (Floats)interleave_high(tokens, high));
  }
  return count;
}

// The first `most` of the lanes in `equal`.
inline uint32_t first_bits(uint32_t equal, int64_t most) {
  uint32_t kept = 0;
  for (; most > 0 && equal; --most, equal &= equal - 1) kept |= equal & -equal;
  return kept;
}

// Lists the blocks whose largest logit reaches `bound` and is below `end`, in ascending order, and prefetches all of
// them: each may have left the second-level cache.
inline int64_t blocks_between(const Row& row, const Workspace& work, float bound, float end) {
  int64_t count = 0;
  for (int64_t b = 0; b < row.blocks(); b += kLanes) {
    const Floats maxima = load(work.block_max + b);
    for (uint32_t found = at_least(maxima, fill(bound)) & ~at_least(maxima, fill(end)); found;
         found &= found - 1) {
      const int64_t block = b + __builtin_ctz(found);
      row.prefetch_block(block);
      work.open_blocks[count++] = static_cast<uint32_t>(block);
    }
  }
  return count;
}

inline int64_t blocks_from(const Row& row, const Workspace& work, float bound) {
  return blocks_between(row, work, bound, kInfinity);
}

constexpr int64_t kTooMany = -1;

// Lists the keys of matching tokens in blocks that reach `bound`, in ascending token, in work.keys; returns their
// number, or kTooMany if they might be more than `most`. match(logits, first) returns a vector's bits.
template <class Match>
inline int64_t list_matches(const Row& row, const Workspace& work, float bound, int64_t most, Match match) {
  const int64_t blocks = blocks_from(row, work, bound);
  const Matches matches = match_buffers(work);
  int64_t count = 0;
  for (int64_t n = 0; n < blocks; ++n) {
    if (count + kBlock > most) return kTooMany;
    const int64_t b = work.open_blocks[n];
    const char* block = row.block(b);
    uint32_t bits[kBlock / kLanes];
    for (int i = 0; i < kBlock / kLanes; ++i) {
      bits[i] = match(load(block + 4 * kLanes * i), b * kBlock + i * kLanes);
    }
    count = append_matches(matches, count, block, bits, b * kBlock);
  }
  return write_keys(matches, count, work.keys);
}

// Lists the tokens with a key of at least `from` and below `to`.
inline int64_t list_between(const Row& row, const Workspace& work, uint64_t from, uint64_t to) {
  const Cut low(from);
  const Cut high(to);
  return list_matches(row, work, logit_of(from), work.capacity, [&](Floats logits, int64_t first) {
    return at_least(logits, low.bound_at(first)) & ~at_least(logits, high.bound_at(first));
  });
}

// Lists the tokens with a logit of at least `bound`; kTooMany if they might be more than `most`.
inline int64_t list_from_logit(const Row& row, const Workspace& work, float bound, int64_t most) {
  const Floats bounds = fill(unread_bound(bound));
  return list_matches(row, work, bound, most, [&](Floats logits, int64_t) { return at_least(logits, bounds); });
}

// Lists the tokens with a key of at least `from`; of those with the logit of `from` only the first `most_equal`.
inline int64_t list_few_equal(const Row& row, const Workspace& work, uint64_t from, int64_t most_equal) {
  const Cut low(from);
  const Floats above = fill(unread_bound(next_above(logit_of(from))));
  return list_matches(row, work, logit_of(from), work.capacity, [&](Floats logits, int64_t first) {
    const uint32_t larger = at_least(logits, above);
    const uint32_t equal = first_bits(at_least(logits, low.bound_at(first)) & ~larger, most_equal);
    most_equal -= __builtin_popcount(equal);
    return larger | equal;
  });
}

// Counts the tokens with a key of at least `key`.
inline int64_t count_from(const Row& row, const float* block_max, uint64_t key) {
  const Cut cut(key);
  const float bound = logit_of(key);
  int64_t count = 0;
  for (int64_t b = 0; b < row.blocks(); ++b) {
    if (block_max[b] < bound) continue;
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
