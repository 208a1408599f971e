// Section 6, step 1: races among listed tokens, each with a clock of its own.
#pragma once

#include "sampling/race_members.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

inline Place place_of(const RowParams& params, int64_t nth) {
  return {params.seed, params.position, params.stream + static_cast<uint32_t>(nth)};
}

inline double* time_buffer(const Workspace& work) { return reinterpret_cast<double*>(work.scratch_masses); }

// ---- all kept tokens ------------------------------------------------------------------------------------

// Finds the first arrival among lists of keys, which are added in ascending token. Near clocks and near masses rule out
// most tokens; exact times decide among the others.
class ListRace {
 public:
  ListRace(const Place& place, Scaling scaling) : place_(place), scaling_(scaling) {}

  // Lanes past the end of the list may hold any keys.
  void add(const uint64_t* keys, int64_t count) {
    for (int64_t i = 0; i < count; i += kLanes) {
      const Floats logits = logits_of(keys + i);
      const RandomWords words = random_words(place_, tokens_of(keys + i), kClockPurpose);
      const Uints upper = (Uints)upper_halves(words.low);
      const Floats clocks = near_clocks(upper) - kNearClock;
      const Floats latest = near_masses(scaling_, logits) * near_latest_ + near_slack_;
      if (at_least(latest, clocks) || any_below(upper, kFarWord)) add_exactly(keys + i, count - i, words.low);
    }
  }

  int64_t token() const { return token_; }

 private:
  __attribute__((noinline)) void add_exactly(const uint64_t* keys, int64_t count, const WordPair& words) {
    double clocks[kLanes];
    uint64_t masses[kLanes];
    for (int half = 0; half < 2; ++half) {
      const Doubles exact = clock_of(words.half[half]);
      std::memcpy(clocks + half * kWordLanes, &exact, sizeof exact);
    }
    store_masses(masses_of(scaling_, logits_of(keys)), masses);
    for (int64_t i = 0; i < kLanes && i < count; ++i) {
      const double time = clocks[i] / static_cast<double>(static_cast<int64_t>(masses[i]));
      if (time < time_) {
        time_ = time;
        token_ = token_of(keys[i]);
      }
    }
    near_latest_ = static_cast<float>(time_ * 0x1p40 * (1 + kNearMass));
    near_slack_ = static_cast<float>(time_);
  }

  const Place place_;
  const Scaling scaling_;
  double time_ = kNever;
  int64_t token_ = 0;
  // A token whose clock is later than its near mass times the one plus the other comes too late. The other is for
  // masses that were rounded up by as much as themselves.
  float near_latest_ = kInfinity;
  float near_slack_ = kInfinity;
};

// Adds the tokens of a kept set in place, which are listed part by part.
inline void add_blocks(ListRace& race, const KeptSet& kept) {
  const Matches matches = match_buffers(kept.work);
  const Cut cut(kept.cut);
  int64_t count = 0;
  for (int64_t b = 0; b < kept.row.blocks(); ++b) {
    if (kept.work.block_max[b] >= logit_of(kept.cut)) {
      const char* block = kept.row.block(b);
      uint32_t bits[kBlock / kLanes];
      for (int i = 0; i < kBlock / kLanes; ++i) {
        bits[i] = at_least(load(block + 4 * kLanes * i), cut.bound_at(b * kBlock + i * kLanes));
      }
      count = append_matches(matches, count, block, bits, b * kBlock);
    }
    if (count < kBlock && b < kept.row.blocks() - 1) continue;
    race.add(kept.work.keys, write_keys(matches, count, kept.work.keys));
    count = 0;
  }
}

inline void draw_listed(const KeptSet& kept, const RowParams& params, int64_t nth, const RowOutput& out) {
  for (; nth < out.draws; ++nth) {
    ListRace race(place_of(params, nth), kept.scaling);
    if (kept.in_place) {
      add_blocks(race, kept);
    } else {
      race.add(kept.work.keys, kept.count);
    }
    out.tokens[nth] = race.token();
  }
}

// ---- few candidates -------------------------------------------------------------------------------------

// A chain like the usual one: a count, a share of the mass, a threshold. The tokens that pass the threshold are often
// so few that all are given clocks before it is known which of them the other filters keep.
struct ThresholdChain {
  int64_t count = 0;       // 0: none
  double share = 1;        // 1: none
  bool of_passing = false;  // the share is one of the tokens that pass the threshold
  double threshold = 0;
};

// Whether the filters that act are these: one threshold, a count before the share.
inline bool has_threshold_chain(const RowParams& params, int64_t vocabulary, ThresholdChain* chain) {
  if (params.min_keep > 1) return false;
  bool has_filter = false;
  for (int i = 0; i < kMaxStages && params.ops[i] != Op::kEnd; ++i) {
    const Op op = params.ops[i];
    const double value = params.values[i];
    if (op == Op::kScale) {
      if (has_filter) return false;
      continue;
    }
    if (!acts(op, static_cast<float>(value), vocabulary)) continue;
    has_filter = true;
    if (op == Op::kCount && chain->count == 0 && chain->share == 1) {
      chain->count = static_cast<int64_t>(value);
    } else if (op == Op::kMass && chain->share == 1) {
      chain->share = value;
      chain->of_passing = chain->threshold > 0;
    } else if (op == Op::kThreshold && chain->threshold == 0) {
      chain->threshold = value;
    } else {
      return false;
    }
  }
  return chain->threshold > 0;
}

class CandidateRace {
 public:
  CandidateRace(KeptSet& kept, const ThresholdChain& chain) : kept_(kept), chain_(chain) {}

  // False where the candidates are many.
  bool list() {
    constexpr int64_t kMost = 2 * kBlock;
    const uint64_t cut = threshold_cut(kept_, Op::kThreshold, static_cast<float>(chain_.threshold));
    const int64_t most = kMost < kept_.work.capacity ? kMost : kept_.work.capacity;
    count_ = list_from_logit(kept_.row, kept_.work, logit_of(cut), most);
    if (count_ == kTooMany) return false;
    total_ = compute_listed_masses(kept_.work, kept_.scaling, count_);
    return true;
  }

  // The token of a draw; kOpen where bounds do not decide which tokens are kept.
  static constexpr int64_t kOpen = -1;
  int64_t draw(const Place& place) const {
    const uint64_t* const keys = kept_.work.keys;
    double* const times = time_buffer(kept_.work);
    const auto tokens_at = [=](int64_t i) { return tokens_of(keys + i); };
    write_times(place, tokens_at, kept_.work.masses, 0, count_, times);
    for (;;) {
      const Arrival first = first_arrival(times, count_);
      if (first.time == kNever) return kOpen;
      const Answer answer = is_kept(keys[first.index]);
      if (answer == Answer::kYes) return token_of(keys[first.index]);
      if (answer == Answer::kUnknown) return kOpen;
      times[first.index] = kNever;
    }
  }

 private:
  Answer is_kept(uint64_t key) const {
    const uint64_t* const keys = kept_.work.keys;
    const uint64_t* const masses = kept_.work.masses;
    const bool fewer = chain_.count == 0 || count_ <= chain_.count;
    if (!fewer && weight_from(keys, nullptr, count_, key) > static_cast<uint64_t>(chain_.count))
      return Answer::kNo;
    if (chain_.share == 1) return Answer::kYes;
    const uint64_t upto = weight_from(keys, masses, count_, key);
    const uint64_t before = upto - mass_of(kept_.scaling, logit_of(key));
    // All tokens up to this one are among those of which the share is taken.
    const float share = static_cast<float>(chain_.share);
    if (before == 0 || before < nucleus_target(share, fewer ? total_ : upto)) return Answer::kYes;
    return fewer && chain_.of_passing ? Answer::kNo : Answer::kUnknown;
  }

  KeptSet& kept_;
  const ThresholdChain chain_;
  int64_t count_ = 0;
  uint64_t total_ = 0;
};

// Draws among the candidates as far as bounds decide; returns how many draws are done.
inline int64_t draw_of_candidates(KeptSet& kept, const RowParams& params, const RowOutput& out) {
  ThresholdChain chain;
  if (!has_threshold_chain(params, kept.row.vocabulary(), &chain)) return 0;
  KeptSet all = kept;
  set_temperature(all, params.temperature);
  CandidateRace race(all, chain);
  if (!race.list()) return 0;
  for (int64_t i = 0; i < out.draws; ++i) {
    out.tokens[i] = race.draw(place_of(params, i));
    if (out.tokens[i] == CandidateRace::kOpen) return i;
  }
  return out.draws;
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
