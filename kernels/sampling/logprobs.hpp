// Rule 7: log-probabilities, ranks and first tokens of the three laws that a draw can be told by.
#pragma once

#include "sampling/filters.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A law over one row. Without masses (`by_mass` false) it is (x - m) / T - ln W over the whole row; with
// them it is ln(mass) - ln W over the tokens from `cut` up.
struct Told {
  const Row& row;
  Reduction reduction;
  Law law;
  double temperature;
  double log_total;
  uint64_t cut;
  bool by_mass;
};

inline double log_of(uint64_t mass) { return natural_log(static_cast<double>(mass)); }

inline double logprob(const Told& told, uint64_t key) {
  const float logit = logit_of(key);
  if (!told.by_mass) {
    const double gap = static_cast<double>(logit) - static_cast<double>(told.law.top);
    return gap / told.temperature - told.log_total;
  }
  if (key < told.cut || logit == -kInfinity) return -static_cast<double>(kInfinity);
  if (told.reduction != kExact) {
    return natural_log(static_cast<double>(float_mass_of(told.law, logit))) - told.log_total;
  }
  const uint64_t mass = mass_of(told.law, logit);
  return mass == 0 ? -static_cast<double>(kInfinity) : log_of(mass) - told.log_total;
}

// A law over the whole row: W is the mass of all blocks.
inline Told whole_law(const Row& row, Workspace& work, float top, double temperature, Reduction reduction) {
  const Law law = {top, scale_of(temperature)};
  if (work.whole_scale != law.scale) {
    Kept all = all_of(row, work, law, 1, reduction);
    weigh(all);
  }
  const double rounded = static_cast<double>(static_cast<float>(temperature));
  return {row, reduction, law, rounded, natural_log(work.whole_weight), 0, false};
}

// Greedy: the token has it all.
inline Told greedy_law(const Row& row, float top, uint64_t key) {
  return {row, kExact, {top, 1.0f}, 0.0, log_of(kTopMass), key, true};
}

// The first `count` keys of the row in rule 3's order, into work.keys. -inf comes last, by token.
inline void first_keys(const Row& row, Workspace& work, float top, int64_t count) {
  Kept head = all_of(row, work, {top, 1.0f}, 1, kExact);
  keep_first(head, count);
  list_kept(head);
  sort_keys(work.keys, work.keys_left, head.count);
  int64_t found = head.count;
  for (int64_t b = 0; found < count && b < row.blocks(); ++b) {
    const char* block = row.block(b);
    const int64_t rest = row.vocabulary() - b * kBlock;
    for (int64_t i = 0; i < kBlock && i < rest && found < count; ++i) {
      const int64_t token = b * kBlock + i;
      if (load_one(block + 4 * i) == -kInfinity) {
        work.keys[found++] = key_of(-kInfinity, token);
      }
    }
  }
  // Only a row that has changed since the scan runs out of tokens.
  for (; found < count; ++found) work.keys[found] = key_of(-kInfinity, found);
}

inline void write_report(const Told& told, const Workspace& work, uint64_t drawn, int64_t top_count,
                         const Report& report) {
  *report.logprob = logprob(told, drawn);
  *report.rank = count_from(told.row, work.best, drawn);
  for (int64_t i = 0; i < top_count; ++i) {
    report.top_tokens[i] = token_of(work.keys[i]);
    report.top_logprobs[i] = logprob(told, work.keys[i]);
  }
}

inline void write_no_report(int64_t top_count, const Report& report) {
  *report.logprob = kNaN;
  *report.rank = 0;
  for (int64_t i = 0; i < top_count; ++i) {
    report.top_tokens[i] = -1;
    report.top_logprobs[i] = kNaN;
  }
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
