// The steps of a row in their order: scan -> stages -> masses -> draw -> log-probabilities.
#pragma once

#include "sampling/race.hpp"
#include "sampling/softmax.hpp"
#include "reduce/sums.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// Section 1 rounds T to float32 first: 1e-50 is 0.
inline bool is_greedy(const RowParams& params) { return static_cast<float>(params.temperature) == 0.0f; }

inline bool wants_processed(const RowOutput& out) {
  for (int64_t i = 0; i < out.mode_count; ++i) {
    if (out.logprobs[i].mode == kProcessed) return true;
  }
  return false;
}
inline bool needs_kept_set(const RowOutput& out) { return out.kept_count || wants_processed(out); }

// Whether races decide which tokens are kept without the cut, but for few.
inline bool seldom_cuts(const RowParams& params, const RowOutput& out, int64_t vocabulary) {
  OpenFilter filter;
  return params.draw == kRace && !needs_kept_set(out) && !is_listed(params, vocabulary) &&
         can_stay_open(params, vocabulary, &filter);
}

// Scans with the maxima that the stages, and a list of `top_count` tokens, will need.
inline Status scan_row(const Row& row, const RowParams& params, int64_t top_count, bool is_seldom_cut,
                       Workspace& work, float* top) {
  int64_t k = 0;
  bool nucleus = false;
  for (int i = 0; i < kMaxStages && params.ops[i] != Op::kEnd; ++i) {
    const double value = params.values[i];
    const bool cuts = value > 0 && value < static_cast<double>(row.vocabulary());
    if (params.ops[i] == Op::kCount && cuts) k = static_cast<int64_t>(value);
    nucleus |= (params.ops[i] == Op::kMass || params.ops[i] == Op::kBand) && value < 1.0;
  }
  k = k == 0 && nucleus ? kFirstNucleus : k;
  k = k > params.min_keep ? k : params.min_keep;
  // Maxima of blocks are enough for a cut that is seldom needed.
  if (is_seldom_cut && k <= row.blocks()) k = 0;
  k = k > top_count ? k : top_count;
  return needs_part_max(k, row.blocks()) ? scan<true>(row, work, top) : scan<false>(row, work, top);
}

inline KeptSet all_of_row(const Row& row, const RowParams& params, Reduction reduction, Workspace& work,
                          float top) {
  const int64_t most = row.vocabulary();
  const int64_t min_keep = params.min_keep < most ? params.min_keep : most;
  return all_tokens(row, work, {top, scale_of(1.0)}, min_keep, reduction);
}

// ---- log-probabilities ----------------------------------------------------------------------------------

inline Distribution kept_distribution(const KeptSet& kept) {
  const uint64_t cut = kept.in_place ? kept.cut : smallest(kept.work.keys, kept.count);
  const double log_total = kept.reduction == kExact ? log_of(kept.total) : natural_log(kept.float_total);
  return {kept.row, kept.reduction, kept.scaling, 1.0, log_total, cut, kept.highest, true};
}

// Writes the modes that are of the row after section 2 (tempered, processed), or those of the row before it (raw).
// `processed` is null where no mode is of it.
inline void write_row_modes(const Row& row, Workspace& work, float top, const RowParams& params,
                            Reduction reduction, const Distribution* processed, bool raw,
                            const RowOutput& out) {
  bool listed = false;
  for (int64_t i = 0; i < out.mode_count; ++i) {
    const LogprobResult& result = out.logprobs[i];
    if ((result.mode == kRaw) != raw) continue;
    if (!listed && out.top_count > 0) list_top_keys(row, work, top, out.top_count);
    listed = true;
    const bool by_mass = result.mode == kProcessed || (result.mode == kTempered && is_greedy(params));
    write_mode(
        by_mass ? *processed : row_distribution(row, work, top, raw ? 1.0 : params.temperature, reduction),
        work, out, result);
  }
}

inline bool wants(const RowOutput& out, bool raw) {
  for (int64_t i = 0; i < out.mode_count; ++i) {
    if ((out.logprobs[i].mode == kRaw) == raw) return true;
  }
  return false;
}

// A row that is valid after its mask may be invalid before it: then it has no raw distribution, and the output
// stays as it is for a row without a token.
inline void write_raw_modes(const Logits& logits, const RowParams& params, Reduction reduction, Workspace& work,
                            const Distribution* processed, const RowOutput& out) {
  const Row row(logits, {});
  float top;
  if (scan_row(row, params, out.top_count, false, work, &top) == kOk) {
    write_row_modes(row, work, top, params, reduction, processed, true, out);
  }
}

inline void write_modes(const Logits& logits, const RowParams& params, const KeptSet& kept, float top,
                        const Distribution* processed, const RowOutput& out) {
  const Row& row = kept.row;
  Workspace& work = kept.work;
  if (wants(out, false)) {
    write_row_modes(row, work, top, params, kept.reduction, processed, false, out);
  }
  if (!wants(out, true)) return;
  if (row.has_processors()) {
    write_raw_modes(logits, params, kept.reduction, work, processed, out);
  } else {
    write_row_modes(row, work, top, params, kept.reduction, processed, true, out);
  }
}

// ---- kernels --------------------------------------------------------------------------------------------

inline Status draw_tokens(KeptSet& kept, const RowParams& params, const RowOutput& out) {
  if (params.draw == kRace) return draw_by_race(kept, params, needs_kept_set(out), out);
  if (!apply_stages(kept, params)) return kNoCapacity;
  compute_masses(kept);
  for (int64_t i = 0; i < out.draws; ++i) out.tokens[i] = draw(params, kept, i);
  if (out.kept_count) *out.kept_count = count_kept(kept);
  return kOk;
}

Status sample(const Logits& logits, const RowProcessors& processors, const RowParams& params,
              Reduction reduction, Workspace& work, const RowOutput& out) {
  const Row row(logits, processors);
  float top;
  const bool is_seldom_cut = seldom_cuts(params, out, row.vocabulary());
  const Status status = scan_row(row, params, out.top_count, is_seldom_cut, work, &top);
  if (status != kOk) return status;
  KeptSet kept = all_of_row(row, params, reduction, work, top);
  if (is_greedy(params)) {
    const int64_t token = first_token(row, work.block_max, top);
    const int64_t draws = out.distinct ? 1 : out.draws;
    for (int64_t i = 0; i < draws; ++i) out.tokens[i] = token;
    if (out.kept_count) *out.kept_count = 1;
    if (out.mode_count == 0) return kOk;
    const Distribution certain = greedy_distribution(row, top, sort_key(top, token));
    write_modes(logits, params, kept, top, &certain, out);
    return kOk;
  }
  const Status drawn = draw_tokens(kept, params, out);
  if (drawn != kOk) return drawn;
  if (out.kept_count && *out.kept_count == 0) {  // another thread has written the row since it was scanned
    for (int64_t i = 0; i < out.draws; ++i) out.tokens[i] = -1;
    return kEmpty;
  }
  for (int64_t i = 0; i < out.draws; ++i) {
    if (out.tokens[i] >= 0 || !out.distinct) out.tokens[i] = clamp_token(row, out.tokens[i]);
  }
  if (out.mode_count == 0) return kOk;
  if (!wants_processed(out)) {
    write_modes(logits, params, kept, top, nullptr, out);
    return kOk;
  }
  compute_masses(kept);
  const Distribution processed = kept_distribution(kept);
  write_modes(logits, params, kept, top, &processed, out);
  return kOk;
}

Status kept_set(const Logits& logits, const RowProcessors& processors, const RowParams& params, Workspace& work,
                int64_t* count) {
  const Row row(logits, processors);
  float top;
  *count = 0;
  const Status status = scan_row(row, params, 0, false, work, &top);
  if (status != kOk) return status;
  KeptSet kept = all_of_row(row, params, kExact, work, top);
  if (is_greedy(params)) {
    work.keys[0] = sort_key(top, first_token(row, work.block_max, top));
    kept.in_place = false;
    kept.count = 1;
  } else {
    if (!apply_stages(kept, params)) return kNoCapacity;
    list_kept(kept);
    radix_sort(work.keys, work.scratch_keys, kept.count);
  }
  kept.has_masses = false;
  compute_masses(kept);
  *count = kept.count;
  return kOk;
}

}  // namespace

extern const Kernels kernels;
const Kernels kernels = {sample,      kept_set,  softmax,
                         log_softmax, logsumexp, {fixed_sums, fast_sum, add_exactly}};

}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
