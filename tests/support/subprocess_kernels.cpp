// The kernels behind a pipe, with no Python: they answer jobs for a processor that is only emulated, one
// after the other until the input ends. tests/piped.py is the other end, and says what comes and goes.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/dispatch.hpp"

namespace {

using namespace fastsample;

// What a job starts with.
struct Asked {
  int64_t door;  // 0: sample, 1: kept sets, 2 and up: a Function
  int64_t rows;
  int64_t columns;
  int64_t vocabulary;
  int64_t dtype;
  int64_t draws;
  int64_t forms;
  int64_t top_count;
  int64_t mask_stride;
  int64_t mask_count;
  int64_t mask_is_bits;
  int64_t reduction;
};

bool take(void* target, size_t bytes) { return std::fread(target, 1, bytes, stdin) == bytes; }

// An array: its bytes after their number, which is -1 for none.
class Array {
 public:
  Array() {
    int64_t size = 0;
    if (!take(&size, sizeof size)) std::exit(1);
    given_ = size >= 0;
    bytes_.resize(given_ ? static_cast<size_t>(size) : 0);
    if (!take(bytes_.data(), bytes_.size())) std::exit(1);
  }
  template <class Item>
  const Item* of() const {
    return given_ ? reinterpret_cast<const Item*>(bytes_.data()) : nullptr;
  }

 private:
  bool given_;
  std::string bytes_;
};

template <class Item>
void give(const std::vector<Item>& items) {
  const int64_t size = static_cast<int64_t>(items.size() * sizeof(Item));
  std::fwrite(&size, sizeof size, 1, stdout);
  std::fwrite(items.data(), sizeof(Item), items.size(), stdout);
}

struct Lists {
  Array offsets;
  Array tokens;
  Array values;
  TokenLists lists() const { return {offsets.of<int64_t>(), tokens.of<int64_t>(), values.of<float>()}; }
};

struct Job {
  Array values;
  Array plan;
  Array mask;
  Lists bias;
  Lists prompt;
  Lists output;
};

size_t size_of(int64_t count) { return static_cast<size_t>(count); }

Reduction reduction_of(const Asked& asked) { return static_cast<Reduction>(asked.reduction); }

void sample(const Kernels& kernels, const Asked& asked, const Batch& batch, const Adjustments& all,
            const RowParams* settings, std::vector<uint8_t>& status) {
  const int64_t told = asked.forms * asked.rows;
  std::vector<int64_t> tokens(size_of(asked.rows * asked.draws)), kept(size_of(asked.rows));
  std::vector<double> logprobs(size_of(told)), top_logprobs(size_of(told * asked.top_count));
  std::vector<int64_t> ranks(size_of(told)), top_tokens(size_of(told * asked.top_count));
  Answers answers = {tokens.data(), asked.draws,       kept.data(),        {}, asked.top_count, logprobs.data(),
                     ranks.data(),  top_tokens.data(), top_logprobs.data()};
  for (int64_t form = 0; form < asked.forms; ++form) {
    answers.forms.push_back(static_cast<Form>(form));
  }
  sample_rows(kernels, batch, all, settings, reduction_of(asked), 1, answers, status.data());
  give(tokens);
  give(kept);
  give(logprobs);
  give(ranks);
  give(top_tokens);
  give(top_logprobs);
}

void apply(const Kernels& kernels, const Asked& asked, const Batch& batch, const RowParams* settings,
           std::vector<uint8_t>& status) {
  const Function function = static_cast<Function>(asked.door - 2);
  std::vector<double> temperatures, numbers(size_of(asked.rows));
  std::vector<float> floats(size_of(asked.rows * asked.vocabulary));
  for (int64_t row = 0; row < asked.rows; ++row) {
    temperatures.push_back(settings[row].temperature);
  }
  const bool one = function == Function::kLogSumExp;
  void* const target = one ? static_cast<void*>(numbers.data()) : floats.data();
  apply_function(kernels, function, batch, temperatures.data(), reduction_of(asked), 1, target, status.data());
  if (one) {
    give(numbers);
  } else {
    give(floats);
  }
}

void answer(const Kernels& kernels, const Asked& asked) {
  const Job job;
  const int64_t step = asked.dtype == kFloat32 ? 4 : 2;
  const Batch batch = {job.values.of<char>(), asked.rows, asked.vocabulary,
                       asked.columns * step,  step,       static_cast<DType>(asked.dtype)};
  const Adjustments all = {job.mask.of<char>(), asked.mask_stride,  asked.mask_count,  asked.mask_is_bits != 0,
                           job.bias.lists(),    job.prompt.lists(), job.output.lists()};
  const RowParams* settings = job.plan.of<RowParams>();
  std::vector<uint8_t> status(size_of(asked.rows));
  if (asked.door == 0) {
    sample(kernels, asked, batch, all, settings, status);
  } else if (asked.door == 1) {
    const KeptSets sets = kept_sets(kernels, batch, all, settings, 1, status.data());
    give(sets.tokens);
    give(sets.masses);
    give(sets.logits);
    give(sets.offsets);
  } else {
    apply(kernels, asked, batch, settings, status);
  }
  give(status);
  std::fflush(stdout);
}

}  // namespace

// Its only argument names the instruction set.
int main(int, char** arguments) {
  for (const InstructionSet& isa : compiled_isas()) {
    if (std::strcmp(isa.name, arguments[1]) != 0) continue;
    Asked asked;
    while (take(&asked, sizeof asked)) answer(*isa.kernels, asked);
    return 0;
  }
  return 1;
}
