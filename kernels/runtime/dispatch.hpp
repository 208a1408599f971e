// The kernels that this machine can run, and batches of rows.
#pragma once

#include <cstdint>
#include <vector>

#include "sampling/penalties.hpp"
#include "runtime/types.hpp"

namespace fastsample {

struct InstructionSet {
  const char* name;
  const Kernels* kernels;
  bool (*runs)();  // can this machine run them?
};
// The instruction sets in this build, the least demanding first.
std::vector<InstructionSet> compiled_isas();
// All names in simd/isa_list.hpp, those of other architectures too.
std::vector<const char*> known_isas();

// How first passes read rows: as is fastest on this processor, unless it is set. It changes no result.
Reading reading();
void set_reading(Reading reading);

// A batch of rows; strides in bytes.
struct Batch {
  const char* logits;
  int64_t rows;
  int64_t vocabulary;
  int64_t row_stride;
  int64_t token_stride;
  DType dtype;
  // Where each row starts, in bytes from `logits`; null: at multiples of row_stride.
  const int64_t* row_offsets;
};

// Where the results of a batch are written.
struct SampleOutput {
  int64_t* tokens = nullptr;  // (rows, draws); -1 unless the row's status is kOk
  int64_t draws = 0;
  int64_t* kept_counts = nullptr;  // (rows), or null
  std::vector<LogprobsMode> modes;
  int64_t logprob_draws = 0;  // how many of each row's draws have log-probabilities: all, or 0
  int64_t top_count = 0;
  int64_t given_count = 0;
  const int64_t* given = nullptr;    // (rows, given_count): the caller's tokens, -1 for none
  double* logprobs = nullptr;        // (modes, rows, logprob_draws)
  int64_t* ranks = nullptr;          // (modes, rows, logprob_draws)
  int64_t* top_tokens = nullptr;     // (modes, rows, top_count)
  double* top_logprobs = nullptr;    // (modes, rows, top_count)
  double* given_logprobs = nullptr;  // (modes, rows, given_count)
  int64_t* given_ranks = nullptr;    // (modes, rows, given_count)
  bool distinct = false;             // without replacement: -1 after a row's last token
};

// In all of these, `threads` 0 chooses by rows and vocabulary, and a row whose status is not kOk on entry is
// skipped. They throw std::bad_alloc; then the output is undefined.
void sample_rows(const Kernels& kernels, const Batch& batch, const LogitsProcessors& processors,
                 const RowParams* params, Reduction reduction, int threads, const SampleOutput& out,
                 uint8_t* status);

// softmax and log_softmax write (rows, vocabulary) float32, logsumexp (rows) float64. Of `params` they read the
// temperature.
enum class SoftmaxFunction { kSoftmax, kLogSoftmax, kLogSumExp };
void softmax_rows(const Kernels& kernels, SoftmaxFunction function, const Batch& batch, const RowParams* params,
                  Reduction reduction, int threads, void* target, uint8_t* status);

// The kept sets of a batch in section 3's order, concatenated.
struct KeptSets {
  std::vector<int64_t> tokens;
  std::vector<float> logits;
  std::vector<uint64_t> masses;
  std::vector<int64_t> offsets;
};
KeptSets kept_sets(const Kernels& kernels, const Batch& batch, const LogitsProcessors& processors,
                   const RowParams* params, int threads, uint8_t* status);

}  // namespace fastsample
