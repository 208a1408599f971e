// Where a cut lies in a row whose kept tokens are too many to list: a few tokens, spread over the row, say
// between which keys to look; what lies above these is weighed in place, and only what lies between is
// listed. A wrong guess costs a pass and changes nothing.
#pragma once

#include "kept.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// Weights are masses, or 1 a token. The cut is at `low` or above it, and below `high`.
struct Bracket {
  uint64_t low;    // the tokens from here up weigh `below`, which is enough
  uint64_t high;   // the tokens from here up weigh `above`, which is not
  uint64_t below;
  uint64_t above;
};

// A cut, and how many keys are listed if they are all of the kept set from `from` up.
struct Found {
  uint64_t cut;
  bool listed = false;
  uint64_t from = 0;
  int64_t count = 0;
};

template <bool kByMass>
uint64_t weight_from_key(const Kept& kept, uint64_t key) {
  return kByMass ? weigh_from(kept.row, kept.work, kept.law, key)
                 : static_cast<uint64_t>(count_from(kept.row, kept.work.best, key));
}

template <bool kByMass>
uint64_t weight_of_listed(const Kept& kept, int64_t count) {
  return kByMass ? weigh_listed(kept.work, kept.law, count) : static_cast<uint64_t>(count);
}

template <bool kByMass>
uint64_t cut_of_listed(const Kept& kept, int64_t count, uint64_t need) {
  return cut_among(candidates(kept, kByMass), count, need, scratch(kept, kByMass));
}

// ---- guesses --------------------------------------------------------------------------------------------

// The cut is guessed to lie between two keys; `from_top`: there is room to list all from the lower one up.
struct Guess {
  uint64_t low;
  uint64_t high;
  bool from_top = false;
};

// Lists tokens of the bracket from vectors that lie evenly over the row; returns how many.
inline int64_t list_spread(const Kept& kept, const Bracket& bracket, int64_t vectors) {
  const int64_t all = kept.row.blocks() * (kBlock / kLanes);
  const Cut low(bracket.low);
  const Cut high(bracket.high);
  const Finds finds = finds_of(kept.work);
  int64_t count = 0;
  for (int64_t i = 0; i < vectors; ++i) {
    const int64_t first = i * all / vectors * kLanes;
    const char* vector = kept.row.block(first / kBlock) + 4 * (first % kBlock);
    const Floats logits = load(vector);
    const uint32_t found[1] = {at_least(logits, low.bound_at(first)) &
                               ~at_least(logits, high.bound_at(first))};
    count = add_found(finds, count, vector, found, first);
  }
  return write_keys(finds, count, kept.work.keys);
}

inline double sum_of_squares(const uint64_t* words, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double word = static_cast<double>(static_cast<int64_t>(words[i]));
    sum += word * word;
  }
  return sum;
}

// One and a half standard deviations around the place where the spread tokens have the cut.
template <bool kByMass>
Guess guess_by_spread(const Kept& kept, const Bracket& bracket, uint64_t need, int64_t most) {
  constexpr int64_t kFewest = 16;
  const int64_t all = kept.row.blocks() * (kBlock / kLanes);
  int64_t vectors = most / kLanes;
  vectors = vectors < all ? vectors : all;
  const int64_t fit = kept.work.room / kLanes;
  vectors = vectors < fit ? vectors : fit;
  const int64_t count = list_spread(kept, bracket, vectors);
  const uint64_t weight = weight_of_listed<kByMass>(kept, count);
  Guess guess = {bracket.low, bracket.high};
  if (count < kFewest || weight == 0) return guess;
  const double sum = static_cast<double>(weight);
  const double squares = kByMass ? sum_of_squares(kept.work.masses, count) : sum;
  const double share = static_cast<double>(need - bracket.above) /
                       static_cast<double>(bracket.below - bracket.above);
  const double slack = 1.5 * __builtin_sqrt(share * (1 - share) * squares) + sum / static_cast<double>(count);
  const double low = share * sum + slack;
  const double high = share * sum - slack;
  if (low < sum) {
    const uint64_t key = cut_of_listed<kByMass>(kept, count, static_cast<uint64_t>(low) + 1);
    guess.low = first_key_of(logit_of(key));
    guess.low = guess.low > bracket.low ? guess.low : bracket.low;
  }
  const int64_t listed = weight_from(kept.work.keys, nullptr, count, guess.low);
  guess.from_top = (listed + listed / 4) * all < (kept.work.room - kBlock) * vectors;
  if (high >= 1 && !guess.from_top) {
    const uint64_t key = cut_of_listed<kByMass>(kept, count, static_cast<uint64_t>(high));
    guess.high = key_above(logit_of(key));
    guess.high = guess.high < bracket.high ? guess.high : bracket.high;
  }
  return guess;
}

// For rows that fool the spread tokens: half of the keys that are left.
inline Guess halve(const Bracket& bracket) {
  return {bracket.low + (bracket.high - bracket.low) / 2, bracket.high};
}

template <bool kByMass>
Guess guess_cut(const Kept& kept, const Bracket& bracket, uint64_t need, int round) {
  constexpr int64_t kSpread = 4096;
  return round < 2 ? guess_by_spread<kByMass>(kept, bracket, need, kSpread << (2 * round))
                   : halve(bracket);
}

// ---- one logit ------------------------------------------------------------------------------------------

inline bool is_one_logit(uint64_t low, uint64_t high) { return high <= key_above(logit_of(low)); }

// Of the tokens whose keys lie between two of the same logit, the key of the n-th; and how many there are,
// if they are fewer.
struct Nth {
  uint64_t key;
  int64_t count;
};
inline Nth nth_equal(const Kept& kept, uint64_t low, uint64_t high, int64_t n) {
  const float logit = logit_of(low);
  const Cut from(low);
  const Cut to(high);
  int64_t count = 0;
  for (int64_t b = 0; b < kept.row.blocks(); ++b) {
    if (kept.work.best[b] < logit) continue;
    const char* block = kept.row.block(b);
    for (int64_t i = 0; i < kBlock; i += kLanes) {
      const int64_t first = b * kBlock + i;
      const Floats logits = load(block + 4 * i);
      uint32_t found = at_least(logits, from.bound_at(first)) & ~at_least(logits, to.bound_at(first));
      const int64_t here = __builtin_popcount(found);
      if (count + here < n) {
        count += here;
        continue;
      }
      for (; count + 1 < n; ++count) found &= found - 1;
      return {key_of(logit, first + __builtin_ctz(found)), n};
    }
  }
  return {low, count};
}

// Looks for the cut among tokens of one logit; or finds that they are too light, and takes note.
template <bool kByMass>
bool cut_one_logit(const Kept& kept, Bracket& bracket, uint64_t low, uint64_t need, uint64_t* cut) {
  const uint64_t each = kByMass ? mass_of(kept.law, logit_of(low)) : 1;
  const uint64_t missing = need - bracket.above;
  const uint64_t n = each == 0 ? ~uint64_t{0} >> 1 : (missing - 1) / each + 1;
  const Nth nth = nth_equal(kept, low, bracket.high, static_cast<int64_t>(n));
  *cut = nth.key;
  if (static_cast<uint64_t>(nth.count) == n) return true;
  bracket.high = low;
  bracket.above += static_cast<uint64_t>(nth.count) * each;
  return false;
}

// ---- the search -----------------------------------------------------------------------------------------

template <bool kByMass>
void narrow(const Kept& kept, Bracket& bracket, uint64_t key, uint64_t need) {
  const uint64_t weight = weight_from_key<kByMass>(kept, key);
  if (weight >= need) {
    bracket.low = key;
    bracket.below = weight;
  } else {
    bracket.high = key;
    bracket.above = weight;
  }
}

// The largest key so that the tokens from it up weigh at least `need`, which is at least 1. Every round makes
// the bracket smaller; a row that changes meanwhile ends with an empty one.
template <bool kByMass>
Found cut_in_place(const Kept& kept, uint64_t need, Bracket bracket) {
  const uint64_t top = key_above(kept.law.top);
  for (int round = 0; bracket.low < bracket.high; ++round) {
    const Guess guess = guess_cut<kByMass>(kept, bracket, need, round);
    if (guess.from_top) {
      bracket.high = top;
      bracket.above = 0;
    } else if (guess.high < bracket.high) {
      narrow<kByMass>(kept, bracket, guess.high, need);
      if (bracket.low == guess.high) continue;
    }
    const int64_t count = list_between(kept.row, kept.work, guess.low, bracket.high);
    if (count != kTooMany) {
      const uint64_t weight = weight_of_listed<kByMass>(kept, count);
      if (bracket.above + weight >= need) {
        const uint64_t cut = cut_of_listed<kByMass>(kept, count, need - bracket.above);
        return {cut, bracket.high == top, guess.low, count};
      }
      bracket.high = guess.low;
      bracket.above += weight;
    } else if (is_one_logit(guess.low, bracket.high)) {
      uint64_t cut;
      if (cut_one_logit<kByMass>(kept, bracket, guess.low, need, &cut)) return {cut};
    } else {
      narrow<kByMass>(kept, bracket, guess.low, need);
    }
  }
  return {bracket.low};
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
