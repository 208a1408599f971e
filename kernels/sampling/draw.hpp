// Sections 6 and 8: the draw from a kept set whose masses are computed, integers or floats.
#pragma once

#include "math/clocks.hpp"
#include "math/philox.hpp"
#include "sampling/total_mass.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// ---- integer masses -------------------------------------------------------------------------------------

// floor(a * b / 2^64).
inline uint64_t mul_high(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
}

// Draws from a kept set in place; take_out(b, masses) takes masses out of a block that the sums have without them, and
// returns their total.
template <class TakeOut>
inline int64_t draw_in_place(const KeptSet& kept, uint64_t u, TakeOut take_out) {
  uint64_t r = mul_high(u, kept.total);
  int64_t b = first_exceeding(kept.work.span_masses, spans_of<SpanMass>(kept.row), &r) * kSpan;
  uint64_t masses[kBlock];
  for (const int64_t last = b + kSpan - 1;; ++b) {
    const uint64_t all = block_masses(kept, b, masses);
    const uint64_t total = all - take_out(b, masses);
    if (r < total || b == last || b + 1 == kept.row.blocks()) break;
    r -= total;
  }
  return b * kBlock + first_exceeding(masses, kBlock, &r);
}

inline int64_t draw_by_integers(const KeptSet& kept, uint64_t u) {
  if (kept.in_place) return draw_in_place(kept, u, [](int64_t, uint64_t*) { return uint64_t{0}; });
  uint64_t r = mul_high(u, kept.total);
  return token_of(kept.work.keys[first_exceeding(kept.work.masses, kept.count, &r)]);
}

// ---- float masses ---------------------------------------------------------------------------------------

// Adds masses to a running sum one by one until it exceeds r; returns the index of the last one added, or `count`.
inline int64_t first_float_exceeding(const char* values, int64_t count, double r, double* running) {
  double after = *running;
  for (int64_t i = 0; i < count; ++i) after += static_cast<double>(load_one(values + 4 * i));
  if (!(after > r)) {
    *running = after;
    return count;
  }
  // The sum never decreases, so it exceeds r at one of these.
  int64_t i = 0;
  for (; i < count - 1; ++i) {
    *running += static_cast<double>(load_one(values + 4 * i));
    if (*running > r) break;
  }
  return i;
}

// The index of the last mass above 0; -1 if there is none.
inline int64_t last_with_mass(const char* values, int64_t count) {
  int64_t i = count - 1;
  while (i >= 0 && !(load_one(values + 4 * i) > 0.0f)) --i;
  return i;
}

inline int64_t draw_listed_by_floats(const KeptSet& kept, double r) {
  const char* const values = listed_float_masses(kept.work);
  double before = 0;
  int64_t start = 0;
  int64_t end = kept.count;
  if (kept.reduction == kFixed) {
    RuleBlock block = rule_block(kept, 0);
    for (; block.end < kept.count && !(before + block.mass > r); block = rule_block(kept, start)) {
      before += block.mass;
      start = block.end;
    }
    end = block.end;
  }
  int64_t place = first_float_exceeding(values + 4 * start, end - start, r, &before);
  if (place == end - start) place = last_with_mass(values + 4 * start, end - start);
  return token_of(kept.work.keys[start + (place < 0 ? 0 : place)]);
}

// The float masses of one block of a kept set in place, in ascending token.
inline void block_float_masses(const KeptSet& kept, int64_t b, char* values) {
  const char* block = kept.row.block(b);
  const Cut cut(kept.cut);
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    const Floats logits = load(block + 4 * i);
    const Floats masses = float_masses_of(kept.scaling, logits);
    store(values + 4 * i, logits >= cut.bound_at(b * kBlock + i) ? masses : Floats{});
  }
}

template <class Sum>
int64_t draw_in_place_by_floats(const KeptSet& kept, double r) {
  const double* const totals = kept.work.span_totals;
  double before = 0;
  int64_t span = 0;
  for (; span < spans_of<Sum>(kept.row) - 1 && !(before + totals[span] > r); ++span) before += totals[span];
  char values[4 * kBlock];
  int64_t last = 0;  // the last token with a mass
  const int64_t after = (span + 1) * Sum::kBlocks;
  for (int64_t b = span * Sum::kBlocks; b < after && b < kept.row.blocks(); ++b) {
    if (kept.work.block_max[b] < logit_of(kept.cut)) continue;
    block_float_masses(kept, b, values);
    const int64_t place = first_float_exceeding(values, kBlock, r, &before);
    if (place < kBlock) return b * kBlock + place;
    const int64_t end = last_with_mass(values, kBlock);
    last = end >= 0 ? b * kBlock + end : last;
  }
  return last;
}

inline int64_t draw_by_floats(const KeptSet& kept, uint64_t u) {
  const double r = static_cast<double>(u >> 11) * 0x1p-53 * kept.float_total;
  if (!kept.in_place) return draw_listed_by_floats(kept, r);
  return kept.reduction == kFixed ? draw_in_place_by_floats<FixedSum>(kept, r)
                                  : draw_in_place_by_floats<FastSum>(kept, r);
}

// ---- the draw -------------------------------------------------------------------------------------------

// Draws on the stream that is `nth` after the row's own.
inline int64_t draw(const RowParams& params, const KeptSet& kept, int64_t nth) {
  const uint32_t stream = params.stream + static_cast<uint32_t>(nth);
  const uint64_t u = uniform(params.seed, params.position, stream, kInversePurpose);
  return kept.reduction == kExact ? draw_by_integers(kept, u) : draw_by_floats(kept, u);
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
