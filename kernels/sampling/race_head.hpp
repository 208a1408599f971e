// Section 6: the level of a race (step 2), its heavy tokens, and arrivals by clocks (steps 1 and 3).
#pragma once

#include "math/clocks.hpp"
#include "sampling/filters.hpp"
#include "sampling/race_settings.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// ---- arrivals by clocks ---------------------------------------------------------------------------------

constexpr double kNever = std::numeric_limits<double>::infinity();

// The tokens of listed keys.
inline WordPair tokens_of(const uint64_t* keys) {
  WordPair pair;
  std::memcpy(&pair, keys, sizeof pair);
  return each_half([&](int i) { return ~pair.half[i] & 0xFFFFFFFFu; });
}

// Writes when tokens arrive by their clocks, whose rates are the masses above `floor`, and infinity up to a full
// vector: a mass of `floor` never arrives. tokens_at(i) are the tokens from the i-th on.
template <class TokensAt>
inline void write_times(const Place& place, TokensAt tokens_at, const uint64_t* masses, uint64_t floor,
                        int64_t count, double* times) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const RandomWords words = random_words(place, tokens_at(i), kClockPurpose);
    WordPair rates;
    std::memcpy(&rates, masses + i, sizeof rates);
    for (int half = 0; half < 2; ++half) {
      const Doubles time = clock_of(words.low.half[half]) /
                           as_double<Doubles, Uwords>(rates.half[half] - floor);
      std::memcpy(times + i + half * kWordLanes, &time, sizeof time);
    }
  }
  for (int64_t i = count; i % kLanes != 0; ++i) times[i] = kNever;
}

inline Doubles load_doubles(const double* source) {
  Doubles lanes;
  std::memcpy(&lanes, source, sizeof lanes);
  return lanes;
}

// The least of `count` times, which must be followed by infinity up to a full vector.
inline double least_time(const double* times, int64_t count) {
  Doubles least = Doubles{} + kNever;
  for (int64_t i = 0; i < count; i += kWordLanes) {
    const Doubles lanes = load_doubles(times + i);
    least = lanes < least ? lanes : least;
  }
  double time = least[0];
  for (int lane = 1; lane < kWordLanes; ++lane) time = least[lane] < time ? least[lane] : time;
  return time;
}

// An arrival: its place in a list and its time; infinity where there is none.
struct Arrival {
  int64_t index;
  double time;
};

// The first of some arrivals; of equal times the one with the lowest index.
inline Arrival first_arrival(const double* times, int64_t count) {
  const double time = least_time(times, count);
  int64_t index = 0;
  while (index < count - 1 && times[index] != time) ++index;
  return {index, time};
}

// ---- the level ------------------------------------------------------------------------------------------

constexpr int kTopMassBits = 40;
constexpr int kLevelBits = 47;

// A mass of 2^q or more has a y of at least q - 40 - 2^-16, and every y of at least q - 40 + 2^-16 has such a mass.
// Another 2^-16 covers the rounding of y and of the bounds here.
constexpr double kLevelSlack = 0x1p-15;

// A number that the logits of all tokens with a mass of 2^q or more reach.
inline float lower_bound_of(Scaling scaling, int q) {
  const double bound = scaling.top + (q - kTopMassBits - kLevelSlack) / scaling.scale;
  if (bound <= static_cast<double>(kLowest)) return kLowest;
  const float nearest = static_cast<float>(bound);
  return static_cast<double>(nearest) <= bound ? nearest : from_ordinal(ordinal(nearest) - 1);
}

// A number that only logits of tokens with such a mass reach. Where differences of logits overflow y is -64.
inline float upper_bound_of(Scaling scaling, int q) {
  constexpr double kMost = 0x1p127;
  const double distance = (kTopMassBits - q - kLevelSlack) / scaling.scale;
  const double bound = scaling.top - (distance < kMost ? distance : kMost);
  const float nearest = static_cast<float>(bound);
  return static_cast<double>(nearest) >= bound ? nearest : from_ordinal(ordinal(nearest) + 1);
}

// The most heavy tokens of a row of 2^22.
constexpr int64_t kMostHeavy = 362;

// Keeps the listed tokens from `start` to `end` whose mass is at least `least`, at `start`; returns where they end.
inline int64_t keep_masses_from(KeyMasses list, int64_t start, int64_t end, uint64_t least) {
  int64_t count = start;
  for (int64_t i = start; i < end; ++i) {
    const uint64_t mass = list.masses[i];
    list.keys[count] = list.keys[i];
    list.masses[count] = mass;
    count += mass >= least;
  }
  return count;
}

// Finds the level of a row, and lists its heavy tokens: those of a mass of 2^q or more that pass all thresholds.
class LevelSearch {
 public:
  LevelSearch(const KeptSet& kept, int v)
      : row_(kept.row),
        work_(kept.work),
        scaling_(kept.scaling),
        passing_(logit_of(kept.passing)),
        most_(most_heavy_tokens(v)),
        q_(kLevelBits > v ? kLevelBits - v : 0) {}

  void run() {
    skip_levels();
    if (q_ <= kTopMassBits) list_heavy();
  }

  int q() const { return q_; }
  // The number of heavy tokens, in work.keys in ascending token and with their masses.
  int64_t count() const { return count_; }

 private:
  // Goes up to the first level that block maxima do not rule out.
  void skip_levels() {
    const Groups blocks = {work_.block_max, row_.blocks()};
    int above = kTopMassBits + 1;
    while (q_ < above) {
      const int middle = q_ + (above - q_) / 2;
      const float bound = upper_bound_of(scaling_, middle);
      if (count_at_least(blocks, bound > passing_ ? bound : passing_) > most_) {
        q_ = middle + 1;
      } else {
        above = middle;
      }
    }
  }

  // All logits that count at this level reach it.
  float bound() const {
    const float lowest = read(lower_bound_of(scaling_, q_));
    return lowest > passing_ ? lowest : passing_;
  }

  void list_heavy() {
    float lowest = bound();
    const int64_t blocks = blocks_from(row_, work_, lowest);
    const Matches matches = match_buffers(work_);
    const int64_t fits = work_.capacity - most_ - kBlock;
    const int64_t most_found = fits < most_ + kSpare ? fits : most_ + kSpare;
    int64_t found = 0;
    for (int64_t n = 0; n < blocks; ++n) {
      if (found > most_found) {
        keep_heavy(matches, found);
        found = 0;
        lowest = bound();
      }
      const int64_t b = work_.open_blocks[n];
      if (work_.block_max[b] < lowest) continue;
      const Floats bounds = fill(unread_bound(lowest));
      const char* block = row_.block(b);
      uint32_t bits[kBlock / kLanes];
      for (int i = 0; i < kBlock / kLanes; ++i) bits[i] = at_least(load(block + 4 * kLanes * i), bounds);
      found = append_matches(matches, found, block, bits, b * kBlock);
    }
    keep_heavy(matches, found);
  }

  // Adds the heavy ones of the tokens that were found to the list. Goes up while it is too long.
  void keep_heavy(Matches matches, int64_t found) {
    uint64_t* const keys = work_.keys + count_;
    write_keys(matches, found, keys);
    for (int64_t i = 0; i < found; i += kLanes) {
      store_masses(masses_of(scaling_, logits_of(keys + i)), work_.masses + count_ + i);
    }
    const KeyMasses list = {work_.keys, work_.masses};
    count_ = keep_masses_from(list, count_, count_ + found, uint64_t{1} << q_);
    while (count_ > most_) {
      // No mass is above that of the top token, unless another thread has changed the row.
      q_ = q_ < kTopMassBits ? q_ + 1 : kTopMassBits + 1;
      count_ = q_ <= kTopMassBits ? keep_masses_from(list, 0, count_, uint64_t{1} << q_) : 0;
    }
  }

  // So many tokens more than the list may have are found before those that are heavy are looked at.
  static constexpr int64_t kSpare = 32;

  const Row& row_;
  Workspace& work_;
  const Scaling scaling_;
  const float passing_;  // the lowest logit that passes all thresholds
  const int64_t most_;
  int q_;
  int64_t count_ = 0;
};

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
