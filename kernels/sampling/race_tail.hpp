// Section 6, step 4: the tail of a race, a stream of arrivals at points of tokens and heights.
#pragma once

#include "sampling/race_members.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

constexpr int64_t kMostArrivals = 32768;

// What all draws of a row share. The tail's clock goes 2^(v+q) times as fast as time; exactly it is counted in steps of
// 2^-32.
struct TailShape {
  int v;
  int q;
  uint64_t floor() const { return uint64_t{1} << q; }
  int64_t token_of(uint64_t point) const { return static_cast<int64_t>(point >> (64 - v)); }
  uint64_t height_of(uint64_t point) const { return point << v >> (64 - q); }
  double clock_at(double time) const { return time * static_cast<double>(uint64_t{1} << (v + q)); }
};

// The last step at or before this clock.
inline uint64_t steps_at(double clock) {
  const double steps = clock * 0x1p32;
  return steps < 0x1p62 ? static_cast<uint64_t>(steps) : ~uint64_t{0};
}

// kLanes points of the tail.
struct Points {
  WordPair words;
  // Their tokens, and the upper 24 bits of their heights.
  FASTSAMPLE_INLINE Uints tokens(const TailShape& shape) const {
    return (Uints)upper_halves(words) >> static_cast<uint32_t>(32 - shape.v);
  }
  FASTSAMPLE_INLINE Uints high_bits(const TailShape& shape) const {
    const WordPair rest = each_half([&](int i) { return words.half[i] << static_cast<uint64_t>(shape.v); });
    return (Uints)upper_halves(rest) >> 8;
  }
};

// How a tail ended: with a token, or because time or arrivals ran out.
struct TailEnd {
  int64_t token;  // -1: none
  bool out_of_time;
};

// kLanes arrivals, with their exact clocks.
struct ExactArrivals {
  WordPair points;
  uint64_t steps[kLanes];
  uint32_t counting;  // a bit for each that counts
  uint64_t steps_up_to(int lane) const { return sum_words(steps, lane + 1); }
};

// The stream of arrivals, one for each place.
class Tail {
 public:
  Tail(const Row& row, Scaling scaling, TailShape shape, Members& members)
      : row_(row), scaling_(scaling), shape_(shape), members_(members) {}

  // Looks for the first arrival that counts until the clock is past `last`. Near clocks decide it nearly always.
  TailEnd run(const Place& place, double last) {
    return last < kNever ? run_until(place, last) : run_all(place);
  }

  // The arrivals from the j-th on.
  __attribute__((noinline)) ExactArrivals exact_arrivals(const Place& place, int64_t j) const {
    const RandomWords words = random_words(place, counting_from(static_cast<uint64_t>(j)), kArrivalPurpose);
    const WordPair steps = each_half([&](int i) { return in_steps(clock_of(words.low.half[i])); });
    ExactArrivals arrivals = {words.high, {}, 0};
    std::memcpy(arrivals.steps, &steps, sizeof steps);
    for (uint32_t hits = may_count({words.high}); hits; hits &= hits - 1) {
      const int lane = __builtin_ctz(hits);
      arrivals.counting |= uint32_t{counts(words.high, lane)} << lane;
    }
    return arrivals;
  }

  int64_t token_at(const WordPair& points, int lane) const { return shape_.token_of(word_at(points, lane)); }

 private:
  TailEnd run_all(const Place& place) {
    WordPair numbers = counting_from(0);
    for (int64_t j = 0; j < kMostArrivals; j += kLanes) {
      const WordPair points = random_words(place, numbers, kArrivalPurpose).high;
      const uint32_t hits = may_count({points});
      const int lane = hits ? first_that_counts(points, hits) : -1;
      if (lane >= 0) return {token_at(points, lane), false};
      numbers = each_half([&](int i) { return numbers.half[i] + uint64_t{kLanes}; });
    }
    return {-1, false};
  }

  TailEnd run_until(const Place& place, double last) {
    double elapsed = 0;
    double error = 0;
    WordPair numbers = counting_from(0);
    for (int64_t j = 0; j < kMostArrivals; j += kLanes) {
      const RandomWords words = random_words(place, numbers, kArrivalPurpose);
      const Uints upper = (Uints)upper_halves(words.low);
      if (any_below(upper, kFarWord)) return run_exactly(place, steps_at(last));
      const Floats clocks = near_clocks(upper);
      const uint32_t hits = may_count({words.high});
      if (hits) {
        const int lane = first_that_counts(words.high, hits);
        if (lane >= 0) {
          const double here = elapsed + clocks_up_to(clocks, lane);
          error += kLanes * kNearClock;
          if (here + error < last) return {token_at(words.high, lane), false};
          return here - error > last ? TailEnd{-1, true} : run_exactly(place, steps_at(last));
        }
      }
      elapsed += sum_of(clocks);
      error += kLanes * kNearClock;
      if (elapsed - error > last) return {-1, true};
      numbers = each_half([&](int i) { return numbers.half[i] + uint64_t{kLanes}; });
    }
    return elapsed + error < last ? TailEnd{-1, false} : run_exactly(place, steps_at(last));
  }

  // The same until the last step.
  __attribute__((noinline)) TailEnd run_exactly(const Place& place, uint64_t last) {
    uint64_t elapsed = 0;
    for (int64_t j = 0; j < kMostArrivals; j += kLanes) {
      const ExactArrivals arrivals = exact_arrivals(place, j);
      if (arrivals.counting) {
        const int lane = __builtin_ctz(arrivals.counting);
        const bool in_time = elapsed + arrivals.steps_up_to(lane) <= last;
        return {in_time ? token_at(arrivals.points, lane) : -1, !in_time};
      }
      elapsed += arrivals.steps_up_to(kLanes - 1);
      if (elapsed > last) return {-1, true};
    }
    return {-1, false};
  }

  static double clocks_up_to(Floats clocks, int lane) {
    double sum = 0;
    for (int i = 0; i <= lane; ++i) sum += static_cast<double>(clocks[i]);
    return sum;
  }

  static uint64_t word_at(const WordPair& words, int lane) {
    uint64_t lanes[kLanes];
    std::memcpy(lanes, &words, sizeof lanes);
    return lanes[lane];
  }

  // The lanes whose mass may be above the height: those whose y is not below the height's logarithm, which is known
  // before the logits are. A height is at least its upper bits.
  FASTSAMPLE_INLINE uint32_t may_count(const Points& points) const {
    const Uints tokens = points.tokens(shape_);
    const Floats least = near_log2(__builtin_convertvector((Ints)points.high_bits(shape_), Floats)) +
                         height_unit_;
    const Floats logits = row_.logits_at(tokens);
    return at_least((logits - scaling_.top) * scaling_.scale, least) & members_.may_have(tokens, logits);
  }

  int first_that_counts(const WordPair& points, uint32_t hits) const {
    for (; hits; hits &= hits - 1) {
      const int lane = __builtin_ctz(hits);
      if (counts(points, lane)) return lane;
    }
    return -1;
  }

  FASTSAMPLE_INLINE bool counts(const WordPair& points, int lane) const {
    const uint64_t point = word_at(points, lane);
    const int64_t token = shape_.token_of(point);
    const float logit = row_.logit(token);
    return mass_of(scaling_, logit) > shape_.height_of(point) && members_.has(sort_key(logit, token));
  }

  const Row& row_;
  const Scaling scaling_;
  const TailShape shape_;
  Members& members_;
  // y of a mass of one step of the upper bits, less than the errors of logarithms and masses.
  static constexpr float kSlack = 0x1p-11f;
  const float height_unit_ = static_cast<float>(shape_.q - 24 - kTopMassBits) - kSlack;
};

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
