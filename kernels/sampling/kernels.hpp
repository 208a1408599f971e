// One row from start to end: the only file that orders the steps.
// scan -> stages -> masses -> draw -> log-probabilities.
#pragma once

#include "sampling/draw.hpp"
#include "sampling/softmax.hpp"
#include "reduce/sums.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// T is rounded before it is compared: 1e-50 is 0.
inline bool is_greedy(const RowParams& settings) { return static_cast<float>(settings.temperature) == 0.0f; }

// `top_count`: of the tokens that will be told.
inline Status scan_for(const Row& row, const RowParams& settings, int64_t top_count, Workspace& work,
                       float* top) {
  int64_t k = 0;
  bool nucleus = false;
  for (int i = 0; i < kMaxStages && settings.ops[i] != Op::kEnd; ++i) {
    const double value = settings.values[i];
    const bool cuts = value > 0 && value < static_cast<double>(row.vocabulary());
    if (settings.ops[i] == Op::kCount && cuts) k = static_cast<int64_t>(value);
    nucleus |= settings.ops[i] == Op::kMass && value < 1.0;
  }
  k = k == 0 && nucleus ? kFirstNucleus : k;
  k = k > settings.min_keep ? k : settings.min_keep;
  k = k > top_count ? k : top_count;
  return needs_part_bests(k, row.blocks()) ? scan<true>(row, work, top) : scan<false>(row, work, top);
}

inline Kept whole_row(const Row& row, const RowParams& settings, Reduction reduction, Workspace& work,
                      float top) {
  const int64_t most = row.vocabulary();
  const int64_t min_keep = settings.min_keep < most ? settings.min_keep : most;
  return all_of(row, work, {top, scale_of(1.0)}, min_keep, reduction);
}

// ---- what is told ---------------------------------------------------------------------------------------

inline Told kept_law(const Kept& kept) {
  const uint64_t cut = kept.whole ? kept.cut : smallest(kept.work.keys, kept.count);
  const double log_total = kept.reduction == kExact ? log_of(kept.total) : natural_log(kept.weight);
  return {kept.row, kept.reduction, kept.law, 1.0, log_total, cut, true};
}

// The reports on one row: of the adjusted one (tempered, processed) or of the one as it came (raw).
inline void report_row(const Row& row, Workspace& work, float top, int64_t token, const RowParams& settings,
                       Reduction reduction, const Told& processed, bool raw, const Outcome& outcome) {
  const uint64_t drawn = key_of(row.logit(token), token);
  bool listed = false;
  for (int64_t i = 0; i < outcome.report_count; ++i) {
    const Report& report = outcome.reports[i];
    if ((report.form == kRaw) != raw) continue;
    if (!listed && outcome.top_count > 0) first_keys(row, work, top, outcome.top_count);
    listed = true;
    const bool by_mass = report.form == kProcessed || (report.form == kTempered && is_greedy(settings));
    write_report(by_mass ? processed : whole_law(row, work, top, raw ? 1.0 : settings.temperature, reduction),
                 work, drawn, outcome.top_count, report);
  }
}

inline bool wants(const Outcome& outcome, bool raw) {
  for (int64_t i = 0; i < outcome.report_count; ++i) {
    if ((outcome.reports[i].form == kRaw) == raw) return true;
  }
  return false;
}

// Under a mask the row as it came may hold NaN or +inf: then there is no law to tell of.
inline void report_row_as_it_came(const Logits& logits, const RowParams& settings, Reduction reduction,
                                  Workspace& work, const Told& processed, const Outcome& outcome) {
  const Row row(logits, {});
  float top;
  if (scan_for(row, settings, outcome.top_count, work, &top) == kOk) {
    report_row(row, work, top, outcome.tokens[0], settings, reduction, processed, true, outcome);
    return;
  }
  for (int64_t i = 0; i < outcome.report_count; ++i) {
    if (outcome.reports[i].form == kRaw) write_no_report(outcome.top_count, outcome.reports[i]);
  }
}

// ---- the door -------------------------------------------------------------------------------------------

inline void write_reports(const Logits& logits, const RowParams& settings, const Kept& kept,
                          const Told& processed, const Outcome& outcome) {
  const Row& row = kept.row;
  Workspace& work = kept.work;
  if (wants(outcome, false)) {
    report_row(row, work, kept.law.top, outcome.tokens[0], settings, kept.reduction, processed, false, outcome);
  }
  if (!wants(outcome, true)) return;
  if (row.adjusted()) {
    report_row_as_it_came(logits, settings, kept.reduction, work, processed, outcome);
  } else {
    report_row(row, work, kept.law.top, outcome.tokens[0], settings, kept.reduction, processed, true, outcome);
  }
}

Status sample(const Logits& logits, const Adjustment& adjustment, const RowParams& settings,
              Reduction reduction, Workspace& work, const Outcome& outcome) {
  const Row row(logits, adjustment);
  float top;
  const Status status = scan_for(row, settings, outcome.top_count, work, &top);
  if (status != kOk) return status;
  Kept kept = whole_row(row, settings, reduction, work, top);
  if (is_greedy(settings)) {
    const int64_t token = first_token(row, work.best, top);
    for (int64_t i = 0; i < outcome.draws; ++i) outcome.tokens[i] = token;
    if (outcome.kept_count) *outcome.kept_count = 1;
    write_reports(logits, settings, kept, greedy_law(row, top, key_of(top, token)), outcome);
    return kOk;
  }
  apply_stages(kept, settings);
  for (int64_t i = 0; i < outcome.draws; ++i) {
    outcome.tokens[i] = inside(row, draw(settings, kept, i));
  }
  if (outcome.kept_count) *outcome.kept_count = count_kept(kept);
  if (outcome.report_count) write_reports(logits, settings, kept, kept_law(kept), outcome);
  return kOk;
}

// ---- kept sets ------------------------------------------------------------------------------------------

// Leaves the kept set in work.keys, in rule 3's order, with its masses.
Status kept_set(const Logits& logits, const Adjustment& adjustment, const RowParams& settings, Workspace& work,
                int64_t* count) {
  const Row row(logits, adjustment);
  float top;
  *count = 0;
  const Status status = scan_for(row, settings, 0, work, &top);
  if (status != kOk) return status;
  Kept kept = whole_row(row, settings, kExact, work, top);
  if (is_greedy(settings)) {
    work.keys[0] = key_of(top, first_token(row, work.best, top));
    kept.whole = false;
    kept.count = 1;
  } else {
    apply_stages(kept, settings);
    list_kept(kept);
    sort_keys(work.keys, work.keys_left, kept.count);
  }
  kept.weighed = false;
  weigh(kept);
  *count = kept.count;
  return kOk;
}

}  // namespace

extern const Kernels kernels;
const Kernels kernels = {sample,      kept_set,  softmax,
                         log_softmax, logsumexp, {fixed_sums, fast_sum, add_exactly}};

}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
