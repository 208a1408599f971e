#include "runtime/dispatch.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "simd/float_mode.hpp"
#include "simd/isa_list.hpp"
#include "math/sort_key.hpp"
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

namespace {

// One thread's scratch memory. It grows to the largest needs seen.
class ThreadWorkspace {
 public:
  // For rows of a vocabulary, and that many keys at once.
  Workspace& with_room(int64_t vocabulary, int64_t room) {
    if (vocabulary > vocabulary_) grow_rows(vocabulary);
    if (room > work_.room) grow_room(room);
    return work_;
  }

 private:
  void grow_rows(int64_t vocabulary) {
    const int64_t blocks = (vocabulary + kBlock - 1) / kBlock;
    vocabulary_ = 0;
    work_.best = take(floats_[0], blocks);
    work_.part_best = take(floats_[1], blocks * kParts);
    work_.blocks = take(blocks_, blocks);
    work_.sums = take(words_[0], (blocks + kSpan - 1) / kSpan);
    work_.float_sums = take(doubles_, (blocks + kSpan - 1) / kSpan);
    vocabulary_ = vocabulary;
  }

  void grow_room(int64_t room) {
    work_.room = 0;
    work_.keys = take(words_[1], room);
    work_.masses = take(words_[2], room);
    work_.keys_left = take(words_[3], room);
    work_.masses_left = take(words_[4], room);
    work_.room = room;
  }

  template <class Item>
  static Item* take(std::unique_ptr<Item[]>& owner, int64_t length) {
    owner.reset(new Item[static_cast<size_t>(length + kPadding)]);
    return owner.get();
  }

  std::unique_ptr<float[]> floats_[2];
  std::unique_ptr<double[]> doubles_;
  std::unique_ptr<uint32_t[]> blocks_;
  std::unique_ptr<uint64_t[]> words_[5];
  Workspace work_ = {};
  int64_t vocabulary_ = 0;
};

thread_local ThreadWorkspace workspace;
thread_local Adjuster adjuster;

// What is listed of a row beyond this share of it is dearer than leaving it in place. With the rest of a
// workspace it comes to less than one and a half times the row as float32.
int64_t room_to_draw(int64_t vocabulary) { return vocabulary / 7 + 2 * kBlock; }
// For a list of so many tokens. Where it is more than the above, a call has it for itself.
int64_t room_to_list(int64_t tokens) { return tokens + 2 * kBlock; }
int64_t most_to_list(int64_t vocabulary) { return room_to_draw(vocabulary) - 2 * kBlock; }

// Waking a thread costs a few microseconds: each shall have several times that to do.
constexpr int64_t kLogitsPerThread = 1 << 18;

// Short rows go out in runs of neighbours, whose answers share cache lines. Long ones go one by one: all
// wait for a thread that the system has stopped inside its run.
constexpr int64_t kLogitsPerRun = 1 << 14;

int choose_threads(const Batch& batch, int threads) {
  int64_t most = threads;
  if (threads == 0) most = batch.rows * batch.vocabulary / kLogitsPerThread;
  most = std::min({most, batch.rows, int64_t{kMostThreads}});
  return most <= 1 ? 1 : std::min(static_cast<int>(most), most_threads());
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
  return {batch.logits + row * batch.row_stride, batch.token_stride, batch.vocabulary, batch.dtype};
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// What is told of a row that has no token.
void write_nothing(const Answers& answers, int64_t rows, int64_t row) {
  std::fill_n(answers.tokens + row * answers.draws, answers.draws, -1);
  if (answers.kept_counts) answers.kept_counts[row] = 0;
  for (size_t form = 0; form < answers.forms.size(); ++form) {
    const int64_t at = static_cast<int64_t>(form) * rows + row;
    answers.logprobs[at] = kNaN;
    answers.ranks[at] = 0;
    std::fill_n(answers.top_tokens + at * answers.top_count, answers.top_count, -1);
    std::fill_n(answers.top_logprobs + at * answers.top_count, answers.top_count, kNaN);
  }
}

}  // namespace

void sample_rows(const Kernels& kernels, const Batch& batch, const Adjustments& adjustments,
                 const RowParams* settings, Reduction reduction, int threads, const Answers& answers,
                 uint8_t* status) {
  auto sample_row = [&](int64_t row) {
    write_nothing(answers, batch.rows, row);
    if (status[row] != kOk) return;
    Report reports[3];
    int64_t count = 0;
    for (const Form form : answers.forms) {
      const int64_t at = count * batch.rows + row;
      reports[count++] = {form, answers.logprobs + at, answers.ranks + at,
                          answers.top_tokens + at * answers.top_count,
                          answers.top_logprobs + at * answers.top_count};
    }
    const Outcome outcome = {answers.tokens + row * answers.draws,
                             answers.draws,
                             answers.kept_counts ? answers.kept_counts + row : nullptr,
                             reports,
                             count,
                             answers.top_count};
    ThreadWorkspace all;
    Workspace& work = answers.top_count <= most_to_list(batch.vocabulary)
                          ? workspace.with_room(batch.vocabulary, room_to_draw(batch.vocabulary))
                          : all.with_room(batch.vocabulary, room_to_list(answers.top_count));
    const Adjustment adjustment = adjuster.adjust(adjustments, row, batch.vocabulary, settings[row]);
    status[row] = kernels.sample(row_of(batch, row), adjustment, settings[row], reduction, work, outcome);
  };
  for_each_row(batch, threads, sample_row);
}

void apply_function(const Kernels& kernels, Function function, const Batch& batch, const double* temperatures,
                    Reduction reduction, int threads, void* target, uint8_t* status) {
  auto apply = [&](int64_t row) {
    if (status[row] != kOk) return;
    Workspace& work = workspace.with_room(batch.vocabulary, 0);
    const Logits logits = row_of(batch, row);
    float* const floats = static_cast<float*>(target) + row * batch.vocabulary;
    switch (function) {
      case Function::kSoftmax:
        status[row] = kernels.softmax(logits, temperatures[row], reduction, work, floats);
        break;
      case Function::kLogSoftmax:
        status[row] = kernels.log_softmax(logits, temperatures[row], reduction, work, floats);
        break;
      case Function::kLogSumExp:
        status[row] = kernels.logsumexp(logits, temperatures[row], reduction, work,
                                        static_cast<double*>(target) + row);
        break;
    }
  };
  for_each_row(batch, threads, apply);
}

KeptSets kept_sets(const Kernels& kernels, const Batch& batch, const Adjustments& adjustments,
                   const RowParams* settings, int threads, uint8_t* status) {
  // Candidates: a key and its mass each.
  std::vector<std::vector<std::pair<uint64_t, uint64_t>>> rows(static_cast<std::size_t>(batch.rows));
  auto keep_row = [&](int64_t row) {
    if (status[row] != kOk) return;
    ThreadWorkspace all;
    Workspace& work = all.with_room(batch.vocabulary, room_to_list(batch.vocabulary));
    const Adjustment adjustment = adjuster.adjust(adjustments, row, batch.vocabulary, settings[row]);
    int64_t count = 0;
    status[row] = kernels.kept_set(row_of(batch, row), adjustment, settings[row], work, &count);
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
