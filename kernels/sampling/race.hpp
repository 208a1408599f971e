// Section 6: draws by race from a kept set.
#pragma once

#include "sampling/race_distinct.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// All draws of a row that is not listed. The kept set is in place.
class RowRace {
 public:
  RowRace(KeptSet& kept, const OpenFilter& filter) : kept_(kept), members_(kept, filter) {}

  // False where the workspace is too small.
  bool prepare() {
    shape_.v = vocabulary_bits(kept_.row.vocabulary());
    LevelSearch search(kept_, shape_.v);
    search.run();
    shape_.q = search.q();
    head_count_ = search.count();
    if (kept_.min_keep > 1 && kept_.passing > lowest_key()) return list_head();
    const size_t bytes = static_cast<size_t>(head_count_) * sizeof(uint64_t);
    std::memcpy(head_keys_, head_.keys, bytes);
    std::memcpy(head_masses_, head_.masses, bytes);
    head_ = {head_keys_, head_masses_};
    members_.know_heavy(head_, head_count_, shape_.q);
    return true;
  }

  // Draws without replacement. Not inlined, as other draws would be slower by what it adds to their code.
  __attribute__((noinline)) void draw_distinct(const RowParams& params, const RowOutput& out) {
    const Place place = place_of(params, 0);
    DistinctTokens tokens(kept_, out);
    double few_times[kMostHeavy + kPadding];
    uint32_t few[kMostHeavy];
    double* const times = head_times(place, few_times);
    const ArrivalQueue queue(times, head_count_, times == few_times ? few : heap_buffer(kept_.work));
    HeadArrivals head(queue, head_.keys, shape_, members_);
    add_arrivals(place, Tail(kept_.row, kept_.scaling, shape_, members_), head, tokens);
    if (tokens.is_full()) return;
    members_.find_cut();
    compute_integer_masses(kept_);
    draw_rest(kept_, place, tokens);
  }

  int64_t draw(const RowParams& params, int64_t nth) {
    const Place place = place_of(params, nth);
    const Arrival first = first_of_head(place);
    const TailEnd end = Tail(kept_.row, kept_.scaling, shape_, members_)
                            .run(place, shape_.clock_at(first.time));
    if (end.token >= 0) return end.token;
    if (end.out_of_time) return token_of(head_.keys[first.index]);
    return draw_after_race(place);
  }

 private:
  // Lists the head anew where min_keep keeps tokens that thresholds drop: they do not count for the level.
  bool list_head() {
    head_count_ = 0;
    if (shape_.q >= kTopMassBits) return true;
    const uint64_t lowest = lowest_key_of(read(lower_bound_of(kept_.scaling, shape_.q)));
    const uint64_t from = lowest > kept_.cut ? lowest : kept_.cut;
    head_count_ = list_between(kept_.row, kept_.work, from, key_above(kept_.scaling.top));
    if (head_count_ == kTooMany) return false;
    compute_listed_masses(kept_.work, kept_.scaling, head_count_);
    head_count_ = keep_masses_from(head_, 0, head_count_, shape_.floor());
    return true;
  }

  // The first arrival of a kept token of the head; membership is decided in the order of their times.
  Arrival first_of_head(const Place& place) {
    double few_times[kMostHeavy + kPadding];
    double* const times = head_times(place, few_times);
    const uint64_t* const keys = head_.keys;
    for (int64_t n = 0; n < head_count_; ++n) {
      const Arrival first = first_arrival(times, head_count_);
      if (first.time == kNever || members_.has(keys[first.index])) return first;
      times[first.index] = kNever;
    }
    return {0, kNever};
  }

  // When the tokens of the head arrive: in `few_times`, or where they may be many, in the workspace.
  FASTSAMPLE_INLINE double* head_times(const Place& place, double* few_times) const {
    double* const times = head_.keys == head_keys_ ? few_times : time_buffer(kept_.work);
    const uint64_t* const keys = head_.keys;
    const auto tokens_at = [=](int64_t i) { return tokens_of(keys + i); };
    write_times(place, tokens_at, head_.masses, shape_.floor(), head_count_, times);
    return times;
  }

  int64_t draw_after_race(const Place& place) {
    members_.find_cut();
    compute_integer_masses(kept_);
    return draw_by_integers(kept_, uniform(place.seed, place.position, place.stream, kAfterRacePurpose));
  }

  KeptSet& kept_;
  Members members_;
  TailShape shape_ = {};
  KeyMasses head_ = listed_keys(kept_, true);
  int64_t head_count_ = 0;
  uint64_t head_keys_[kMostHeavy + kPadding];  // searches for a cut overwrite the workspace's lists
  uint64_t head_masses_[kMostHeavy + kPadding];
};

// Keeps in place what a row keeps as a list: a prefix, as it has passed no filter that keeps a band.
inline void keep_in_place(KeptSet& kept) {
  if (kept.in_place) return;
  kept.cut = smallest(kept.work.keys, kept.count);
  kept.in_place = true;
  kept.has_masses = false;
}

inline Status draw_races(KeptSet& kept, const OpenFilter& filter, const RowParams& params,
                         const RowOutput& out) {
  RowRace race(kept, filter);
  if (!race.prepare()) return kNoCapacity;
  if (out.distinct) {
    race.draw_distinct(params, out);
    return kOk;
  }
  for (int64_t i = 0; i < out.draws; ++i) out.tokens[i] = race.draw(params, i);
  return kOk;
}

// Writes the tokens of a row's draws, and how many tokens are kept if the caller wants it. `kept` are all tokens of
// the row; it becomes the kept set where `is_needed`.
inline Status draw_by_race(KeptSet& kept, const RowParams& params, bool is_needed, const RowOutput& out) {
  const bool listed = is_listed(params, kept.row.vocabulary());
  OpenFilter filter;
  if (!listed && !is_needed && can_stay_open(params, kept.row.vocabulary(), &filter)) {
    apply_thresholds(kept, params, &filter);
    return draw_races(kept, filter, params, out);
  }
  const int64_t done = listed && !is_needed && !out.distinct ? draw_of_candidates(kept, params, out) : 0;
  if (done == out.draws) return kOk;
  if (!apply_stages(kept, params)) return kNoCapacity;
  if (out.kept_count) *out.kept_count = count_kept(kept);
  if (!listed) {
    keep_in_place(kept);
    return draw_races(kept, {}, params, out);
  }
  if (out.distinct) return draw_distinct_listed(kept, params, out);
  draw_listed(kept, params, done, out);
  return kOk;
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
