// Section 6, "Without replacement": distinct tokens of a race, in the order of their first arrivals.
#pragma once

#include "sampling/draw.hpp"
#include "sampling/race_list.hpp"
#include "sampling/race_tail.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// The tokens so far, and which they are.
class DistinctTokens {
 public:
  DistinctTokens(const KeptSet& kept, const RowOutput& out)
      : drawn_(kept.work.drawn), tokens_(out.tokens), most_(out.draws) {
    std::memset(drawn_, 0, static_cast<size_t>(kept.row.blocks()) * (kBlock / 8));
  }

  int64_t count() const { return count_; }
  bool is_full() const { return count_ == most_; }
  int64_t operator[](int64_t i) const { return tokens_[i]; }
  bool has(int64_t token) const { return drawn_[token / 64] >> (token % 64) & 1; }

  // Passes over a token that it has.
  void add(int64_t token) {
    if (is_full() || has(token)) return;
    drawn_[token / 64] |= uint64_t{1} << (token % 64);
    tokens_[count_++] = token;
  }

 private:
  uint64_t* const drawn_;  // a bit for each token
  int64_t* const tokens_;
  const int64_t most_;
  int64_t count_ = 0;
};

// Arrivals in the order of their times, of equal times that with the lower index first: a heap of indices.
class ArrivalQueue {
 public:
  // Those that never come are left out.
  ArrivalQueue(const double* times, int64_t count, uint32_t* heap) : times_(times), heap_(heap) {
    for (int64_t i = 0; i < count; ++i) {
      heap_[size_] = static_cast<uint32_t>(i);
      size_ += times[i] < kNever;
    }
    for (int64_t i = size_ / 2 - 1; i >= 0; --i) sift_down(i);
  }

  bool is_empty() const { return size_ == 0; }
  uint32_t index() const { return heap_[0]; }
  double time() const { return times_[heap_[0]]; }

  void pop() {
    heap_[0] = heap_[--size_];
    sift_down(0);
  }

 private:
  bool is_before(uint32_t one, uint32_t other) const {
    return times_[one] < times_[other] || (times_[one] == times_[other] && one < other);
  }

  void sift_down(int64_t at) {
    for (;;) {
      int64_t child = 2 * at + 1;
      if (child >= size_) return;
      if (child + 1 < size_ && is_before(heap_[child + 1], heap_[child])) ++child;
      if (!is_before(heap_[child], heap_[at])) return;
      const uint32_t index = heap_[at];
      heap_[at] = heap_[child];
      heap_[child] = index;
      at = child;
    }
  }

  const double* const times_;
  uint32_t* const heap_;
  int64_t size_ = 0;
};

// The workspace's memory for a heap, where no search uses it.
inline uint32_t* heap_buffer(const Workspace& work) { return reinterpret_cast<uint32_t*>(work.scratch_keys); }

// ---- listed rows ----------------------------------------------------------------------------------------

inline Status draw_distinct_listed(KeptSet& kept, const RowParams& params, const RowOutput& out) {
  list_kept(kept);
  if (kept.in_place) return kNoCapacity;
  compute_integer_masses(kept);
  const uint64_t* const keys = kept.work.keys;
  double* const times = time_buffer(kept.work);
  const auto tokens_at = [=](int64_t i) { return tokens_of(keys + i); };
  write_times(place_of(params, 0), tokens_at, kept.work.masses, 0, kept.count, times);
  ArrivalQueue queue(times, kept.count, heap_buffer(kept.work));
  for (int64_t i = 0; i < out.draws && !queue.is_empty(); ++i, queue.pop()) {
    out.tokens[i] = token_of(keys[queue.index()]);
  }
  return kOk;
}

// ---- other rows -----------------------------------------------------------------------------------------

// The tokens that arrive by their clocks. Membership is decided when they come.
class HeadArrivals {
 public:
  HeadArrivals(ArrivalQueue queue, const uint64_t* keys, TailShape shape, Members& members)
      : queue_(queue), keys_(keys), shape_(shape), members_(members) {}

  // Adds those that come before a step of the tail's clock.
  void add_before(uint64_t step, DistinctTokens& tokens) {
    while (!queue_.is_empty() && steps_at(shape_.clock_at(queue_.time())) < step) {
      const uint64_t key = keys_[queue_.index()];
      if (members_.has(key)) tokens.add(token_of(key));
      queue_.pop();
    }
  }

 private:
  ArrivalQueue queue_;
  const uint64_t* const keys_;
  const TailShape shape_;
  Members& members_;
};

// Adds the arrivals of tail and head in their order, until there are enough tokens or arrivals end.
inline void add_arrivals(const Place& place, const Tail& tail, HeadArrivals& head, DistinctTokens& tokens) {
  uint64_t elapsed = 0;
  for (int64_t j = 0; j < kMostArrivals && !tokens.is_full(); j += kLanes) {
    const ExactArrivals arrivals = tail.exact_arrivals(place, j);
    for (uint32_t hits = arrivals.counting; hits; hits &= hits - 1) {
      const int lane = __builtin_ctz(hits);
      head.add_before(elapsed + arrivals.steps_up_to(lane), tokens);
      tokens.add(tail.token_at(arrivals.points, lane));
    }
    elapsed += arrivals.steps_up_to(kLanes - 1);
    head.add_before(elapsed, tokens);
  }
}

// Draws the tokens that have not arrived by the inverse method, from a kept set in place whose masses are computed. It
// takes the masses of drawn tokens out of the kept set's sums.
inline void draw_rest(KeptSet& kept, const Place& place, DistinctTokens& tokens) {
  const auto mass_at = [&](int64_t token) { return mass_of(kept.scaling, kept.row.logit(token)); };
  const auto take_out = [&](int64_t token) {
    const uint64_t mass = mass_at(token);
    kept.work.span_masses[token / (kBlock * kSpan)] -= mass;
    kept.total -= mass;
  };
  // Of a block's masses those of drawn tokens become 0; returns what they were.
  const auto take_out_of_block = [&](int64_t b, uint64_t* masses) {
    uint64_t taken = 0;
    for (int64_t i = 0; i < kBlock; ++i) {
      if (!tokens.has(b * kBlock + i)) continue;
      taken += masses[i];
      masses[i] = 0;
    }
    return taken;
  };
  for (int64_t i = 0; i < tokens.count(); ++i) take_out(tokens[i]);
  while (!tokens.is_full() && kept.total > 0) {
    const uint32_t purpose = kAfterRacePurpose + 256 * static_cast<uint32_t>(tokens.count());
    const uint64_t u = uniform(place.seed, place.position, place.stream, purpose);
    const int64_t token = draw_in_place(kept, u, take_out_of_block);
    // Only where another thread has changed the row.
    if (token >= kept.row.vocabulary() || tokens.has(token)) break;
    tokens.add(token);
    take_out(token);
  }
  kept.has_masses = false;
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
