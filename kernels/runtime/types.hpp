// The plain data that the kernels, their dispatch and Cython share; the same for every instruction set.
#pragma once

#include <cfloat>
#include <cstddef>
#include <cstdint>

namespace fastsample {

// Every operation must round to its own type, which the x87 unit does not do.
static_assert(FLT_EVAL_METHOD == 0, "compile without -mfpmath=387 and the like");

// What a stage does with its value (section 5). params/ops.py has the same codes, and params/table.py says which
// parameter uses which: kernels know no filter by name.
enum class Op : uint8_t {
  kEnd = 0,
  kScale = 1,
  kCount = 2,
  kMass = 3,
  kThreshold = 4,
  kThresholdOfTotal = 5,
  kThresholdOfTopShare = 6,
  kThresholdOfDeviation = 7,
  kBand = 8
};
constexpr int kMaxStages = 16;

// The tokens that a penalty counts; n >= 0 means the last n of prompt and output.
enum Scope : int64_t { kPromptAndOutput = -1, kPrompt = -2, kOutput = -3 };

// How masses are represented and added (section 8).
enum Reduction : int32_t { kExact = 0, kFixed = 1, kFast = 2 };

// How a token is drawn (section 6). params/ops.py has the same codes.
enum DrawMethod : uint32_t { kInverse = 0, kRace = 1 };

// One row's parameters, not yet rounded to float32 (section 1). engines/plan.py builds arrays of it under the
// name PLAN: change the two layouts together.
struct RowParams {
  double temperature;
  double repetition_penalty;
  double frequency_penalty;
  double presence_penalty;
  int64_t min_keep;
  int64_t repetition_scope;
  int64_t frequency_scope;
  int64_t presence_scope;
  uint64_t seed;
  uint64_t position;
  uint32_t stream;
  uint32_t draw;  // a DrawMethod
  Op ops[kMaxStages];          // the chain of stages, ended by kEnd
  uint8_t stages[kMaxStages];  // the parameter of each: only the reference reads it
  double values[kMaxStages];   // one for each op
};

// kBadParam is set by the caller; such a row is skipped. No caller sees kNoCapacity: dispatch repeats the row with
// a larger workspace.
enum Status : uint8_t { kOk = 0, kInvalid = 1, kEmpty = 2, kBadParam = 3, kNoCapacity = 4 };

// Logits are of the first three.
enum DType : int32_t { kFloat32 = 0, kFloat16 = 1, kBFloat16 = 2, kFloat64 = 3 };

// One row of logits in the caller's memory; any alignment.
struct Logits {
  const char* data;
  int64_t step;        // bytes from token to token
  int64_t vocabulary;  // number of tokens; columns past them are not read
  DType dtype;
};

// A search skips the blocks of a row whose largest logit is too small.
constexpr int64_t kBlock = 128;
// A part holds the tokens of a block whose places are equal modulo kParts: the unit for large top_k.
constexpr int64_t kParts = 4;
// A span of blocks is the unit of sums of masses.
constexpr int64_t kSpan = 4;
// Arrays are read and written in full vectors, of up to 16 lanes: each ends with as many unused items.
constexpr int64_t kPadding = 16;

// How often tokens occur in a penalty's scope, by groups of kCountGroup adjacent tokens.
// Sparse: a word for each group that has one, ascending. From bit kGroupBit on it has the group's number, from
// kStartBit on where its counts start, below that a bit for each token that occurs; only these have counts.
// Dense: `groups` is null, and each token of the first group_count groups, which fill blocks, has a count.
constexpr int64_t kCountGroup = 16;
constexpr int kStartBit = 16;
constexpr int kGroupBit = 40;
constexpr uint64_t kStartMask = (uint64_t{1} << (kGroupBit - kStartBit)) - 1;
struct TokenCounts {
  const uint64_t* groups;
  const uint32_t* counts;
  int64_t group_count;  // 0: no token occurs
};

// A penalty of one row.
struct Penalty {
  float value;
  TokenCounts counts;           // no token where the penalty is off
  const uint32_t* block_start;  // where each block's groups start, and where the last one's end; null if dense
};

// The penalties of one row.
struct Penalties {
  Penalty repetition;
  Penalty frequency;
  Penalty presence;
};

// A token and what is added to its logit.
struct Bias {
  int64_t token;
  float value;
};

// The logits processors of one row (section 2).
struct RowProcessors {
  const uint8_t* allowed;  // a byte for each token, or null
  const char* allowed_bits;  // a bit for each token, lowest first, or null
  int64_t allowed_count;  // tokens that either of them covers; those past it are banned
  const Bias* biases;  // block by block
  const int64_t* bias_start;  // where each block's biases start, and where the last one's end; or null
  const Penalties* penalties;  // null where they change no logit
};

// The three distributions that log-probabilities can be of (section 7).
enum LogprobsMode : int32_t { kRaw = 0, kTempered = 1, kProcessed = 2 };

// Where the log-probabilities of one mode are written.
struct LogprobResult {
  LogprobsMode mode;
  double* logprobs;  // of the draws: logprob_draws of them
  int64_t* ranks;  // of the draws
  int64_t* top_tokens;  // top_count of them
  double* top_logprobs;  // of the top tokens
  double* given_logprobs;  // of the given tokens: given_count of them
  int64_t* given_ranks;  // of the given tokens
};

// Where the results of one row are written.
struct RowOutput {
  int64_t* tokens;  // `draws` of them, on the streams stream, stream + 1, ...; -1 at first
  int64_t draws;
  int64_t* kept_count;  // or null
  const LogprobResult* logprobs;
  int64_t mode_count;
  int64_t logprob_draws;  // how many of the draws have log-probabilities
  int64_t top_count;
  const int64_t* given;  // the caller's tokens, given_count of them; what is no token of the row has none
  int64_t given_count;
  bool distinct = false;  // without replacement, on one stream: tokens that do not exist stay -1
};

// How the first pass reads a row: four parts of it in turn, so that processors fetch ahead in each of them by
// themselves; or from its start to its end, with prefetch instructions. Which is faster depends on the processor.
enum class Reading : uint8_t { kStreams = 0, kAhead = 1 };

// Scratch memory for one row. The caller makes it large enough: row code never allocates.
struct Workspace {
  float* block_max;  // the largest logit of each block
  float* part_max;  // the largest logits of each block's kParts parts, if has_part_max
  Reading reading;  // how a first pass reads
  bool has_part_max;
  float row_scale;  // the scale at which row_total was computed; 0: it was not
  double row_total;  // the mass of the entire row, relative to the top token's
  uint64_t* drawn;  // a bit for each token
  uint64_t* span_masses;  // integer mass of each span
  double* span_totals;  // float mass of each span
  uint32_t* open_blocks;  // blocks that a search reads
  int64_t capacity;  // length of the arrays that follow
  uint64_t* keys;  // sort keys of listed tokens
  uint64_t* masses;  // their masses
  uint64_t* scratch_keys;  // what a search for a cut has not ruled out
  uint64_t* scratch_masses;
};

// Adjacent numbers of any alignment.
struct Numbers {
  const char* data;
  int64_t count;
  DType dtype;
};

// The fixed order of section 8 adds in blocks of so many numbers.
constexpr int64_t kRuleBlock = 4096;

// A sum without rounding, in units of 2^-1074, the smallest float64 above 0: digit i counts 2^(32 i). Digits
// are within 32 bits after carry_digits (reduce.cpp), the last one aside; up to 2^30 numbers may be added
// before that. There are digits for 2^63 of the largest.
constexpr int kDigits = 68;
struct ExactSum {
  int64_t digits[kDigits];
  double special;  // the sum of infinities and NaNs; 0 where there are none
};

// Sums of numbers, for one instruction set.
struct Sums {
  // Writes the sum of each block of kRuleBlock, in section 8's order.
  void (*fixed)(const Numbers& numbers, double* totals);
  // In the fastest order, in float32 (float64 for float64).
  double (*fast)(const Numbers& numbers);
  void (*exact)(const Numbers& numbers, ExactSum& sum);
};

// The kernels of one instruction set. Results are written only where the status is kOk.
struct Kernels {
  // Needs capacity for the top tokens and two blocks. Returns kNoCapacity if that is too little for BAND; capacity
  // for the vocabulary and two blocks is always enough.
  Status (*sample)(const Logits& logits, const RowProcessors& processors, const RowParams& params,
                   Reduction reduction, Workspace& work, const RowOutput& out);
  // Leaves `count` keys in work.keys, in section 3's order, and their masses in work.masses. Needs capacity for
  // the vocabulary and two blocks.
  Status (*kept_set)(const Logits& logits, const RowProcessors& processors, const RowParams& params,
                     Workspace& work, int64_t* count);
  // Over the entire row, at a temperature; softmax and log_softmax write a float32 for each token.
  Status (*softmax)(const Logits& logits, double temperature, Reduction reduction, Workspace& work,
                    float* target);
  Status (*log_softmax)(const Logits& logits, double temperature, Reduction reduction, Workspace& work,
                        float* target);
  Status (*logsumexp)(const Logits& logits, double temperature, Reduction reduction, Workspace& work,
                      double* target);
  Sums sums;
};

}  // namespace fastsample
