// Section 2: builds, from a caller's mask, bias and token histories, the logits processors of a row. The row itself is
// never copied.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/types.hpp"
#include "sampling/token_counts.hpp"

namespace fastsample {

// A list of tokens for each row, concatenated: row r has those from offsets[r] to offsets[r + 1].
struct TokenLists {
  const int64_t* offsets;  // null: no list
  const int64_t* tokens;
  const float* values;  // null for lists of tokens alone
};

// The logits processors of a batch.
struct LogitsProcessors {
  const char* mask;  // null: every token is allowed
  int64_t mask_stride;  // bytes from row to row
  int64_t mask_count;  // tokens that it covers; those past it are banned
  bool mask_is_bits;
  TokenLists bias;
  TokenLists prompt;
  TokenLists output;
  TokenHistory* const* histories;  // null, or one for each row: they are read in place of prompt and output
};

// Whether any penalty of a row is on.
bool has_penalty(const RowParams& params);

// One thread's scratch memory for the logits processors of a row.
class RowProcessorBuilder {
 public:
  // Builds those of row r; valid until the next call.
  RowProcessors build(const LogitsProcessors& all, int64_t r, int64_t vocabulary, const RowParams& params);

 private:
  struct CountedScope {
    int64_t scope;
    TokenCounts counts;
    const uint32_t* block_start;
  };
  static constexpr int kMostScopes = 3;  // one for each penalty

  void build_bias(const TokenLists& bias, int64_t r, int64_t vocabulary);
  Penalty penalty_of(double value, double off, int64_t scope, const LogitsProcessors& all, int64_t r,
                     int64_t vocabulary);
  const CountedScope& count_scope(int64_t scope, const LogitsProcessors& all, int64_t r, int64_t vocabulary);

  Penalties penalties_;
  std::vector<Bias> biases_;
  std::vector<int64_t> bias_start_;
  CountedScope scopes_[kMostScopes];
  int scope_count_ = 0;
  CountedTokens counted_[kMostScopes];
  std::vector<uint32_t> block_start_[kMostScopes];
};

}  // namespace fastsample
