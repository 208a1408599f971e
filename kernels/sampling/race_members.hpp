// Section 6: whether a token of a row that is not listed is kept. The kept set is a prefix of section 3's order, so each
// answer settles many later questions, and most are answered by bounds, without finding the cut.
#pragma once

#include "sampling/race_head.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// ---- chains whose cut can stay open ---------------------------------------------------------------------

// The filter of a chain whose cut is not known: a count, a share of the mass, or none.
struct OpenFilter {
  Op op = Op::kEnd;
  double value = 0;
  uint64_t from = 0;  // the lowest key that thresholds before it keep
};

// Finds the one filter by count or mass among filters that act, and whether its cut can stay open: all others must
// be plain thresholds.
inline bool can_stay_open(const RowParams& params, int64_t vocabulary, OpenFilter* filter) {
  if (params.min_keep > 1) return false;
  for (int i = 0; i < kMaxStages && params.ops[i] != Op::kEnd; ++i) {
    const Op op = params.ops[i];
    if (op == Op::kScale || op == Op::kThreshold) continue;
    if (!acts(op, static_cast<float>(params.values[i]), vocabulary)) continue;
    if (filter->op != Op::kEnd || (op != Op::kCount && op != Op::kMass)) return false;
    *filter = {op, params.values[i]};
  }
  return true;
}

// Applies temperature and thresholds, in place.
inline void apply_thresholds(KeptSet& kept, const RowParams& params, OpenFilter* filter) {
  for (int i = 0; i < kMaxStages && params.ops[i] != Op::kEnd; ++i) {
    if (params.ops[i] == filter->op) filter->from = kept.passing;
    if (params.ops[i] == Op::kScale) set_temperature(kept, params.values[i]);
    if (params.ops[i] != Op::kThreshold) continue;
    threshold_cut(kept, Op::kThreshold, static_cast<float>(params.values[i]));
  }
  kept.cut = kept.passing;
}

// ---- the mass of a row ----------------------------------------------------------------------------------

// Near masses in multiples of the top token's, for y in [-64, 0]: a polynomial of lower degree than the rule's. A sum
// of them is within kNearMass of the sum of masses, relatively, and so are the roundings of masses to integers,
// whose sum is at least that of the top token.
constexpr double kNearMass = 2e-4;

FASTSAMPLE_INLINE Floats near_masses(Scaling scaling, Floats logits) {
  const Floats y = exponent2(scaling, logits);
  const Floats t = y + kRound;
  const Floats f = y - (t - kRound);
  Floats p = multiply_add(fill(0.05512585f), f, 0.24260731f);
  p = multiply_add(p, f, 0.69326942f);
  p = multiply_add(p, f, 0.99992854f);
  return p * doubled(half_of_two_to(t));
}

// Bounds of the mass of a row's tokens from a logit on, in multiples of the top token's. Weighing blocks makes them tighter, those with the
// largest logits first.
class TotalBounds {
 public:
  TotalBounds(const KeptSet& kept, float from)
      : row_(kept.row),
        from_(from),
        work_(kept.work),
        scaling_(kept.scaling),
        largest_(reinterpret_cast<char*>(kept.work.scratch_keys)) {}

  double low() const { return (weighed_ + rest_) * (1 - kNearMass); }
  double high() const { return (weighed_ + kBlock * rest_) * (1 + kNearMass); }

  // The mass of a block's largest logit bounds that of all its tokens.
  void prepare() {
    if (weighed_from_ < kInfinity || rest_ > 0) return;
    for (int64_t b = 0; b < row_.blocks(); b += kLanes) {
      const Floats largest = load(work_.block_max + b);
      const Floats masses = largest >= from_ ? near_masses(scaling_, largest) : Floats{};
      store(largest_ + 4 * b, masses);
      rest_ += static_cast<double>(sum_of(masses));
    }
  }

  // Weighs the blocks whose largest logit reaches a bound.
  void weigh(float bound) {
    bound = bound > from_ ? bound : from_;
    if (bound >= weighed_from_) return;
    const int64_t blocks = blocks_between(row_, work_, bound, weighed_from_);
    visited_ += blocks;
    for (int64_t n = 0; n < blocks;) {
      Floats masses = {};
      for (const int64_t end = n + kTogether; n < end && n < blocks; ++n) {
        const int64_t b = work_.open_blocks[n];
        masses += sum_all(b);
        rest_ -= static_cast<double>(load_one(largest_ + 4 * b));
      }
      weighed_ += static_cast<double>(sum_of(masses));
    }
    weighed_from_ = bound;
  }

  // Weighs the blocks whose largest logit reaches a bound; returns the near mass of the tokens from a cut on, which are
  // all in them.
  double weigh_from(float bound, const Cut& cut) {
    const int64_t blocks = blocks_from(row_, work_, bound);
    visited_ += blocks;
    double from_cut = 0;
    for (int64_t n = 0; n < blocks;) {
      BlockSums sums;
      for (const int64_t end = n + kTogether; n < end && n < blocks; ++n) {
        const int64_t b = work_.open_blocks[n];
        const bool is_known = work_.block_max[b] >= weighed_from_;
        add_block_sums(b, cut, is_known ? kInfinity : unread_bound(from_), sums);
        rest_ -= is_known ? 0 : static_cast<double>(load_one(largest_ + 4 * b));
      }
      from_cut += static_cast<double>(sum_of(sums.from_cut));
      weighed_ += static_cast<double>(sum_of(sums.all));
    }
    weighed_from_ = bound < weighed_from_ ? bound : weighed_from_;
    return from_cut;
  }

  bool is_all_weighed() const { return weighed_from_ == from_; }
  // How many blocks were read, some of them more than once.
  int64_t visited() const { return visited_; }

 private:
  // So many blocks are added in float32.
  static constexpr int64_t kTogether = 16;

  Floats sum_all(int64_t b) const {
    const Floats least = fill(unread_bound(from_));
    const auto masses_of = [&](Floats logits) __attribute__((always_inline)) {
      return logits >= least ? near_masses(scaling_, logits) : Floats{};
    };
    return row_.with_block(b, [&](auto load) __attribute__((always_inline)) {
      Floats even = {};
      Floats odd = {};
      for (int64_t i = 0; i < kBlock; i += 2 * kLanes) {
        even += masses_of(load(i));
        odd += masses_of(load(i + kLanes));
      }
      return even + odd;
    });
  }

  struct BlockSums {
    Floats all = {};
    Floats from_cut = {};
  };

  // Adds the masses of the tokens from a logit on, and of those from a cut on.
  FASTSAMPLE_INLINE void add_block_sums(int64_t b, const Cut& cut, float least, BlockSums& sums) const {
    const char* block = row_.block(b);
    for (int64_t i = 0; i < kBlock; i += kLanes) {
      const Floats logits = load(block + 4 * i);
      const Floats masses = near_masses(scaling_, logits);
      sums.all += logits >= least ? masses : Floats{};
      sums.from_cut += logits >= cut.bound_at(b * kBlock + i) ? masses : Floats{};
    }
  }

  const Row& row_;
  const float from_;
  const Workspace& work_;
  const Scaling scaling_;
  char* const largest_;  // near masses of each block's largest logit
  double weighed_ = 0;
  double rest_ = 0;  // what the largest logits of all other blocks weigh
  float weighed_from_ = kInfinity;
  int64_t visited_ = 0;
};

// ---- members --------------------------------------------------------------------------------------------

enum class Answer { kYes, kNo, kUnknown };

class Members {
 public:
  // kept.cut is that of all filters but the open one. With kEnd it is that of all filters.
  Members(KeptSet& kept, const OpenFilter& filter)
      : kept_(kept),
        filter_(filter),
        in_(filter.op == Op::kEnd ? kept.cut : kNoKey),
        total_(kept, filter.op == Op::kMass ? logit_of(filter.from) : kLowest) {
    drop_from(kept.cut - 1);
  }

  // Takes the heavy tokens that there are: all whose mass is 2^q or more, in ascending token.
  void know_heavy(KeyMasses heavy, int64_t count, int q) {
    heavy_ = heavy;
    heavy_count_ = count;
    const bool is_prefix = q < kTopMassBits && count > 0;
    lowest_heavy_ = is_prefix ? smallest(heavy.keys, count) : kNoKey;
  }

  // The lanes that may be kept.
  FASTSAMPLE_INLINE uint32_t may_have(Uints tokens, Floats logits) const {
    return at_least(logits, tokens <= last_ ? fill(bound_) : fill(bound_past_));
  }

  bool has(uint64_t key) {
    if (key >= in_) return true;
    if (key <= out_) return false;
    Answer answer = Answer::kUnknown;
    if (visited_ + total_.visited() <= 2 * kept_.row.blocks()) {
      answer = filter_.op == Op::kCount ? is_among_first(key) : is_in_nucleus(key);
    }
    if (answer == Answer::kUnknown) {
      find_cut();
    } else if (answer == Answer::kYes) {
      in_ = key;
    } else {
      drop_from(key);
    }
    return key >= in_;
  }

  // Finds the cut, where further questions would cost more. It overwrites all lists of the workspace.
  void find_cut() {
    if (out_ + 1 < in_) {
      search_cut();
    } else if (kept_.cut != in_) {  // answers have found it
      kept_.cut = in_;
      kept_.has_masses = false;
    }
  }

 private:
  // Keys up to this one are not kept.
  void drop_from(uint64_t key) {
    out_ = key;
    const float logit = logit_of(key + 1);
    bound_ = unread_bound(logit);
    bound_past_ = unread_bound(next_above(logit));
    last_ = static_cast<uint32_t>(token_of(key + 1));
  }

  void search_cut() {
    const uint64_t cut = filter_.op == Op::kCount ? cut_at_count(kept_, static_cast<int64_t>(filter_.value)).cut
                                                  : cut_of_nucleus();
    kept_.cut = cut > kept_.cut ? cut : kept_.cut;
    kept_.has_masses = false;
    in_ = kept_.cut;
    drop_from(kept_.cut - 1);
  }

  uint64_t cut_of_nucleus() const {
    KeptSet all = kept_;
    all.cut = filter_.from;
    all.has_masses = false;
    compute_integer_masses(all);
    return cut_at_mass(all, need(all.total)).cut;
  }

  static Answer answer_of(bool is_kept) { return is_kept ? Answer::kYes : Answer::kNo; }

  Answer is_among_first(uint64_t key) {
    const int64_t most = static_cast<int64_t>(filter_.value);
    if (key >= lowest_heavy_) {
      const uint64_t rank = weight_from(heavy_.keys, nullptr, heavy_count_, key);
      return answer_of(rank <= static_cast<uint64_t>(most));
    }
    const Groups blocks = {kept_.work.block_max, kept_.row.blocks()};
    if (count_at_least(blocks, next_above(logit_of(key))) >= most) return Answer::kNo;
    return answer_of(count_up_to(key, most + 1) <= most);
  }

  // Counts the tokens from a key on, up to a number.
  int64_t count_up_to(uint64_t key, int64_t most) {
    const Cut cut(key);
    int64_t count = 0;
    const int64_t blocks = blocks_from(kept_.row, kept_.work, logit_of(key));
    for (int64_t n = 0; n < blocks && count < most; ++n) {
      const int64_t b = kept_.work.open_blocks[n];
      ++visited_;
      const char* block = kept_.row.block(b);
      for (int64_t i = 0; i < kBlock; i += kLanes) {
        count += __builtin_popcount(at_least(load(block + 4 * i), cut.bound_at(b * kBlock + i)));
      }
    }
    return count;
  }

  uint64_t need(uint64_t total) const { return nucleus_target(static_cast<float>(filter_.value), total); }

  Answer is_in_nucleus(uint64_t key) {
    const uint64_t mass = mass_of(kept_.scaling, logit_of(key));
    if (key >= lowest_heavy_) {
      const uint64_t before = weight_from(heavy_.keys, heavy_.masses, heavy_count_, key) - mass;
      if (before == 0 || before < need(sum_words(heavy_.masses, heavy_count_))) return Answer::kYes;
      total_.prepare();
      return compare(to_float_mass(before), 0);
    }
    total_.prepare();
    // The token itself is not heavier than those before it.
    return compare(total_.weigh_from(logit_of(key), Cut(key)) - to_float_mass(mass), 2 * kNearMass);
  }

  // Whether the nucleus needs more than the mass before a token, which is known up to a relative error; blocks are
  // weighed until that is certain.
  Answer compare(double before, double error) {
    constexpr float kFirst = -4.0f;
    constexpr float kStep = 1.5f;
    constexpr float kLast = -22.0f;
    constexpr double kRounding = 1e-9;
    const double share = static_cast<double>(need(uint64_t{1} << 62)) * 0x1p-62;
    for (float y = kFirst;; y -= kStep) {
      if (before * (1 + error) < share * total_.low() * (1 - kRounding)) return Answer::kYes;
      if (before * (1 - error) > share * total_.high() * (1 + kRounding)) return Answer::kNo;
      if (total_.is_all_weighed()) return Answer::kUnknown;
      const float bound = kept_.scaling.top + y / kept_.scaling.scale;
      const float reached = y < kLast || bound < kLowest ? kLowest : bound;
      total_.weigh(reached);
    }
  }

  KeptSet& kept_;
  const OpenFilter filter_;
  uint64_t in_;  // keys from here on are kept
  uint64_t out_;  // keys up to here are not
  // What unread logits of other keys reach, for tokens up to the last one and past it.
  float bound_;
  float bound_past_;
  uint32_t last_;
  TotalBounds total_;
  int64_t visited_ = 0;  // blocks that were read to count tokens
  KeyMasses heavy_ = {};
  int64_t heavy_count_ = 0;
  uint64_t lowest_heavy_ = kNoKey;
};

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
