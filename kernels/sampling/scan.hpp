// The first pass over a row: the largest logit of each block, and whether the row is valid. For most parameters it is
// the only pass over all of the row.
#pragma once

#include "sampling/row.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

inline bool holds_invalid(const Row& row) {
  for (int64_t b = 0; b < row.blocks(); ++b) {
    const char* block = row.block(b);
    for (int64_t i = 0; i < kBlock; ++i) {
      uint32_t bits;
      std::memcpy(&bits, block + 4 * i, sizeof bits);
      if (bits == 0x7F800000u || (bits & 0x7FFFFFFFu) > 0x7F800000u) return true;
    }
  }
  return false;
}

// With Reading::kStreams so many parts of a row are read in turn.
constexpr int64_t kStreams = 4;

// The results of a scan for the blocks so far.
struct ScanState {
  Floats max = fill(-kInfinity);
  NanCheck nans_even;
  NanCheck nans_odd;
};

template <bool kPartMax>
class Scan {
 public:
  Scan(const Row& row, Workspace& work) : row_(row), work_(work) {}

  Status run(float* top) const {
    ScanState state;
    const int64_t full = row_.full_blocks();
    const auto scan_blocks = [&](auto load, int64_t size) __attribute__((always_inline)) {
      ScanState local;  // in registers
      scan_alike(load, size, local);
      state = local;
    };
    if (!row_.read_alike(scan_blocks)) {
      for (int64_t b = 0; b < full; ++b) scan_one(b, state);
    }
    if (full < row_.blocks()) scan_one(full, state);
    for (int64_t i = 0; i < kPadding; ++i) {
      work_.block_max[row_.blocks() + i] = -kInfinity;
      if (kPartMax) work_.part_max[row_.blocks() * kParts + i] = -kInfinity;
    }
    work_.has_part_max = kPartMax;
    work_.row_scale = 0;
    *top = read(largest(largest_of_parts(state.max)));
    const bool is_suspicious = *top == kInfinity || state.nans_even.any() || state.nans_odd.any();
    if (is_suspicious && holds_invalid(row_)) return kInvalid;
    return *top == -kInfinity ? kEmpty : kOk;
  }

 private:
  // All full blocks, where load(token) is a vector of logits, whose source has `size` bytes for each.
  template <class Load>
  FASTSAMPLE_INLINE void scan_alike(Load load, int64_t size, ScanState& state) const {
    const int64_t blocks = row_.full_blocks();
    const auto add = [&](int64_t b) __attribute__((always_inline)) {
      scan_block(b, [=](int64_t i) __attribute__((always_inline)) { return load(b * kBlock + i); }, state);
    };
    if (work_.reading == Reading::kAhead) {
      for (int64_t b = 0; b < blocks; ++b) {
        row_.prefetch_ahead(b * kBlock * size, kBlock * size);
        add(b);
      }
      return;
    }
    const int64_t stream = blocks / kStreams;
    for (int64_t b = 0; b < stream; ++b) {
#pragma GCC unroll 4
      for (int64_t first = 0; first < kStreams; ++first) add(first * stream + b);
    }
    for (int64_t b = kStreams * stream; b < blocks; ++b) add(b);
  }

  __attribute__((noinline)) void scan_one(int64_t b, ScanState& state) const {
    row_.with_block(b, [&](auto load) __attribute__((always_inline)) { scan_block(b, load, state); });
  }

  // load(i) is a vector of the block's logits from its i-th on.
  template <class Load>
  FASTSAMPLE_INLINE void scan_block(int64_t b, Load load, ScanState& state) const {
    Floats max_even = fill(-kInfinity);
    Floats max_odd = fill(-kInfinity);
#pragma GCC unroll 16
    for (int64_t i = 0; i < kBlock; i += 2 * kLanes) {
      const Floats even = load(i);
      const Floats odd = load(i + kLanes);
      (i % (4 * kLanes) == 0 ? state.nans_even : state.nans_odd).add(even, odd);
      max_even = larger(max_even, even);
      max_odd = larger(max_odd, odd);
    }
    const Floats lane_max = larger(max_even, max_odd);
    state.max = larger(state.max, lane_max);
    const Parts parts = largest_of_parts(lane_max);
    work_.block_max[b] = read(largest(parts));
    if (kPartMax) std::memcpy(work_.part_max + b * kParts, &parts, sizeof parts);
  }

  const Row& row_;
  Workspace& work_;
};

// Writes each block's largest logit, with kPartMax also those of its parts, and the row's top logit.
template <bool kPartMax>
inline Status scan(const Row& row, Workspace& work, float* top) {
  return Scan<kPartMax>(row, work).run(top);
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
