// How often tokens occur in the scopes of penalties: built at once from lists, or kept from step to step with a
// sequence's tokens, at a cost that does not depend on how many there are. No choice of tokens makes it slow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/types.hpp"

namespace fastsample {

// The counts of one scope. At most 16 bytes for each distinct token, and 4 for each token up to the largest: sparse
// where that is smaller, else dense, until less than a quarter of the tokens occur. A step after a model's finds the
// counts in memory, and then the pages that it reads take most of its time.
class CountedTokens {
 public:
  // These may throw std::bad_alloc; then nothing has changed.
  void add(int64_t token);
  void remove(int64_t token);  // one that occurs

  // Chooses between the two forms.
  void settle();

  TokenCounts view() const;
  std::size_t bytes() const;

 private:
  friend class TokenCounter;
  std::size_t find_group(int64_t group) const;
  void add_sparse(int64_t token);
  void remove_sparse(int64_t token);
  void make_dense();
  void make_sparse();

  bool is_dense_ = false;
  int64_t distinct_ = 0;
  std::vector<uint64_t> groups_;  // those of TokenCounts, none if dense
  std::vector<uint32_t> counts_;
};

// Counts tokens of a list in an array with a place for each token, and leaves it empty.
class TokenCounter {
 public:
  // For tokens below `size`. These two may throw std::bad_alloc.
  void reserve(int64_t size);
  void move_to(CountedTokens& target);

  void add(int64_t token) noexcept {
    ++counts_[static_cast<std::size_t>(token)];
    const std::size_t group = static_cast<std::size_t>(token / kCountGroup);
    touched_[group / 64] |= uint64_t{1} << group % 64;
  }

 private:
  void write_group(int64_t group, CountedTokens& target);

  std::vector<uint32_t> counts_;
  std::vector<uint64_t> touched_;  // a bit for each group
};

// The tokens of one sequence, its prompt and its output, with the counts of each scope that has been read.
class TokenHistory {
 public:
  // First of all: the tokens that are not counted, ascending; and whether those outside of the rows are not.
  void set_ignored(const int64_t* tokens, int64_t count, bool has_outside);
  void set_prompt(const int64_t* tokens, int64_t count);  // before any output
  // Says how many tokens the rows have. Where those outside are ignored, counts for another number are made anew.
  void set_vocabulary(int64_t vocabulary) noexcept {
    if (ignores_outside_ && vocabulary != limit_) set_limit(vocabulary);
  }
  // Allocates memory for so many more tokens; may throw std::bad_alloc.
  void reserve_more(int64_t more) {
    const std::size_t size = tokens_.size() + static_cast<std::size_t>(more);
    if (size > tokens_.capacity()) grow(size);
  }
  void extend(const int64_t* tokens, int64_t count) noexcept;  // needs reserve_more
  void truncate(int64_t output_count) noexcept;

  int64_t prompt_count() const { return prompt_count_; }
  int64_t output_count() const { return count() - prompt_count_; }
  const int32_t* tokens() const { return tokens_.data(); }
  int64_t max_token() const { return max_token_; }  // of those that are counted; -1 if there is none
  std::size_t bytes() const;

  // The counts of a scope: made when it is read for the first time. May throw std::bad_alloc.
  const CountedTokens& counts(int64_t scope);

 private:
  struct ScopeCounts {
    int64_t scope;
    bool is_stale;  // to be made anew
    CountedTokens counted;
  };
  struct Range {
    int64_t first;
    int64_t end;
  };
  int64_t count() const { return static_cast<int64_t>(tokens_.size()); }
  void grow(std::size_t size);
  Range range(int64_t scope, int64_t count) const;
  bool is_counted(int64_t token) const noexcept;
  void set_limit(int64_t limit) noexcept;
  void find_max(int64_t end) noexcept;
  void note_max(int64_t token, int64_t place) noexcept;
  void move_counts(int64_t from, int64_t to) noexcept;
  void move(ScopeCounts& counts, Range from, Range to);
  void rebuild(ScopeCounts& counts);

  std::vector<int32_t> tokens_;
  std::vector<int32_t> ignored_;
  bool ignores_outside_ = false;
  int64_t limit_ = INT64_MAX;
  int64_t prompt_count_ = 0;
  int64_t max_token_ = -1;
  int64_t max_place_ = 0;  // where it occurs first
  std::vector<ScopeCounts> scopes_;
};

// One thread's counter.
TokenCounter& token_counter();

}  // namespace fastsample
