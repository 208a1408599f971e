// Who may be kept, found without sorting the row: the best logit of each block bounds the search, only
// blocks that pass are opened, and a cut is found among the candidates by their keys.
#pragma once

#include "lanes.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// Rule 1: an exponent field of 0 (denormal, -0) is +0.
inline float read(float logit) {
  return logit < kSmallestNormal && logit > -kSmallestNormal ? 0.0f : logit;
}

inline float load_one(const char* source) {
  float logit;
  std::memcpy(&logit, source, sizeof logit);
  return logit;
}

// Floats as unsigned integers in the same order.
inline uint32_t ordered(float logit) {
  uint32_t bits;
  std::memcpy(&bits, &logit, sizeof bits);
  return bits ^ (bits >> 31 ? 0xFFFFFFFFu : 0x80000000u);
}

inline float from_ordered(uint32_t bits) {
  bits ^= bits >> 31 ? 0x80000000u : 0xFFFFFFFFu;
  float logit;
  std::memcpy(&logit, &bits, sizeof logit);
  return logit;
}

// Rule 3 as one number: a larger key comes first. Keys of a row are distinct.
inline uint64_t key_of(float logit, int64_t token) {
  return uint64_t{ordered(logit)} << 32 | static_cast<uint32_t>(~token);
}
inline float logit_of(uint64_t key) { return from_ordered(static_cast<uint32_t>(key >> 32)); }
inline int64_t token_of(uint64_t key) { return static_cast<uint32_t>(~key); }

// What to compare unread logits with, so that the answer is that of their read values with a read `bound`:
// all denormals are read as 0.
inline float unread_bound(float bound) {
  return bound == 0.0f ? from_ordered(ordered(-kSmallestNormal) + 1) : bound;
}

inline bool holds_invalid(const Row& row) {
  for (int64_t b = 0; b < row.blocks(); ++b) {
    for (int64_t i = 0; i < kBlock; ++i) {
      uint32_t bits;
      std::memcpy(&bits, row.block(b) + 4 * i, sizeof bits);
      if (bits == 0x7F800000u || (bits & 0x7FFFFFFFu) > 0x7F800000u) return true;
    }
  }
  return false;
}

// Writes each block's best logit (and, if asked, that of each of its lanes) and the row's top logit. One
// pass, the only one over all of a row for most settings. Sums betray NaN: they stay NaN once they are.
// They also become NaN where large finite logits overflow, so a suspicion is looked into.
template <bool kLaneBests>
inline Status scan(const Row& row, Workspace& work, float* top) {
  constexpr int kVectors = static_cast<int>(kBlock) / kLanes;
  Floats row_best = fill(-kInfinity);
  Floats sums[2] = {};
  for (int64_t b = 0; b < row.blocks(); ++b) {
    const char* block = row.block(b);
    prefetch(block);
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
  *top = read(largest(row_best));
  const Floats sum = sums[0] + sums[1];
  bool suspicious = *top == kInfinity;
  for (int lane = 0; lane < kLanes; ++lane) suspicious |= sum[lane] != sum[lane];
  if (suspicious && holds_invalid(row)) return kInvalid;
  return *top == -kInfinity ? kEmpty : kOk;
}

// The first token whose logit is the top one.
inline int64_t first_token(const Row& row, const float* best, float top) {
  int64_t b = 0;
  while (best[b] != top) ++b;
  const Floats bound = fill(unread_bound(top));
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    const uint32_t found = at_least(load(row.block(b) + 4 * i), bound);
    if (found) return b * kBlock + i + __builtin_ctz(found);
  }
  return b * kBlock;  // the row has changed since the scan
}

inline int64_t count_at_least(const float* bests, int64_t length, float bound) {
  Ints count = {};
  for (int64_t i = 0; i < length; i += kLanes) count -= load(bests + i) >= bound;
  return total(count);
}

// A logit that at least `k` tokens reach, and few more: k groups of tokens whose best reaches it hold k
// such tokens. `bests` has room for whole vectors, -inf past its length.
inline float bound_for_count(const float* bests, int64_t length, int64_t k, float top) {
  if (k > length) return kLowest;
  const int64_t enough = k + k / 8;
  uint32_t low = ordered(kLowest);
  uint32_t high = ordered(top) + 1;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    const int64_t count = count_at_least(bests, length, from_ordered(middle));
    if (count < k) {
      high = middle;
    } else {
      low = middle;
      if (count <= enough) break;
    }
  }
  return read(from_ordered(low));
}

// Blocks are groups enough for a small k; for a large one their bests say too little.
inline bool needs_lane_bests(int64_t k, int64_t blocks) { return k > blocks / 4; }

// The keys of all tokens whose logit reaches `bound` (finite), in ascending token.
inline int64_t collect(const Row& row, const float* best, float bound, uint64_t* keys) {
  const float unread = unread_bound(bound);
  const Floats bounds = fill(unread);
  int64_t count = 0;
  for (int64_t b = 0; b < row.blocks(); ++b) {
    if (best[b] < bound) continue;
    const char* block = row.block(b);
    for (int64_t i = 0; i < kBlock; i += kLanes) {
      uint32_t found = at_least(load(block + 4 * i), bounds);
      for (; found; found &= found - 1) {
        const int64_t at = i + __builtin_ctz(found);
        keys[count++] = key_of(read(load_one(block + 4 * at)), b * kBlock + at);
      }
    }
  }
  return count;
}

// ---- the cut: the largest key so that it and all larger ones weigh at least `need` -------------------

constexpr int64_t kFew = 64;

// Weighs each candidate by one (top_k) or by its mass (top_p).
struct ByCount {
  uint64_t operator[](int64_t) const { return 1; }
  void move(int64_t, int64_t) const {}
};
struct ByMass {
  uint64_t* masses;
  uint64_t operator[](int64_t i) const { return masses[i]; }
  void move(int64_t from, int64_t to) const { masses[to] = masses[from]; }
};

template <class Weights>
inline uint64_t cut_among_few(const uint64_t* keys, Weights weights, int64_t count, uint64_t need) {
  uint64_t cut = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint64_t weight = 0;
    for (int64_t j = 0; j < count; ++j) weight += keys[j] >= keys[i] ? weights[j] : 0;
    if (weight >= need && keys[i] > cut) cut = keys[i];
  }
  return cut;
}

constexpr int kDigits = 256;

// Narrows to the candidates whose leading digit holds the cut, until few are left. `keys` and `weights`
// are used up. All of them together must weigh at least `need`, and `need` at least 1.
template <class Weights>
inline uint64_t cut_among(uint64_t* keys, Weights weights, int64_t count, uint64_t need) {
  while (count > kFew) {
    uint64_t low = keys[0];
    uint64_t high = keys[0];
    for (int64_t i = 1; i < count; ++i) {
      low = keys[i] < low ? keys[i] : low;
      high = keys[i] > high ? keys[i] : high;
    }
    const int bits = 64 - __builtin_clzll(high - low);
    const int shift = bits > 8 ? bits - 8 : 0;
    uint64_t weight[kDigits] = {};
    for (int64_t i = 0; i < count; ++i) weight[(keys[i] - low) >> shift] += weights[i];
    uint64_t digit = kDigits - 1;
    while (digit > 0 && weight[digit] < need) need -= weight[digit--];
    int64_t left = 0;
    for (int64_t i = 0; i < count; ++i) {
      if ((keys[i] - low) >> shift != digit) continue;
      weights.move(i, left);
      keys[left++] = keys[i];
    }
    count = left;
  }
  return cut_among_few(keys, weights, count, need);
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
