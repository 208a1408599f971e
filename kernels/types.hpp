// What the rooms of the kernels hand to each other: plain data, the same for every instruction set.
#pragma once

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
// Bests are read by whole vectors: their array ends with this many of -inf.
constexpr int64_t kBestPadding = 16;

// Scratch memory for one row; grown by the caller, so that row code never allocates.
struct Workspace {
  float* best;          // blocks + kBestPadding
  uint64_t* sums;       // blocks
  uint64_t* keys;       // tokens
  uint64_t* masses;     // tokens
  uint64_t* keys_left;  // tokens
  uint64_t* masses_left;  // tokens
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
