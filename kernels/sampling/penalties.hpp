// Rule 2: from a caller's mask, bias and token histories to what the kernels read. Work for the touched
// tokens alone; the row itself is never copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/types.hpp"

namespace fastsample {

// Lists of tokens, one a row, laid end to end: row r has those from offsets[r] to offsets[r + 1].
struct TokenLists {
  const int64_t* offsets;  // null: no list
  const int64_t* tokens;
  const float* values;  // null where tokens alone matter
};

// The adjustments of a batch.
struct Adjustments {
  const char* mask;     // null: every token is allowed
  int64_t mask_stride;  // bytes from row to row
  int64_t mask_count;   // tokens that it covers
  bool mask_is_bits;
  TokenLists bias;
  TokenLists prompt;
  TokenLists output;
};

// One thread's scratch memory for the edits of a row.
class Adjuster {
 public:
  // What the row r meets; good until the next call.
  Adjustment adjust(const Adjustments& all, int64_t r, int64_t vocabulary, const RowParams& settings);

 private:
  void make_room(int64_t touches);
  Edit& touch(int64_t token);
  void touch_all(const Adjustments& all, int64_t r, int64_t vocabulary, const RowParams& settings);
  void sort_by_block(int64_t vocabulary);

  std::vector<Edit> touched_;   // in the order of the first touch
  std::vector<int32_t> slots_;  // a hash table of places in touched_, -1 where empty
  std::vector<Edit> edits_;
  std::vector<int64_t> edit_start_;
};

}  // namespace fastsample
