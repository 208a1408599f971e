// Where a cut lies in a row whose kept tokens are too many to list: a few tokens, spread over the row, say
// between which keys to look; what lies above these is weighed in place, and only what lies between is
// listed. A wrong guess costs a pass and changes nothing.
#pragma once

#include "sampling/total_mass.hpp"

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

// A cut, and what a search knows of the tokens from there up.
struct Found {
  uint64_t cut;
  bool listed = false;   // `count` keys are listed, these tokens among them
  int64_t count = 0;
  bool weighed = false;  // work.sums are theirs
  uint64_t total = 0;    // their mass, where they are weighed or the reduction is not exact; 0: not known
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

inline uint64_t listed_weight_from(const Kept& kept, int64_t count, uint64_t key) {
  return weight_from(kept.work.keys, kept.work.masses, count, key);
}

template <bool kByMass>
uint64_t cut_of_listed(const Kept& kept, int64_t count, uint64_t need) {
  return cut_among(candidates(kept, kByMass), count, need, scratch(kept, kByMass));
}

// ---- guesses --------------------------------------------------------------------------------------------

// The cut is guessed to lie between two keys.
struct Guess {
  uint64_t low;
  uint64_t high;
  bool from_top = false;   // there is room to list all from the lower one up
  bool one_logit = false;  // there is none to list what lies between, all of one logit
};

// Tokens that are listed, and how many of all tokens one of them stands for.
struct Spread {
  int64_t count;
  double each;
};

// For rows that fool the spread tokens: half of the keys that are left. A key whose logit is a denormal is no
// token's and says nothing of unread logits: the next one that is takes its place, or else the last before.
inline Guess halve(const Bracket& bracket) {
  const uint64_t middle = bracket.low + (bracket.high - bracket.low) / 2;
  const float logit = logit_of(middle);
  if (ordered(read(logit)) == ordered(logit)) return {middle, bracket.high};
  const uint64_t next = key_above(logit);
  if (next < bracket.high) return {next, bracket.high};
  const uint64_t last = key_of(logit > 0 ? 0.0f : -kSmallestNormal, 0);
  return {last > bracket.low ? last : bracket.low, bracket.high};
}

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
    const uint32_t found[1] = {at_least(logits, low.bound_at(first)) & ~at_least(logits, high.bound_at(first))};
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

// The logits of the two listed keys where these weights are reached, as a guess.
template <bool kByMass>
Guess between_weights(const Kept& kept, Spread spread, double less, double more) {
  const uint64_t last = cut_of_listed<kByMass>(kept, spread.count, static_cast<uint64_t>(more));
  const uint64_t first = cut_of_listed<kByMass>(kept, spread.count, static_cast<uint64_t>(less));
  return {first_key_of(logit_of(last)), key_above(logit_of(first))};
}

inline int64_t listed_from(const Kept& kept, Spread spread, uint64_t key) {
  return static_cast<int64_t>(weight_from(kept.work.keys, nullptr, spread.count, key));
}

// Where the spread tokens have `need` of their weight, give or take `slack`; if more tokens lie there than can
// be listed, fewer; if these share one logit, that logit.
template <bool kByMass>
Guess guess_around(const Kept& kept, Spread spread, double weight, double need, double slack) {
  const auto inside = [&](double at) { return at < 1 ? 1 : at > weight ? weight : at; };
  const double room = static_cast<double>(kept.work.room - kBlock);
  const auto fits = [&](const Guess& guess) {
    const int64_t count = listed_from(kept, spread, guess.low) - listed_from(kept, spread, guess.high);
    return static_cast<double>(count) * spread.each * 1.25 < room;
  };
  Guess guess = between_weights<kByMass>(kept, spread, inside(need - slack), inside(need + slack));
  const double listed = static_cast<double>(listed_from(kept, spread, guess.low)) * spread.each;
  guess.from_top = listed * 1.25 < room;
  if (guess.from_top || fits(guess)) return guess;
  const Guess middle = between_weights<kByMass>(kept, spread, inside(need), inside(need));
  const double rank = static_cast<double>(listed_from(kept, spread, middle.low));
  const double half = room / spread.each / 3;
  const double most = static_cast<double>(spread.count);
  guess = between_weights<false>(kept, spread, rank - half < 1 ? 1 : rank - half,
                                 rank + half > most ? most : rank + half);
  if (fits(guess)) return guess;
  return {middle.low, middle.high, false, true};
}

// A guess by tokens that lie evenly over the row: one and a half standard deviations around.
template <bool kByMass>
Guess guess_by_spread(const Kept& kept, const Bracket& bracket, uint64_t need, int64_t most) {
  constexpr int64_t kFewest = 16;
  const int64_t all = kept.row.blocks() * (kBlock / kLanes);
  int64_t vectors = most / kLanes;
  vectors = vectors < all ? vectors : all;
  const int64_t fit = kept.work.room / kLanes;
  vectors = vectors < fit ? vectors : fit;
  const int64_t count = list_spread(kept, bracket, vectors);
  const double weight = static_cast<double>(weight_of_listed<kByMass>(kept, count));
  if (count < kFewest || weight < 1) return halve(bracket);
  const double squares = kByMass ? sum_of_squares(kept.work.masses, count) : weight;
  const double share = static_cast<double>(need - bracket.above) /
                       static_cast<double>(bracket.below - bracket.above);
  const double slack = 1.5 * __builtin_sqrt(share * (1 - share) * squares) +
                       weight / static_cast<double>(count);
  const Spread spread = {count, static_cast<double>(all) / static_cast<double>(vectors)};
  Guess guess = guess_around<kByMass>(kept, spread, weight, share * weight, slack);
  guess.low = guess.low > bracket.low ? guess.low : bracket.low;
  guess.high = guess.from_top || guess.high > bracket.high ? bracket.high : guess.high;
  return guess.low < guess.high ? guess : halve(bracket);
}

template <bool kByMass>
Guess guess_cut(const Kept& kept, const Bracket& bracket, uint64_t need, int round) {
  constexpr int64_t kSpread = 4096;
  constexpr int kRounds = 5;
  return round < kRounds ? guess_by_spread<kByMass>(kept, bracket, need, kSpread << round) : halve(bracket);
}

// ---- the search -----------------------------------------------------------------------------------------

inline bool is_one_logit(uint64_t low, uint64_t high) { return high <= key_above(logit_of(low)); }

template <bool kByMass>
class Search {
 public:
  // `need` is at least 1, and what lies from bracket.low up weighs as much.
  Search(const Kept& kept, uint64_t need, const Bracket& bracket)
      : kept_(kept), need_(need), bracket_(bracket), top_(key_above(kept.law.top)) {}

  // After the rounds that guess, every one halves the bracket; a row that changes meanwhile ends with an
  // empty one.
  Found run() {
    Found found = {0};
    for (int round = 0; bracket_.low < bracket_.high; ++round) {
      const Guess guess = guess_cut<kByMass>(kept_, bracket_, need_, round);
      if (guess.from_top) {
        bracket_.high = top_;
        bracket_.above = 0;
      } else if (guess.high < bracket_.high) {
        narrow(guess.high);
        if (bracket_.low == guess.high) continue;
      }
      const int64_t count = guess.one_logit && is_one_logit(guess.low, bracket_.high)
                                ? kTooMany
                                : list_between(kept_.row, kept_.work, guess.low, bracket_.high);
      if (count != kTooMany) {
        if (cut_listed(guess.low, count, &found)) return found;
      } else if (is_one_logit(guess.low, bracket_.high)) {
        if (cut_one_logit(guess.low, &found)) return found;
      } else {
        narrow(guess.low);
      }
    }
    return {bracket_.low};
  }

 private:
  void narrow(uint64_t key) {
    const uint64_t weight = weight_from_key<kByMass>(kept_, key);
    summed_ = key;
    if (weight >= need_) {
      bracket_.low = key;
      bracket_.below = weight;
    } else {
      bracket_.high = key;
      bracket_.above = weight;
    }
  }

  // What lies between the guess and the bracket's high end is too light.
  void lower(uint64_t key, uint64_t weight) {
    bracket_.high = key;
    bracket_.above += weight;
  }

  // Looks for the cut among the listed keys, which are those from `low` up to the bracket's high end.
  bool cut_listed(uint64_t low, int64_t count, Found* found) {
    const uint64_t weight = weight_of_listed<kByMass>(kept_, count);
    if (bracket_.above + weight < need_) {
      lower(low, weight);
      return false;
    }
    found->cut = cut_of_listed<kByMass>(kept_, count, need_ - bracket_.above);
    found->listed = bracket_.high == top_;
    found->count = count;
    if (!kByMass) return true;
    found->weighed = !found->listed && summed_ == bracket_.high;
    if (found->weighed) add_listed_to_sums(count, found->cut);
    if (found->weighed || kept_.reduction != kExact) {
      found->total = bracket_.above + listed_weight_from(kept_, count, found->cut);
    }
    return true;
  }

  void add_listed_to_sums(int64_t count, uint64_t cut) const {
    for (int64_t i = 0; i < count; ++i) {
      if (kept_.work.keys[i] < cut) continue;
      kept_.work.sums[token_of(kept_.work.keys[i]) / (kSpan * kBlock)] += kept_.work.masses[i];
    }
  }

  // Looks for the cut among tokens of one logit, which are too many to list: they weigh the same.
  bool cut_one_logit(uint64_t low, Found* found) {
    const uint64_t each = kByMass ? mass_of(kept_.law, logit_of(low)) : 1;
    const uint64_t missing = need_ - bracket_.above;
    const uint64_t wanted = each == 0 ? ~uint64_t{0} >> 1 : (missing - 1) / each + 1;
    if (kByMass && bracket_.high == top_) {
      for (int64_t span = 0; span < spans_of<SpanMass>(kept_.row); ++span) kept_.work.sums[span] = 0;
      summed_ = top_;
    }
    const bool add = kByMass && summed_ == bracket_.high;
    const uint64_t count = count_equal(low, wanted, add ? each : 0, &found->cut);
    if (count == wanted) {
      found->weighed = add;
      found->total = bracket_.above + count * each;
      return true;
    }
    summed_ = 0;
    lower(low, count * each);
    return false;
  }

  // The key of the n-th of them; returns n, or how many there are if they are fewer. Up to there each adds
  // its mass to its span's.
  uint64_t count_equal(uint64_t low, uint64_t n, uint64_t each, uint64_t* key) const {
    const Cut from(low);
    const Cut to(bracket_.high);
    uint64_t count = 0;
    for (int64_t b = 0; b < kept_.row.blocks(); ++b) {
      if (kept_.work.best[b] < logit_of(low)) continue;
      const char* block = kept_.row.block(b);
      uint64_t& sum = kept_.work.sums[b / kSpan];
      for (int64_t first = b * kBlock; first < (b + 1) * kBlock; first += kLanes, block += 4 * kLanes) {
        const Floats logits = load(block);
        uint32_t found = at_least(logits, from.bound_at(first)) & ~at_least(logits, to.bound_at(first));
        const uint64_t here = static_cast<uint64_t>(__builtin_popcount(found));
        if (count + here < n) {
          count += here;
          sum += here * each;
          continue;
        }
        sum += (n - count) * each;
        for (; count + 1 < n; ++count) found &= found - 1;
        *key = key_of(logit_of(low), first + __builtin_ctz(found));
        return n;
      }
    }
    return count;
  }

  const Kept& kept_;
  const uint64_t need_;
  Bracket bracket_;
  const uint64_t top_;
  uint64_t summed_ = 0;  // the key whose masses work.sums hold
};

// The largest key so that the tokens from it up weigh at least `need`.
template <bool kByMass>
Found cut_in_place(const Kept& kept, uint64_t need, const Bracket& bracket) {
  return Search<kByMass>(kept, need, bracket).run();
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
