// Prints hashes of one instruction set's results on random rows, two with top_k, top_p and min_p and two with chains
// of all ops: results of the inverse method, and tokens of races. It needs no Python, so it also runs on an emulated processor. Compiled with FASTSAMPLE_ISA, a namespace
// of isa_list.hpp.
#include "sampling/kernels.hpp"

#include <cstdio>
#include <vector>

namespace {

using namespace fastsample;
using namespace fastsample::FASTSAMPLE_ISA;

constexpr int kMostTokens = 5000;
constexpr int kCases = 20000;
constexpr int kTop = 4;

// A linear congruential generator: rows must be the same everywhere.
class Random {
 public:
  uint32_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33);
  }
  template <class Item, size_t kCount>
  Item pick(const Item (&items)[kCount]) {
    return items[next() % kCount];
  }

 private:
  uint64_t state_ = 1;
};

// FNV-1a over 64-bit words.
class Fingerprint {
 public:
  void add(uint64_t word) { value_ = (value_ ^ word) * 1099511628211u; }
  void add(double number) {
    uint64_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    add(bits);
  }
  unsigned long long value() const { return value_; }

 private:
  uint64_t value_ = 1469598103934665603u;
};

constexpr int kCapacity = kMostTokens + 2 * kBlock;

struct Memory {
  std::vector<float> block_max = std::vector<float>(kMostTokens);
  std::vector<float> part_max = std::vector<float>(kMostTokens);
  std::vector<uint32_t> blocks = std::vector<uint32_t>(kMostTokens);
  std::vector<uint64_t> words[5];
  Workspace work = {};

  Memory() {
    uint64_t** const places[] = {&work.span_masses, &work.keys, &work.masses, &work.scratch_keys,
                                 &work.scratch_masses};
    for (int i = 0; i < 5; ++i) {
      words[i].resize(kCapacity + kPadding);
      *places[i] = words[i].data();
    }
    work.block_max = block_max.data();
    work.part_max = part_max.data();
    work.open_blocks = blocks.data();
  }
};

float make_logit(Random& random, int kind) {
  const float x = static_cast<float>(static_cast<int32_t>(random.next()) - (1 << 30)) * 0x1p-26f;
  switch (kind) {
    case 1: return static_cast<float>(static_cast<int>(x));  // ties
    case 2: return random.next() % 2 ? -kInfinity : x;
    case 3: return x * 1e-39f;  // denormals
    default: return x * 4;
  }
}

RowParams make_params(Random& random, int vocabulary) {
  const double temperatures[] = {0, 0.3, 0.8, 1, 1.5, 10};
  const double top_ps[] = {0, 0.5, 0.9, 0.95, 0.9999, 1};
  const double min_ps[] = {0, 0, 0.05, 1e-5, 1};
  RowParams params = {};
  params.temperature = random.pick(temperatures);
  const Op ops[] = {Op::kScale, Op::kCount, Op::kMass, Op::kThreshold};
  std::memcpy(params.ops, ops, sizeof ops);
  params.values[0] = params.temperature;
  params.values[2] = random.pick(top_ps);
  params.values[3] = random.pick(min_ps);
  params.values[1] = random.next() % 3 ? 0 : 1 + random.next() % vocabulary;
  params.repetition_penalty = 1;
  params.min_keep = 1;
  params.seed = random.next();
  params.position = random.next();
  params.stream = random.next();
  return params;
}

RowParams make_chain(Random& random, int vocabulary) {
  const double shares[] = {0, 1e-6, 0.01, 0.2, 0.5, 0.9, 0.99, 1};
  const double deviations[] = {0.01, 0.5, 1, 2, 7};
  const int64_t min_keeps[] = {1, 1, 1, 3, 50};
  RowParams params = make_params(random, vocabulary);
  params.temperature = 0.3 + random.next() % 8;
  params.min_keep = random.pick(min_keeps);
  for (int i = 0; i < 4; ++i) {
    const Op op = static_cast<Op>(1 + random.next() % 8);
    params.ops[i] = op;
    params.values[i] = random.pick(shares);
    if (op == Op::kScale) params.values[i] = params.temperature;
    if (op == Op::kCount) params.values[i] = 1 + random.next() % vocabulary;
    if (op == Op::kThresholdOfDeviation) params.values[i] = random.pick(deviations);
  }
  return params;
}

void add_results(const Logits& logits, const RowParams& params, Workspace& work, Fingerprint& print) {
  int64_t token = -1, kept = 0, ranks[3], top_tokens[3 * kTop];
  double logprobs[3], top_logprobs[3 * kTop];
  const int64_t top = logits.vocabulary < kTop ? logits.vocabulary : kTop;
  LogprobResult results[3];
  for (int f = 0; f < 3; ++f) {
    results[f] = {static_cast<LogprobsMode>(f), logprobs + f, ranks + f, top_tokens + f * kTop,
                  top_logprobs + f * kTop};
  }
  work.capacity = 512;  // less than some rows have: these are cut in place
  RowOutput out = {&token, 1, &kept, results, 3};
  out.logprob_draws = 1;
  out.top_count = top;
  Status status = kernels.sample(logits, {}, params, kExact, work, out);
  if (status == kNoCapacity) {
    work.capacity = kCapacity;
    status = kernels.sample(logits, {}, params, kExact, work, out);
  }
  print.add(uint64_t{status});
  if (status != kOk) return;
  print.add(static_cast<uint64_t>(token));
  print.add(static_cast<uint64_t>(kept));
  for (int f = 0; f < 3; ++f) {
    print.add(logprobs[f]);
    print.add(static_cast<uint64_t>(ranks[f]));
    for (int64_t i = 0; i < top; ++i) {
      print.add(static_cast<uint64_t>(top_tokens[f * kTop + i]));
      print.add(top_logprobs[f * kTop + i]);
    }
  }
  int64_t count = 0;
  work.capacity = kCapacity;
  kernels.kept_set(logits, {}, params, work, &count);
  for (int64_t i = 0; i < count; ++i) {
    print.add(work.keys[i]);
    print.add(work.masses[i]);
  }
}

// Adds tokens drawn by race, the kept set found first or not: the two have the same tokens.
void add_races(const Logits& logits, RowParams params, Workspace& work, Fingerprint& print) {
  constexpr int kDraws = 3;
  params.draw = kRace;
  for (const bool is_counted : {true, false}) {
    int64_t tokens[kDraws] = {}, kept = 0;
    const RowOutput out = {tokens, kDraws, is_counted ? &kept : nullptr};
    work.capacity = 512;
    if (kernels.sample(logits, {}, params, kExact, work, out) == kNoCapacity) {
      work.capacity = kCapacity;
      kernels.sample(logits, {}, params, kExact, work, out);
    }
    for (const int64_t token : tokens) print.add(static_cast<uint64_t>(token));
  }
}

void print_fingerprint(Random& random, int cases, RowParams (*make)(Random&, int)) {
  Fingerprint print;
  Fingerprint races;
  Memory memory;
  std::vector<float> floats(kMostTokens);
  std::vector<uint16_t> halves(kMostTokens);
  for (int n = 0; n < cases; ++n) {
    const int vocabulary = 1 + static_cast<int>(random.next() % (n % 4 ? 400 : kMostTokens));
    const int kind = static_cast<int>(random.next() % 5);
    for (int i = 0; i < vocabulary; ++i) {
      floats[i] = make_logit(random, kind);
      halves[i] = static_cast<uint16_t>(random.next() & 0xBBFF);  // no infinity, no NaN
    }
    const Logits wide = {reinterpret_cast<const char*>(floats.data()), 4, vocabulary, kFloat32};
    const Logits narrow = {reinterpret_cast<const char*>(halves.data()), 2, vocabulary,
                           n % 2 ? kFloat16 : kBFloat16};
    const Logits& logits = n % 3 == 1 ? narrow : wide;
    const RowParams params = make(random, vocabulary);
    add_results(logits, params, memory.work, print);
    add_races(logits, params, memory.work, races);
  }
  std::printf("%016llx %016llx\n", print.value(), races.value());
}

}  // namespace

int main() {
  Random random;
  print_fingerprint(random, kCases, make_params);
  print_fingerprint(random, kCases / 2, make_chain);
}
