// Rule 6 (and 8): the draw from a weighed kept set, by integer masses or by float ones.
#pragma once

#include "math/philox.hpp"
#include "sampling/total_mass.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// ---- integer masses -------------------------------------------------------------------------------------

inline int64_t draw_by_integers(const Kept& kept, uint64_t u) {
  uint64_t r = static_cast<uint64_t>((static_cast<unsigned __int128>(u) * kept.total) >> 64);
  if (!kept.whole) return token_of(kept.work.keys[first_above(kept.work.masses, kept.count, &r)]);
  int64_t b = first_above(kept.work.sums, spans_of<SpanMass>(kept.row), &r) * kSpan;
  uint64_t masses[kBlock];
  for (const int64_t last = b + kSpan - 1;; ++b) {
    const uint64_t total = block_masses(kept, b, masses);
    if (r < total || b == last || b + 1 == kept.row.blocks()) break;
    r -= total;
  }
  return b * kBlock + first_above(masses, kBlock, &r);
}

// ---- float masses ---------------------------------------------------------------------------------------

// Adds masses to a running sum, one after the other, until it exceeds r; returns that one's place, or `count`.
inline int64_t first_to_exceed(const char* values, int64_t count, double r, double* running) {
  double after = *running;
  for (int64_t i = 0; i < count; ++i) after += static_cast<double>(load_one(values + 4 * i));
  if (!(after > r)) {
    *running = after;
    return count;
  }
  // It never falls: the place is one of these.
  int64_t i = 0;
  for (; i < count - 1; ++i) {
    *running += static_cast<double>(load_one(values + 4 * i));
    if (*running > r) break;
  }
  return i;
}

// The place of the last mass above 0; -1 where there is none.
inline int64_t last_with_mass(const char* values, int64_t count) {
  int64_t i = count - 1;
  while (i >= 0 && !(load_one(values + 4 * i) > 0.0f)) --i;
  return i;
}

inline int64_t draw_listed_by_floats(const Kept& kept, double r) {
  const char* const values = listed_float_masses(kept.work);
  double before = 0;
  int64_t start = 0;
  int64_t end = kept.count;
  if (kept.reduction == kFixed) {
    RuleBlock block = rule_block(kept, 0);
    for (; block.end < kept.count && !(before + block.weight > r); block = rule_block(kept, start)) {
      before += block.weight;
      start = block.end;
    }
    end = block.end;
  }
  int64_t place = first_to_exceed(values + 4 * start, end - start, r, &before);
  if (place == end - start) place = last_with_mass(values + 4 * start, end - start);
  return token_of(kept.work.keys[start + (place < 0 ? 0 : place)]);
}

// The float masses of one block of a whole kept set, in ascending token.
inline void block_float_masses(const Kept& kept, int64_t b, char* values) {
  const char* block = kept.row.block(b);
  const Cut cut(kept.cut);
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    const Floats logits = load(block + 4 * i);
    const Floats masses = float_masses_of(kept.law, logits);
    store(values + 4 * i, logits >= cut.bound_at(b * kBlock + i) ? masses : Floats{});
  }
}

template <class Sum>
int64_t draw_whole_by_floats(const Kept& kept, double r) {
  const double* const sums = kept.work.float_sums;
  double before = 0;
  int64_t span = 0;
  for (; span < spans_of<Sum>(kept.row) - 1 && !(before + sums[span] > r); ++span) before += sums[span];
  char values[4 * kBlock];
  int64_t last = 0;  // token with a mass
  const int64_t after = (span + 1) * Sum::kBlocks;
  for (int64_t b = span * Sum::kBlocks; b < after && b < kept.row.blocks(); ++b) {
    if (kept.work.best[b] < logit_of(kept.cut)) continue;
    block_float_masses(kept, b, values);
    const int64_t place = first_to_exceed(values, kBlock, r, &before);
    if (place < kBlock) return b * kBlock + place;
    const int64_t end = last_with_mass(values, kBlock);
    last = end >= 0 ? b * kBlock + end : last;
  }
  return last;
}

inline int64_t draw_by_floats(const Kept& kept, uint64_t u) {
  const double r = static_cast<double>(u >> 11) * 0x1p-53 * kept.weight;
  if (!kept.whole) return draw_listed_by_floats(kept, r);
  return kept.reduction == kFixed ? draw_whole_by_floats<FixedSum>(kept, r)
                                  : draw_whole_by_floats<FastSum>(kept, r);
}

// ---- the draw -------------------------------------------------------------------------------------------

// On the stream that lies `nth` after the row's own.
inline int64_t draw(const RowParams& settings, const Kept& kept, int64_t nth) {
  const uint32_t stream = settings.stream + static_cast<uint32_t>(nth);
  const uint64_t u = uniform(settings.seed, settings.position, stream, 0);
  return kept.reduction == kExact ? draw_by_integers(kept, u) : draw_by_floats(kept, u);
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
