// What the rooms of the kernels hand to each other: plain data, the same for every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastsample {

// One row's parameters, as the caller gave them: rule 1 rounds them to float32 inside the kernels.
// params.py builds arrays of it under the name SETTINGS: the two layouts move together.
struct Settings {
  double temperature;
  double top_p;
  double min_p;
  int64_t top_k;  // 0: off
  uint64_t seed;
  uint64_t position;
  uint32_t stream;
  uint32_t unused;
};

enum Status : uint8_t { kOk = 0, kInvalid = 1, kEmpty = 2 };

// A block is the unit that a row is searched in: its best logit says whether it must be opened.
constexpr int64_t kBlock = 128;
// Arrays are read and written by whole vectors, of up to 16 lanes: each ends with this much room.
constexpr int64_t kPadding = 16;

// Scratch memory for one row; grown by the caller, so that row code never allocates.
struct Workspace {
  float* best;            // a block's best logit
  float* lane_best;       // the best logit of each lane of a block
  uint64_t* sums;         // a block's total mass
  uint64_t* keys;         // candidates
  uint64_t* masses;       // theirs
  uint64_t* keys_left;    // what a search for a cut has left
  uint64_t* masses_left;  // theirs
};

// The kernels of one instruction set. `logits` may have any alignment.
struct Kernels {
  const char* name;
  // The token of one row; -1 unless the status is kOk.
  Status (*sample)(const void* logits, int64_t vocabulary, const Settings& settings,
                   Workspace& work, int64_t* token);
  // The kept set in ascending token, with its masses; `count` is 0 unless the status is kOk.
  Status (*kept_set)(const void* logits, int64_t vocabulary, const Settings& settings,
                     Workspace& work, int64_t* tokens, uint64_t* masses, int64_t* count);
};

}  // namespace fastsample
