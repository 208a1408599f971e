// Which kernels this machine can run, and how a batch of rows goes to them.
#pragma once

#include <cstdint>
#include <vector>

#include "types.hpp"

namespace fastsample {

// Compiled into this build, the least demanding first.
std::vector<const Kernels*> compiled_kernels();
// Can this processor, under this system, run them?
bool usable(const Kernels& kernels);

// A batch: `stride` is the number of bytes from row to row.
struct Batch {
  const char* logits;
  int64_t rows;
  int64_t vocabulary;
  int64_t stride;
  const Settings* settings;
};

// Every row's token (-1 unless its status is kOk) and status. `threads` 0: chosen by rows and vocabulary.
// Throws std::bad_alloc; then the rows that are written are not to be read.
void sample_rows(const Kernels& kernels, const Batch& batch, int threads, int64_t* tokens,
                 uint8_t* status);

// One row's kept set; `tokens` and `masses` have room for the vocabulary.
Status kept_set(const Kernels& kernels, const void* logits, int64_t vocabulary,
                const Settings& settings, int64_t* tokens, uint64_t* masses, int64_t* count);

}  // namespace fastsample
