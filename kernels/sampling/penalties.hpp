// Section 2: builds, from a caller's mask, bias and token histories, the logits processors of a row. It takes time for
// the tokens that they name only; the row itself is never copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/types.hpp"

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
};

// One thread's scratch memory for the edits of a row.
class RowProcessorBuilder {
 public:
  // Builds those of row r; valid until the next call.
  RowProcessors build(const LogitsProcessors& all, int64_t r, int64_t vocabulary, const RowParams& params);

 private:
  void reserve(int64_t tokens);
  TokenEdit& edit_of(int64_t token);
  void add_edits(const LogitsProcessors& all, int64_t r, int64_t vocabulary, const RowParams& params);
  void sort_by_block(int64_t vocabulary);

  std::vector<TokenEdit> unsorted_;  // in the order in which tokens occur first
  std::vector<int32_t> slots_;  // a hash table of places in unsorted_, -1 where empty
  std::vector<TokenEdit> edits_;
  std::vector<int64_t> edit_start_;
};

}  // namespace fastsample
