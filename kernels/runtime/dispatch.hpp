// Which kernels this machine can run, and how a batch of rows goes to them.
#pragma once

#include <cstdint>
#include <vector>

#include "sampling/penalties.hpp"
#include "runtime/types.hpp"

namespace fastsample {

struct InstructionSet {
  const char* name;
  const Kernels* kernels;
  bool (*runs)();  // can this processor, under this system, run them?
};
// Those in this build, the least demanding first.
std::vector<InstructionSet> compiled_isas();
// The names in simd/isa_list.hpp, other architectures' included.
std::vector<const char*> known_isas();

// A batch of rows; strides in bytes.
struct Batch {
  const char* logits;
  int64_t rows;
  int64_t vocabulary;
  int64_t row_stride;
  int64_t token_stride;
  DType dtype;
};

// Where the answers about a batch go: arrays with the row as their first axis, behind the form.
struct Answers {
  int64_t* tokens;  // (rows, draws); -1 unless the row's status is kOk
  int64_t draws;
  int64_t* kept_counts;  // (rows), or null
  std::vector<Form> forms;
  int64_t top_count;
  double* logprobs;      // (forms, rows)
  int64_t* ranks;        // (forms, rows)
  int64_t* top_tokens;   // (forms, rows, top_count)
  double* top_logprobs;  // (forms, rows, top_count)
};

// All of these: `threads` 0 is chosen by rows and vocabulary. A row whose status comes as other than kOk is
// left alone. They throw std::bad_alloc; then what is written is not to be read.
void sample_rows(const Kernels& kernels, const Batch& batch, const Adjustments& adjustments,
                 const RowParams* settings, Reduction reduction, int threads, const Answers& answers,
                 uint8_t* status);

// softmax and log_softmax write (rows, vocabulary) float32, logsumexp (rows) float64.
enum class Function { kSoftmax, kLogSoftmax, kLogSumExp };
void apply_function(const Kernels& kernels, Function function, const Batch& batch, const double* temperatures,
                    Reduction reduction, int threads, void* target, uint8_t* status);

// The kept sets of a batch in rule 3's order, end to end.
struct KeptSets {
  std::vector<int64_t> tokens;
  std::vector<float> logits;
  std::vector<uint64_t> masses;
  std::vector<int64_t> offsets;
};
KeptSets kept_sets(const Kernels& kernels, const Batch& batch, const Adjustments& adjustments,
                   const RowParams* settings, int threads, uint8_t* status);

}  // namespace fastsample
