// The cut of a kept set with too many tokens to list. A sample of evenly spaced tokens gives two keys that should
// enclose the cut; tokens above them are summed in place, and only those between them are listed. A wrong guess
// costs a pass and changes no result.
#pragma once

#include "sampling/total_mass.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// Weights are masses, or 1 for each token. The cut is >= low and < high.
struct Bracket {
  uint64_t low;
  uint64_t high;
  uint64_t below;  // the weight of the tokens from `low` up: enough
  uint64_t above;  // the weight of the tokens from `high` up: not enough
};

// A cut, and what a search knows of the tokens from there up.
struct SearchResult {
  uint64_t cut;
  bool listed = false;  // `count` keys are listed, these tokens among them
  int64_t count = 0;
  bool has_masses = false;  // work.span_masses are theirs
  uint64_t total = 0;  // their mass if has_masses, or if the reduction is not exact; 0: unknown
};

template <bool kByMass>
uint64_t weight_from_key(const KeptSet& kept, uint64_t key) {
  return kByMass ? mass_from(kept.row, kept.work, kept.scaling, key)
                 : static_cast<uint64_t>(count_from(kept.row, kept.work.block_max, key));
}

template <bool kByMass>
uint64_t weight_of_listed(const KeptSet& kept, int64_t count) {
  return kByMass ? compute_listed_masses(kept.work, kept.scaling, count) : static_cast<uint64_t>(count);
}

inline uint64_t listed_weight_from(const KeptSet& kept, int64_t count, uint64_t key) {
  return weight_from(kept.work.keys, kept.work.masses, count, key);
}

template <bool kByMass>
uint64_t cut_of_listed(const KeptSet& kept, int64_t count, uint64_t need) {
  return select_cut(listed_keys(kept, kByMass), count, need, scratch(kept, kByMass));
}

// ---- guesses --------------------------------------------------------------------------------------------

// Two keys that should enclose the cut.
struct Guess {
  uint64_t low;
  uint64_t high;
  bool from_top = false;  // all tokens from `low` up can be listed
  bool one_logit = false;  // the tokens between have one logit and are too many to list
};

// A listed sample of the tokens, and how many tokens each of them represents.
struct SpacedSample {
  int64_t count;
  double each;
};

// Half of the remaining keys, for when samples mislead. No token has a key with a denormal logit, and such a key
// cannot be compared with unread logits: take the next larger key of a token, or else the last smaller one.
inline Guess bisect(const Bracket& bracket) {
  const uint64_t middle = bracket.low + (bracket.high - bracket.low) / 2;
  const float logit = logit_of(middle);
  if (ordinal(read(logit)) == ordinal(logit)) return {middle, bracket.high};
  const uint64_t next = key_above(logit);
  if (next < bracket.high) return {next, bracket.high};
  const uint64_t last = sort_key(logit > 0 ? 0.0f : -kSmallestNormal, 0);
  return {last > bracket.low ? last : bracket.low, bracket.high};
}

// Lists the tokens of the bracket in evenly spaced vectors of the row; returns their number.
inline int64_t list_spaced(const KeptSet& kept, const Bracket& bracket, int64_t vectors) {
  const int64_t all = kept.row.blocks() * (kBlock / kLanes);
  const Cut low(bracket.low);
  const Cut high(bracket.high);
  const Matches matches = match_buffers(kept.work);
  int64_t count = 0;
  for (int64_t i = 0; i < vectors; ++i) {
    const int64_t first = i * all / vectors * kLanes;
    const char* vector = kept.row.block(first / kBlock) + 4 * (first % kBlock);
    const Floats logits = load(vector);
    const uint32_t found[1] = {at_least(logits, low.bound_at(first)) & ~at_least(logits, high.bound_at(first))};
    count = append_matches(matches, count, vector, found, first);
  }
  return write_keys(matches, count, kept.work.keys);
}

inline double sum_of_squares(const uint64_t* words, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double word = static_cast<double>(static_cast<int64_t>(words[i]));
    sum += word * word;
  }
  return sum;
}

// A guess: the logits of the two listed keys at which these weights are reached.
template <bool kByMass>
Guess between_weights(const KeptSet& kept, SpacedSample sample, double less, double more) {
  const uint64_t last = cut_of_listed<kByMass>(kept, sample.count, static_cast<uint64_t>(more));
  const uint64_t first = cut_of_listed<kByMass>(kept, sample.count, static_cast<uint64_t>(less));
  return {lowest_key_of(logit_of(last)), key_above(logit_of(first))};
}

inline int64_t listed_from(const KeptSet& kept, SpacedSample sample, uint64_t key) {
  return static_cast<int64_t>(weight_from(kept.work.keys, nullptr, sample.count, key));
}

// A guess from where the sample's weight is `need`, plus and minus `slack`. If too many tokens for a list are there,
// fewer; if those have one logit, that logit.
template <bool kByMass>
Guess guess_around(const KeptSet& kept, SpacedSample sample, double weight, double need, double slack) {
  const auto clamp_token = [&](double at) { return at < 1 ? 1 : at > weight ? weight : at; };
  const double capacity = static_cast<double>(kept.work.capacity - kBlock);
  const auto fits = [&](const Guess& guess) {
    const int64_t count = listed_from(kept, sample, guess.low) - listed_from(kept, sample, guess.high);
    return static_cast<double>(count) * sample.each * 1.25 < capacity;
  };
  Guess guess = between_weights<kByMass>(kept, sample, clamp_token(need - slack), clamp_token(need + slack));
  const double listed = static_cast<double>(listed_from(kept, sample, guess.low)) * sample.each;
  guess.from_top = listed * 1.25 < capacity;
  if (guess.from_top || fits(guess)) return guess;
  const Guess middle = between_weights<kByMass>(kept, sample, clamp_token(need), clamp_token(need));
  const double rank = static_cast<double>(listed_from(kept, sample, middle.low));
  const double half = capacity / sample.each / 3;
  const double most = static_cast<double>(sample.count);
  guess = between_weights<false>(kept, sample, rank - half < 1 ? 1 : rank - half,
                                 rank + half > most ? most : rank + half);
  if (fits(guess)) return guess;
  return {middle.low, middle.high, false, true};
}

// A guess from a sample of evenly spaced tokens: 1.5 standard deviations around the estimate.
template <bool kByMass>
Guess guess_by_sample(const KeptSet& kept, const Bracket& bracket, uint64_t need, int64_t most) {
  constexpr int64_t kFewest = 16;
  const int64_t all = kept.row.blocks() * (kBlock / kLanes);
  int64_t vectors = most / kLanes;
  vectors = vectors < all ? vectors : all;
  const int64_t fit = kept.work.capacity / kLanes;
  vectors = vectors < fit ? vectors : fit;
  const int64_t count = list_spaced(kept, bracket, vectors);
  const double weight = static_cast<double>(weight_of_listed<kByMass>(kept, count));
  if (count < kFewest || weight < 1) return bisect(bracket);
  const double squares = kByMass ? sum_of_squares(kept.work.masses, count) : weight;
  const double share = static_cast<double>(need - bracket.above) /
                       static_cast<double>(bracket.below - bracket.above);
  const double slack = 1.5 * __builtin_sqrt(share * (1 - share) * squares) +
                       weight / static_cast<double>(count);
  const SpacedSample sample = {count, static_cast<double>(all) / static_cast<double>(vectors)};
  Guess guess = guess_around<kByMass>(kept, sample, weight, share * weight, slack);
  guess.low = guess.low > bracket.low ? guess.low : bracket.low;
  guess.high = guess.from_top || guess.high > bracket.high ? bracket.high : guess.high;
  return guess.low < guess.high ? guess : bisect(bracket);
}

template <bool kByMass>
Guess guess_cut(const KeptSet& kept, const Bracket& bracket, uint64_t need, int round) {
  constexpr int64_t kSampled = 4096;
  constexpr int kRounds = 5;
  return round < kRounds ? guess_by_sample<kByMass>(kept, bracket, need, kSampled << round) : bisect(bracket);
}

// ---- the search -----------------------------------------------------------------------------------------

inline bool is_one_logit(uint64_t low, uint64_t high) { return high <= key_above(logit_of(low)); }

template <bool kByMass>
class Search {
 public:
  // `need` is at least 1 and at most bracket.below.
  Search(const KeptSet& kept, uint64_t need, const Bracket& bracket)
      : kept_(kept), need_(need), bracket_(bracket), top_(key_above(kept.scaling.top)) {}

  // After the rounds that guess, each round halves the bracket; if another thread changes the row, the bracket
  // becomes empty.
  SearchResult run() {
    SearchResult found = {0};
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

  // The tokens from `key` to the high end weigh `weight`, which is too little.
  void lower(uint64_t key, uint64_t weight) {
    bracket_.high = key;
    bracket_.above += weight;
  }

  // Searches the listed keys, which are those from `low` to the bracket's high end.
  bool cut_listed(uint64_t low, int64_t count, SearchResult* found) {
    const uint64_t weight = weight_of_listed<kByMass>(kept_, count);
    if (bracket_.above + weight < need_) {
      lower(low, weight);
      return false;
    }
    found->cut = cut_of_listed<kByMass>(kept_, count, need_ - bracket_.above);
    found->listed = bracket_.high == top_;
    found->count = count;
    if (!kByMass) return true;
    found->has_masses = !found->listed && summed_ == bracket_.high;
    if (found->has_masses) add_listed_to_sums(count, found->cut);
    if (found->has_masses || kept_.reduction != kExact) {
      found->total = bracket_.above + listed_weight_from(kept_, count, found->cut);
    }
    return true;
  }

  void add_listed_to_sums(int64_t count, uint64_t cut) const {
    for (int64_t i = 0; i < count; ++i) {
      if (kept_.work.keys[i] < cut) continue;
      kept_.work.span_masses[token_of(kept_.work.keys[i]) / (kSpan * kBlock)] += kept_.work.masses[i];
    }
  }

  // Searches tokens of one logit, which are too many to list and have equal weights.
  bool cut_one_logit(uint64_t low, SearchResult* found) {
    const uint64_t each = kByMass ? mass_of(kept_.scaling, logit_of(low)) : 1;
    const uint64_t missing = need_ - bracket_.above;
    const uint64_t wanted = each == 0 ? ~uint64_t{0} >> 1 : (missing - 1) / each + 1;
    if (kByMass && bracket_.high == top_) {
      for (int64_t span = 0; span < spans_of<SpanMass>(kept_.row); ++span) kept_.work.span_masses[span] = 0;
      summed_ = top_;
    }
    const bool add = kByMass && summed_ == bracket_.high;
    const uint64_t count = count_equal(low, wanted, add ? each : 0, &found->cut);
    if (count == wanted) {
      found->has_masses = add;
      found->total = bracket_.above + count * each;
      return true;
    }
    summed_ = 0;
    lower(low, count * each);
    return false;
  }

  // Finds the key of the n-th of them; returns n, or their number if there are fewer. Adds the mass of each one
  // up to the n-th to its span's.
  uint64_t count_equal(uint64_t low, uint64_t n, uint64_t each, uint64_t* key) const {
    const Cut from(low);
    const Cut to(bracket_.high);
    uint64_t count = 0;
    for (int64_t b = 0; b < kept_.row.blocks(); ++b) {
      if (kept_.work.block_max[b] < logit_of(low)) continue;
      const char* block = kept_.row.block(b);
      uint64_t& sum = kept_.work.span_masses[b / kSpan];
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
        *key = sort_key(logit_of(low), first + __builtin_ctz(found));
        return n;
      }
    }
    return count;
  }

  const KeptSet& kept_;
  const uint64_t need_;
  Bracket bracket_;
  const uint64_t top_;
  uint64_t summed_ = 0;  // work.span_masses are those of the tokens from this key up
};

// The largest key such that the tokens from it up weigh at least `need`.
template <bool kByMass>
SearchResult cut_in_place(const KeptSet& kept, uint64_t need, const Bracket& bracket) {
  return Search<kByMass>(kept, need, bracket).run();
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
