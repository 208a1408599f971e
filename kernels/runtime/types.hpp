// What the rooms of the kernels hand to each other: plain data, the same for every instruction set.
#pragma once

#include <cfloat>
#include <cstddef>
#include <cstdint>

namespace fastsample {

// Every operation rounds to its own type, which the x87 unit does not do.
static_assert(FLT_EVAL_METHOD == 0, "compile without -mfpmath=387 and the like");

// What a stage does with its value (rule 5). params/table.py has the same codes, and says which parameter
// does what: kernels know no filter by name.
enum class Op : uint8_t { kEnd = 0, kScale = 1, kCount = 2, kMass = 3, kThreshold = 4 };
constexpr int kMaxStages = 16;

// Which tokens a penalty counts; n >= 0 means the last n of prompt and output.
enum Scope : int64_t { kPromptAndOutput = -1, kPrompt = -2, kOutput = -3 };

// How masses are made and added (rule 8).
enum Reduction : int32_t { kExact = 0, kFixed = 1, kFast = 2 };

// One row's parameters, as the caller gave them: rule 1 rounds them to float32 inside the kernels.
// engines/plan.py builds arrays of it under the name PLAN: the two layouts move together.
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
  uint32_t padding;
  Op ops[kMaxStages];          // the chain of stages, ended by kEnd
  uint8_t stages[kMaxStages];  // which parameter each one is: for the reference
  double values[kMaxStages];   // one for each op
};

// kBadParam: a row that comes with it is left alone.
enum Status : uint8_t { kOk = 0, kInvalid = 1, kEmpty = 2, kBadParam = 3 };

// Logits are of the first three.
enum DType : int32_t { kFloat32 = 0, kFloat16 = 1, kBFloat16 = 2, kFloat64 = 3 };

// One row as the caller holds it; any alignment.
struct Logits {
  const char* data;
  int64_t step;        // bytes from token to token
  int64_t vocabulary;  // tokens that are looked at
  DType dtype;
};

// A block is the unit that a row is searched in: its best logit says whether it must be opened.
constexpr int64_t kBlock = 128;
// A block's parts, the tokens whose places in it are equal modulo kParts: the unit for large top_k.
constexpr int64_t kParts = 4;
// A span of blocks is the unit that masses are added up in.
constexpr int64_t kSpan = 4;
// Arrays are read and written by whole vectors, of up to 16 lanes: each ends with this much room.
constexpr int64_t kPadding = 16;

// What rule 2 does to one token, mask aside.
struct Edit {
  int64_t token;
  float bias;
  uint32_t frequency;  // how often its scope holds the token
  bool present;
  bool repeated;
};

// What rule 2 does to a row.
struct Adjustment {
  const uint8_t* allowed;     // a byte a token, or null
  const char* allowed_bits;   // a bit a token, lowest first, or null
  int64_t allowed_count;      // tokens that either of them covers: those past it are banned
  const Edit* edits;          // block by block, each token once
  const int64_t* edit_start;  // where each block's edits start, and where the last one's end; or null
  float repetition_penalty;
  float frequency_penalty;
  float presence_penalty;
};

// The three laws that log-probabilities are told of (rule 7).
enum Form : int32_t { kRaw = 0, kTempered = 1, kProcessed = 2 };

// Where the log-probabilities of one form go; null pointers where they are not wanted.
struct Report {
  Form form;
  double* logprob;       // the drawn token's
  int64_t* rank;         // the drawn token's
  int64_t* top_tokens;   // top_count of them
  double* top_logprobs;  // theirs
};

// Where the answers about one row go.
struct Outcome {
  int64_t* tokens;      // draws of them, on the streams stream, stream + 1, ...
  int64_t draws;
  int64_t* kept_count;  // or null
  const Report* reports;
  int64_t report_count;
  int64_t top_count;
};

// Scratch memory for one row; grown by the caller, so that row code never allocates.
struct Workspace {
  float* best;            // a block's best logit
  float* part_best;       // the best logits of each block's kParts parts, if asked for
  bool has_part_bests;
  bool is_finite;         // no token of the full blocks is at -inf (false: not known)
  float whole_scale;      // the law by which the row was last weighed as a whole, 0 if it was not;
  double whole_weight;    // and its mass, that of the top token taken for 1
  uint64_t* sums;         // a span's total mass
  double* float_sums;     // the same of float32 masses
  uint32_t* blocks;       // blocks that are opened
  int64_t room;           // the arrays that follow hold so many
  uint64_t* keys;         // candidates
  uint64_t* masses;       // theirs
  uint64_t* keys_left;    // what a search for a cut has left
  uint64_t* masses_left;  // theirs
};

// Numbers next to each other, whatever their alignment.
struct Numbers {
  const char* data;
  int64_t count;
  DType dtype;
};

// Rule 8's fixed order: blocks of so many numbers.
constexpr int64_t kRuleBlock = 4096;

// A sum without rounding, in units of 2^-1074, the smallest float64 above 0: digit i counts 2^(32 i). A digit
// is within 32 bits where the sum is settled (reduce.cpp), the last one aside; until then up to 2^30 numbers
// may be added. There are digits for 2^63 of the largest.
constexpr int kDigits = 68;
struct ExactSum {
  int64_t digits[kDigits];
  double special;  // infinities and NaNs, added up; 0 where there are none
};

// The sums of one instruction set.
struct Sums {
  // Writes the sum of each block of kRuleBlock, in rule 8's order.
  void (*fixed)(const Numbers& numbers, double* totals);
  // In the order that is quickest, in float32 (float64 for float64).
  double (*fast)(const Numbers& numbers);
  void (*exact)(const Numbers& numbers, ExactSum& sum);
};

// The kernels of one instruction set. Answers are written only where the status is kOk.
struct Kernels {
  // Needs room for the top tokens and two blocks.
  Status (*sample)(const Logits& logits, const Adjustment& adjustment, const RowParams& settings,
                   Reduction reduction, Workspace& work, const Outcome& outcome);
  // Leaves `count` keys in work.keys, in rule 3's order, and their masses in work.masses. Needs room for the
  // vocabulary and two blocks.
  Status (*kept_set)(const Logits& logits, const Adjustment& adjustment, const RowParams& settings,
                     Workspace& work, int64_t* count);
  // Over the whole row, at a temperature; softmax and log_softmax write a float32 a token.
  Status (*softmax)(const Logits& logits, double temperature, Reduction reduction, Workspace& work,
                    float* target);
  Status (*log_softmax)(const Logits& logits, double temperature, Reduction reduction, Workspace& work,
                        float* target);
  Status (*logsumexp)(const Logits& logits, double temperature, Reduction reduction, Workspace& work,
                      double* target);
  Sums sums;
};

}  // namespace fastsample
