#include "runtime/dispatch.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <utility>

#include "simd/float_mode.hpp"
#include "simd/isa_list.hpp"
#include "math/ordinal.hpp"
#include "runtime/pool.hpp"

namespace fastsample {

#define FASTSAMPLE_DECLARE(architecture, isa, name, flags, runs) \
  FASTSAMPLE_IF_##architecture(namespace isa { extern const Kernels kernels; })
#define FASTSAMPLE_ENTRY(architecture, isa, name, flags, runs) \
  FASTSAMPLE_IF_##architecture({name, &isa::kernels, runs}, )
#define FASTSAMPLE_NAME(architecture, isa, name, flags, runs) name,

FASTSAMPLE_ISA_LIST(FASTSAMPLE_DECLARE)

std::vector<InstructionSet> compiled_isas() { return {FASTSAMPLE_ISA_LIST(FASTSAMPLE_ENTRY)}; }
std::vector<const char*> known_isas() { return {FASTSAMPLE_ISA_LIST(FASTSAMPLE_NAME)}; }

namespace { std::atomic<Reading> chosen_reading{preferred_reading()}; }  // namespace

Reading reading() { return chosen_reading.load(std::memory_order_relaxed); }
void set_reading(Reading reading) { chosen_reading.store(reading, std::memory_order_relaxed); }

namespace {

// One thread's scratch memory. It grows to the largest needs so far.
class ThreadWorkspace {
 public:
  // Scratch memory for rows of a vocabulary and lists of `capacity` keys.
  Workspace& reserve(int64_t vocabulary, int64_t capacity) {
    if (vocabulary > vocabulary_) grow_rows(vocabulary);
    if (capacity > work_.capacity) grow_lists(capacity);
    work_.reading = reading();
    return work_;
  }

 private:
  void grow_rows(int64_t vocabulary) {
    const int64_t blocks = (vocabulary + kBlock - 1) / kBlock;
    vocabulary_ = 0;
    work_.block_max = allocate(floats_[0], blocks);
    work_.part_max = allocate(floats_[1], blocks * kParts);
    work_.open_blocks = allocate(blocks_, blocks);
    work_.drawn = allocate(words_[5], blocks * (kBlock / 64));
    work_.span_masses = allocate(words_[0], (blocks + kSpan - 1) / kSpan);
    work_.span_totals = allocate(doubles_, (blocks + kSpan - 1) / kSpan);
    vocabulary_ = vocabulary;
  }

  void grow_lists(int64_t capacity) {
    work_.capacity = 0;
    work_.keys = allocate(words_[1], capacity);
    work_.masses = allocate(words_[2], capacity);
    work_.scratch_keys = allocate(words_[3], capacity);
    work_.scratch_masses = allocate(words_[4], capacity);
    work_.capacity = capacity;
  }

  template <class Item>
  static Item* allocate(std::unique_ptr<Item[]>& owner, int64_t length) {
    owner.reset(new Item[static_cast<size_t>(length + kPadding)]);
    return owner.get();
  }

  std::unique_ptr<float[]> floats_[2];
  std::unique_ptr<double[]> doubles_;
  std::unique_ptr<uint32_t[]> blocks_;
  std::unique_ptr<uint64_t[]> words_[6];
  Workspace work_ = {};
  int64_t vocabulary_ = 0;
};

thread_local ThreadWorkspace workspace;
thread_local RowProcessorBuilder processor_builder;

// Listing a larger share of a row costs more than keeping tokens in place. With it a workspace is less than one
// and a half times the row as float32.
int64_t draw_capacity(int64_t vocabulary) { return vocabulary / 7 + 2 * kBlock; }
// For a list of so many tokens. If it exceeds draw_capacity, it is allocated for one call.
int64_t list_capacity(int64_t tokens) { return tokens + 2 * kBlock; }
int64_t max_listed(int64_t vocabulary) { return draw_capacity(vocabulary) - 2 * kBlock; }

// Waking a thread costs a few microseconds: each must have several times that to do.
constexpr int64_t kLogitsPerThread = 1 << 18;

// A thread takes short rows in runs of neighbours, whose results share cache lines. It takes long rows one by one,
// since every thread waits for one that the system has suspended inside its run.
constexpr int64_t kLogitsPerRun = 1 << 14;

int choose_threads(const Batch& batch, int threads) {
  int64_t most = threads;
  if (threads == 0) most = batch.rows * batch.vocabulary / kLogitsPerThread;
  most = std::min({most, batch.rows, int64_t{kMaxThreads}});
  return most <= 1 ? 1 : std::min(static_cast<int>(most), max_threads());
}

// Calls task(row) once for every row, under the default floating-point mode.
template <class Task>
void for_each_row(const Batch& batch, int threads, Task& task) {
  parallel_for(
      batch.rows, std::max<int64_t>(1, kLogitsPerRun / batch.vocabulary), choose_threads(batch, threads),
      [](void* context, int64_t row) {
        const DefaultFloatMode mode;
        (*static_cast<Task*>(context))(row);
      },
      &task);
}

Logits row_of(const Batch& batch, int64_t row) {
  const int64_t start = batch.row_offsets ? batch.row_offsets[row] : row * batch.row_stride;
  return {batch.logits + start, batch.token_stride, batch.vocabulary, batch.dtype};
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Where the results of a row are written in each mode: as many of `logprobs` as there are modes.
__attribute__((always_inline)) inline RowOutput output_of_row(const SampleOutput& out, int64_t rows,
                                                              int64_t row, LogprobResult* logprobs) {
  int64_t count = 0;
  for (const LogprobsMode mode : out.modes) {
    const int64_t at = count * rows + row;
    logprobs[count++] = {mode,
                         out.logprobs + at * out.logprob_draws,
                         out.ranks + at * out.logprob_draws,
                         out.top_tokens + at * out.top_count,
                         out.top_logprobs + at * out.top_count,
                         out.given_logprobs + at * out.given_count,
                         out.given_ranks + at * out.given_count};
  }
  return {out.tokens + row * out.draws,
          out.draws,
          out.kept_counts ? out.kept_counts + row : nullptr,
          logprobs,
          count,
          out.logprob_draws,
          out.top_count,
          out.given + row * out.given_count,
          out.given_count,
          out.distinct};
}

// The output of a row without a token.
void write_empty(const RowOutput& out) {
  std::fill_n(out.tokens, out.draws, -1);
  if (out.kept_count) *out.kept_count = 0;
  for (int64_t mode = 0; mode < out.mode_count; ++mode) {
    const LogprobResult& result = out.logprobs[mode];
    std::fill_n(result.logprobs, out.logprob_draws, kNaN);
    std::fill_n(result.ranks, out.logprob_draws, 0);
    std::fill_n(result.top_tokens, out.top_count, -1);
    std::fill_n(result.top_logprobs, out.top_count, kNaN);
    std::fill_n(result.given_logprobs, out.given_count, kNaN);
    std::fill_n(result.given_ranks, out.given_count, 0);
  }
}

}  // namespace

void sample_rows(const Kernels& kernels, const Batch& batch, const LogitsProcessors& processors,
                 const RowParams* params, Reduction reduction, int threads, const SampleOutput& out,
                 uint8_t* status) {
  auto sample_row = [&](int64_t row) {
    LogprobResult logprobs[3];
    const RowOutput row_out = output_of_row(out, batch.rows, row, logprobs);
    write_empty(row_out);
    if (status[row] != kOk) return;
    const RowProcessors edits = processor_builder.build(processors, row, batch.vocabulary, params[row]);
    const auto sample_with = [&](Workspace& work) {
      return kernels.sample(row_of(batch, row), edits, params[row], reduction, work, row_out);
    };
    ThreadWorkspace large;
    status[row] = out.top_count <= max_listed(batch.vocabulary)
                      ? sample_with(workspace.reserve(batch.vocabulary, draw_capacity(batch.vocabulary)))
                      : sample_with(large.reserve(batch.vocabulary, list_capacity(out.top_count)));
    if (status[row] == kNoCapacity) {
      status[row] = sample_with(large.reserve(batch.vocabulary, list_capacity(batch.vocabulary)));
    }
  };
  for_each_row(batch, threads, sample_row);
}

void softmax_rows(const Kernels& kernels, SoftmaxFunction function, const Batch& batch, const RowParams* params,
                  Reduction reduction, int threads, void* target, uint8_t* status) {
  auto apply = [&](int64_t row) {
    if (status[row] != kOk) return;
    Workspace& work = workspace.reserve(batch.vocabulary, 0);
    const Logits logits = row_of(batch, row);
    const double temperature = params[row].temperature;
    float* const floats = static_cast<float*>(target) + row * batch.vocabulary;
    switch (function) {
      case SoftmaxFunction::kSoftmax:
        status[row] = kernels.softmax(logits, temperature, reduction, work, floats);
        break;
      case SoftmaxFunction::kLogSoftmax:
        status[row] = kernels.log_softmax(logits, temperature, reduction, work, floats);
        break;
      case SoftmaxFunction::kLogSumExp:
        status[row] = kernels.logsumexp(logits, temperature, reduction, work,
                                        static_cast<double*>(target) + row);
        break;
    }
  };
  for_each_row(batch, threads, apply);
}

KeptSets kept_sets(const Kernels& kernels, const Batch& batch, const LogitsProcessors& processors,
                   const RowParams* params, int threads, uint8_t* status) {
  // A key and its mass for each token.
  std::vector<std::vector<std::pair<uint64_t, uint64_t>>> rows(static_cast<std::size_t>(batch.rows));
  auto keep_row = [&](int64_t row) {
    if (status[row] != kOk) return;
    ThreadWorkspace large;
    Workspace& work = large.reserve(batch.vocabulary, list_capacity(batch.vocabulary));
    const RowProcessors edits = processor_builder.build(processors, row, batch.vocabulary, params[row]);
    int64_t count = 0;
    status[row] = kernels.kept_set(row_of(batch, row), edits, params[row], work, &count);
    auto& kept = rows[static_cast<std::size_t>(row)];
    kept.reserve(static_cast<std::size_t>(count));
    for (int64_t i = 0; i < count; ++i) kept.emplace_back(work.keys[i], work.masses[i]);
  };
  for_each_row(batch, threads, keep_row);
  KeptSets sets;
  sets.offsets.push_back(0);
  for (const auto& kept : rows) {
    for (const auto& [key, mass] : kept) {
      sets.tokens.push_back(token_of(key));
      sets.logits.push_back(logit_of(key));
      sets.masses.push_back(mass);
    }
    sets.offsets.push_back(static_cast<int64_t>(sets.tokens.size()));
  }
  return sets;
}

}  // namespace fastsample
