// One row from start to end: the only file that orders the steps. scan -> filters -> masses -> draw.
#pragma once

#include "filters.hpp"
#include "philox.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// T is rounded before it is compared: 1e-50 is 0.
inline bool is_greedy(const Settings& settings) {
  return static_cast<float>(settings.temperature) == 0.0f;
}

inline Status scan_for(const Settings& settings, const Row& row, Workspace& work, float* top) {
  const bool lane_bests =
      settings.top_k < row.vocabulary() && needs_lane_bests(settings.top_k, row.blocks());
  return lane_bests ? scan<true>(row, work, top) : scan<false>(row, work, top);
}

inline void keep(const Settings& settings, Kept& kept) {
  kept.law.scale = scale_of(settings.temperature);
  filter_top_k(kept, settings.top_k);
  filter_top_p(kept, static_cast<float>(settings.top_p));
  filter_min_p(kept, static_cast<float>(settings.min_p));
  weigh(kept);
}

// The masses of one block, in ascending token.
inline void block_masses(const Row& row, Law law, int64_t b, uint64_t* masses) {
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    store_masses(masses_of(law, load(row.block(b) + 4 * i)), masses + i);
  }
}

// The first place whose running mass exceeds r, which is below the masses' total; r is what is left there.
// The last place, where a row that changed during the call makes the total another one.
inline int64_t first_above(const uint64_t* masses, int64_t count, uint64_t* r) {
  int64_t i = 0;
  for (; i < count - 1 && *r >= masses[i]; ++i) *r -= masses[i];
  return i;
}

// A row that another thread writes during the call may give any token, but never one outside itself.
inline int64_t inside(const Row& row, int64_t token) {
  return token >= 0 && token < row.vocabulary() ? token : row.vocabulary() - 1;
}

// Rule 6.
inline int64_t draw(const Settings& settings, const Kept& kept) {
  const uint64_t u = uniform(settings.seed, settings.position, settings.stream, 0);
  uint64_t r = static_cast<uint64_t>((static_cast<unsigned __int128>(u) * kept.total) >> 64);
  if (!kept.whole) return token_of(kept.work.keys[first_above(kept.work.masses, kept.count, &r)]);
  const int64_t b = first_above(kept.work.sums, kept.row.blocks(), &r);
  uint64_t masses[kBlock];
  block_masses(kept.row, kept.law, b, masses);
  return b * kBlock + first_above(masses, kBlock, &r);
}

Status sample(const void* logits, int64_t vocabulary, const Settings& settings, Workspace& work,
              int64_t* token) {
  const Row row(logits, vocabulary);
  Kept kept = {row, work, {}, true, false, 0, 0};
  *token = -1;
  const Status status = scan_for(settings, row, work, &kept.law.top);
  if (status != kOk) return status;
  if (is_greedy(settings)) {
    *token = inside(row, first_token(row, work.best, kept.law.top));
    return kOk;
  }
  keep(settings, kept);
  *token = inside(row, draw(settings, kept));
  return kOk;
}

// All tokens above -inf with their masses; their number comes back.
inline int64_t list_row(const Kept& kept, int64_t* tokens, uint64_t* masses) {
  int64_t count = 0;
  uint64_t in_block[kBlock];
  for (int64_t b = 0; b < kept.row.blocks(); ++b) {
    block_masses(kept.row, kept.law, b, in_block);
    for (int64_t i = 0; i < kBlock; ++i) {
      if (load_one(kept.row.block(b) + 4 * i) == -kInfinity) continue;
      tokens[count] = b * kBlock + i;
      masses[count++] = in_block[i];
    }
  }
  return count;
}

inline int64_t list_candidates(const Kept& kept, int64_t* tokens, uint64_t* masses) {
  for (int64_t i = 0; i < kept.count; ++i) {
    tokens[i] = token_of(kept.work.keys[i]);
    masses[i] = kept.work.masses[i];
  }
  return kept.count;
}

Status kept_set(const void* logits, int64_t vocabulary, const Settings& settings, Workspace& work,
                int64_t* tokens, uint64_t* masses, int64_t* count) {
  const Row row(logits, vocabulary);
  Kept kept = {row, work, {}, true, false, 0, 0};
  *count = 0;
  const Status status = scan_for(settings, row, work, &kept.law.top);
  if (status != kOk) return status;
  if (is_greedy(settings)) {
    tokens[0] = inside(row, first_token(row, work.best, kept.law.top));
    masses[0] = kTopMass;
    *count = 1;
    return kOk;
  }
  keep(settings, kept);
  *count = kept.whole ? list_row(kept, tokens, masses) : list_candidates(kept, tokens, masses);
  return kOk;
}

}  // namespace

extern const Kernels kernels;
const Kernels kernels = {FASTSAMPLE_ISA_NAME, sample, kept_set};

}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
