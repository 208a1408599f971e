// A program that runs the kernels without Python, also on an emulated processor: it reads requests from standard
// input until that ends, and writes results. tests/support/subprocess_kernels.py describes both.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/dispatch.hpp"

namespace {

using namespace fastsample;

// The first part of a request.
struct Header {
  int64_t function;  // 0: sample, 1: kept sets, 2 and up: a SoftmaxFunction
  int64_t rows;
  int64_t columns;
  int64_t vocabulary;
  int64_t dtype;
  int64_t draws;
  int64_t modes;
  int64_t top_count;
  int64_t logprob_draws;
  int64_t given_count;
  int64_t mask_stride;
  int64_t mask_count;
  int64_t mask_is_bits;
  int64_t reduction;
  int64_t distinct;
  int64_t has_count;
};

bool read_bytes(void* target, size_t bytes) { return std::fread(target, 1, bytes, stdin) == bytes; }

// An array of a request: the number of its bytes, or -1 for none, then the bytes.
class Array {
 public:
  Array() {
    int64_t size = 0;
    if (!read_bytes(&size, sizeof size)) std::exit(1);
    present_ = size >= 0;
    bytes_.resize(present_ ? static_cast<size_t>(size) : 0);
    if (!read_bytes(bytes_.data(), bytes_.size())) std::exit(1);
  }
  template <class Item>
  const Item* of() const {
    return present_ ? reinterpret_cast<const Item*>(bytes_.data()) : nullptr;
  }

 private:
  bool present_;
  std::string bytes_;
};

template <class Item>
void write(const std::vector<Item>& items) {
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

struct Request {
  Array values;
  Array plan;
  Array mask;
  Lists bias;
  Lists prompt;
  Lists output;
  Array given;
};

size_t size_of(int64_t count) { return static_cast<size_t>(count); }

Reduction reduction_of(const Header& header) { return static_cast<Reduction>(header.reduction); }

void sample(const Kernels& kernels, const Header& header, const Batch& batch, const LogitsProcessors& all,
            const RowParams* params, const int64_t* given, std::vector<uint8_t>& status) {
  const int64_t results = header.modes * header.rows;
  const size_t drawn = size_of(results * header.logprob_draws), top = size_of(results * header.top_count);
  const size_t chosen = size_of(results * header.given_count);
  std::vector<int64_t> tokens(size_of(header.rows * header.draws)), kept(size_of(header.rows));
  std::vector<double> logprobs(drawn), top_logprobs(top), given_logprobs(chosen);
  std::vector<int64_t> ranks(drawn), top_tokens(top), given_ranks(chosen);
  SampleOutput out = {tokens.data(),
                      header.draws,
                      header.has_count ? kept.data() : nullptr,
                      {},
                      header.logprob_draws,
                      header.top_count,
                      header.given_count,
                      given,
                      logprobs.data(),
                      ranks.data(),
                      top_tokens.data(),
                      top_logprobs.data(),
                      given_logprobs.data(),
                      given_ranks.data(),
                      header.distinct != 0};
  for (int64_t mode = 0; mode < header.modes; ++mode) {
    out.modes.push_back(static_cast<LogprobsMode>(mode));
  }
  sample_rows(kernels, batch, all, params, reduction_of(header), 1, out, status.data());
  write(tokens);
  if (header.has_count) write(kept);
  write(logprobs);
  write(ranks);
  write(top_tokens);
  write(top_logprobs);
  write(given_logprobs);
  write(given_ranks);
}

void apply(const Kernels& kernels, const Header& header, const Batch& batch, const RowParams* params,
           std::vector<uint8_t>& status) {
  const SoftmaxFunction function = static_cast<SoftmaxFunction>(header.function - 2);
  std::vector<double> numbers(size_of(header.rows));
  std::vector<float> floats(size_of(header.rows * header.vocabulary));
  const bool one = function == SoftmaxFunction::kLogSumExp;
  void* const target = one ? static_cast<void*>(numbers.data()) : floats.data();
  softmax_rows(kernels, function, batch, params, reduction_of(header), 1, target, status.data());
  if (one) {
    write(numbers);
  } else {
    write(floats);
  }
}

void respond(const Kernels& kernels, const Header& header) {
  const Request request;
  const int64_t step = header.dtype == kFloat32 ? 4 : 2;
  const Batch batch = {request.values.of<char>(), header.rows, header.vocabulary,
                       header.columns * step,     step,        static_cast<DType>(header.dtype)};
  const LogitsProcessors all = {
      request.mask.of<char>(), header.mask_stride,     header.mask_count,      header.mask_is_bits != 0,
      request.bias.lists(),    request.prompt.lists(), request.output.lists(), nullptr};
  const RowParams* params = request.plan.of<RowParams>();
  std::vector<uint8_t> status(size_of(header.rows));
  if (header.function == 0) {
    sample(kernels, header, batch, all, params, request.given.of<int64_t>(), status);
  } else if (header.function == 1) {
    const KeptSets sets = kept_sets(kernels, batch, all, params, 1, status.data());
    write(sets.tokens);
    write(sets.masses);
    write(sets.logits);
    write(sets.offsets);
  } else {
    apply(kernels, header, batch, params, status);
  }
  write(status);
  std::fflush(stdout);
}

}  // namespace

// The only argument is the name of the instruction set.
int main(int, char** arguments) {
  for (const InstructionSet& isa : compiled_isas()) {
    if (std::strcmp(isa.name, arguments[1]) != 0) continue;
    Header header;
    while (read_bytes(&header, sizeof header)) respond(*isa.kernels, header);
    return 0;
  }
  return 1;
}
