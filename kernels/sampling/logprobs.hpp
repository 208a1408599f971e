// Section 7: log-probabilities, ranks and top tokens of the three distributions.
#pragma once

#include "sampling/filters.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A distribution over one row. Its log-probabilities are (x - m) / T - ln W over the entire row, or with `by_mass`
// ln(mass) - ln W over the tokens with keys from `cut` to `highest`.
struct Distribution {
  const Row& row;
  Reduction reduction;
  Scaling scaling;
  double temperature;
  double log_total;
  uint64_t cut;
  uint64_t highest;
  bool by_mass;
};

inline double log_of(uint64_t mass) { return natural_log(static_cast<double>(mass)); }

inline double logprob(const Distribution& distribution, uint64_t key) {
  const float logit = logit_of(key);
  if (!distribution.by_mass) {
    const double gap = static_cast<double>(logit) - static_cast<double>(distribution.scaling.top);
    return gap / distribution.temperature - distribution.log_total;
  }
  if (key < distribution.cut || key > distribution.highest || logit == -kInfinity) {
    return -static_cast<double>(kInfinity);
  }
  if (distribution.reduction != kExact) {
    return natural_log(static_cast<double>(float_mass_of(distribution.scaling, logit))) -
           distribution.log_total;
  }
  const uint64_t mass = mass_of(distribution.scaling, logit);
  return mass == 0 ? -static_cast<double>(kInfinity) : log_of(mass) - distribution.log_total;
}

// The distribution over the entire row.
inline Distribution row_distribution(const Row& row, Workspace& work, float top, double temperature,
                                     Reduction reduction) {
  const Scaling scaling = {top, scale_of(temperature)};
  if (work.row_scale != scaling.scale) {
    KeptSet all = all_tokens(row, work, scaling, 1, reduction);
    compute_masses(all);
  }
  const double rounded = static_cast<double>(static_cast<float>(temperature));
  return {row, reduction, scaling, rounded, natural_log(work.row_total), 0, kNoKey, false};
}

// Probability 1 for one token.
inline Distribution greedy_distribution(const Row& row, float top, uint64_t key) {
  return {row, kExact, {top, 1.0f}, 0.0, log_of(kTopMass), key, key, true};
}

// Writes the first `count` keys of the row to work.keys, in section 3's order; tokens at -inf are last, by token.
inline void list_top_keys(const Row& row, Workspace& work, float top, int64_t count) {
  KeptSet top_set = all_tokens(row, work, {top, 1.0f}, 1, kExact);
  keep_first(top_set, count);
  list_kept(top_set);
  radix_sort(work.keys, work.scratch_keys, top_set.count);
  int64_t found = top_set.count;
  for (int64_t b = 0; found < count && b < row.blocks(); ++b) {
    const char* block = row.block(b);
    const int64_t rest = row.vocabulary() - b * kBlock;
    for (int64_t i = 0; i < kBlock && i < rest && found < count; ++i) {
      const int64_t token = b * kBlock + i;
      if (load_one(block + 4 * i) == -kInfinity) {
        work.keys[found++] = sort_key(-kInfinity, token);
      }
    }
  }
  // There are fewer only if another thread has changed the row since the scan.
  for (; found < count; ++found) work.keys[found] = sort_key(-kInfinity, found);
}

// Writes log-probabilities and ranks of some tokens; nan and rank 0 for what is no token of the row.
__attribute__((noinline)) void write_tokens(const Distribution& distribution, const Workspace& work,
                                            const int64_t* tokens, int64_t count, double* logprobs,
                                            int64_t* ranks) {
  const Row& row = distribution.row;
  for (int64_t i = 0; i < count; ++i) {
    if (tokens[i] < 0 || tokens[i] >= row.vocabulary()) {
      logprobs[i] = kNaN;
      ranks[i] = 0;
      continue;
    }
    const uint64_t key = sort_key(row.logit(tokens[i]), tokens[i]);
    logprobs[i] = logprob(distribution, key);
    ranks[i] = count_from(row, work.block_max, key);
  }
}

// Writes what one mode has of the draws, the given tokens and the top tokens, whose keys are in work.keys.
inline void write_mode(const Distribution& distribution, const Workspace& work, const RowOutput& out,
                       const LogprobResult& result) {
  write_tokens(distribution, work, out.tokens, out.logprob_draws, result.logprobs, result.ranks);
  write_tokens(distribution, work, out.given, out.given_count, result.given_logprobs, result.given_ranks);
  for (int64_t i = 0; i < out.top_count; ++i) {
    result.top_tokens[i] = token_of(work.keys[i]);
    result.top_logprobs[i] = logprob(distribution, work.keys[i]);
  }
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
