#include "sampling/token_counts.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

namespace fastsample {
namespace {

constexpr uint64_t kOneStart = uint64_t{1} << kStartBit;
constexpr uint64_t kTokenBits = (uint64_t{1} << kCountGroup) - 1;

int64_t size_of(std::size_t size) { return static_cast<int64_t>(size); }
std::size_t index_of(int64_t index) { return static_cast<std::size_t>(index); }

uint64_t bit_of(int64_t token) { return uint64_t{1} << token % kCountGroup; }
// How many of a group's tokens below this one have counts.
std::size_t rank_of(uint64_t group, int64_t token) {
  return static_cast<std::size_t>(__builtin_popcountll(group & (bit_of(token) - 1)));
}
std::size_t start_of(uint64_t group) { return static_cast<std::size_t>(group >> kStartBit & kStartMask); }

// Grows by an eighth: these arrays are long-lived, and a doubled one would take more than it is allowed to.
template <class Item>
void reserve_one(std::vector<Item>& items) {
  if (items.size() == items.capacity()) items.reserve(items.size() + items.size() / 8 + 4);
}

}  // namespace

// ---- the counts of a scope ------------------------------------------------------------------------------

std::size_t CountedTokens::find_group(int64_t group) const {
  const uint64_t word = static_cast<uint64_t>(group) << kGroupBit;
  return static_cast<std::size_t>(std::lower_bound(groups_.begin(), groups_.end(), word) - groups_.begin());
}

void CountedTokens::add_sparse(int64_t token) {
  const int64_t group = token / kCountGroup;
  const std::size_t at = find_group(group);
  const bool has_group = at < groups_.size() && size_of(groups_[at] >> kGroupBit) == group;
  std::size_t place = at < groups_.size() ? start_of(groups_[at]) : counts_.size();
  if (has_group) {
    place += rank_of(groups_[at], token);
    if (groups_[at] & bit_of(token)) {
      ++counts_[place];
      return;
    }
  }
  reserve_one(groups_);
  reserve_one(counts_);
  if (!has_group) {
    const uint64_t word = static_cast<uint64_t>(group) << kGroupBit | static_cast<uint64_t>(place) << kStartBit;
    groups_.insert(groups_.begin() + size_of(at), word);
  }
  counts_.insert(counts_.begin() + size_of(place), 1);
  groups_[at] |= bit_of(token);
  for (std::size_t i = at + 1; i < groups_.size(); ++i) groups_[i] += kOneStart;
  ++distinct_;
}

void CountedTokens::remove_sparse(int64_t token) {
  const std::size_t at = find_group(token / kCountGroup);
  const std::size_t place = start_of(groups_[at]) + rank_of(groups_[at], token);
  if (--counts_[place] > 0) return;
  counts_.erase(counts_.begin() + size_of(place));
  for (std::size_t i = at + 1; i < groups_.size(); ++i) groups_[i] -= kOneStart;
  groups_[at] &= ~bit_of(token);
  if ((groups_[at] & kTokenBits) == 0) groups_.erase(groups_.begin() + size_of(at));
  --distinct_;
}

void CountedTokens::add(int64_t token) {
  const int64_t size = size_of(counts_.size());
  if (is_dense_ && token >= size) {
    const int64_t grown = (token / kBlock + 1) * kBlock;
    if (4 * distinct_ < grown) {
      make_sparse();
    } else {
      if (grown > size_of(counts_.capacity())) counts_.reserve(index_of(grown + grown / 8));
      counts_.resize(index_of(grown));
    }
  }
  if (!is_dense_) {
    add_sparse(token);
    settle();
  } else if (counts_[index_of(token)]++ == 0) {
    ++distinct_;
  }
}

void CountedTokens::remove(int64_t token) {
  if (!is_dense_) {
    remove_sparse(token);
  } else if (--counts_[index_of(token)] == 0) {
    --distinct_;
    settle();
  }
}

// Without memory for the other form, it stays as it is.
void CountedTokens::settle() {
  try {
    if (is_dense_) {
      if (4 * distinct_ < size_of(counts_.size())) make_sparse();
    } else if (!groups_.empty()) {
      const int64_t last = size_of(groups_.back() >> kGroupBit) * kCountGroup;
      const int64_t sparse_size = 2 * size_of(groups_.size()) + distinct_;
      if (sparse_size > (last / kBlock + 1) * kBlock) make_dense();
    }
  } catch (const std::bad_alloc&) {}
}

void CountedTokens::make_dense() {
  const int64_t last = size_of(groups_.back() >> kGroupBit) * kCountGroup;
  std::vector<uint32_t> counts(index_of((last / kBlock + 1) * kBlock));
  for (const uint64_t group : groups_) {
    const uint32_t* next = counts_.data() + start_of(group);
    const int64_t first = size_of(group >> kGroupBit) * kCountGroup;
    for (uint64_t bits = group & kTokenBits; bits; bits &= bits - 1) {
      counts[index_of(first + __builtin_ctzll(bits))] = *next++;
    }
  }
  counts_.swap(counts);
  std::vector<uint64_t>().swap(groups_);
  is_dense_ = true;
}

void CountedTokens::make_sparse() {
  std::vector<uint64_t> groups;
  std::vector<uint32_t> counts;
  counts.reserve(index_of(distinct_ + 1));
  for (std::size_t first = 0; first < counts_.size(); first += kCountGroup) {
    uint64_t word = (first / kCountGroup) << kGroupBit | counts.size() << kStartBit;
    for (std::size_t i = 0; i < kCountGroup; ++i) {
      if (counts_[first + i] == 0) continue;
      word |= uint64_t{1} << i;
      counts.push_back(counts_[first + i]);
    }
    if (word & kTokenBits) {
      reserve_one(groups);
      groups.push_back(word);
    }
  }
  groups_.swap(groups);
  counts_.swap(counts);
  is_dense_ = false;
}

TokenCounts CountedTokens::view() const {
  if (!is_dense_) return {groups_.data(), counts_.data(), size_of(groups_.size())};
  return {nullptr, counts_.data(), size_of(counts_.size()) / kCountGroup};
}

std::size_t CountedTokens::bytes() const {
  return groups_.capacity() * sizeof groups_[0] + counts_.capacity() * sizeof counts_[0];
}

// ---- counting a list ------------------------------------------------------------------------------------

TokenCounter& token_counter() {
  thread_local TokenCounter counter;
  return counter;
}

void TokenCounter::reserve(int64_t size) {
  const int64_t groups = (size + kCountGroup - 1) / kCountGroup;
  if (groups * kCountGroup <= size_of(counts_.size())) return;
  touched_.resize(index_of((groups + 63) / 64));
  counts_.resize(index_of(groups * kCountGroup));
}

void TokenCounter::write_group(int64_t group, CountedTokens& target) {
  uint32_t* counts = counts_.data() + group * kCountGroup;
  uint64_t word = static_cast<uint64_t>(group) << kGroupBit | target.counts_.size() << kStartBit;
  for (int64_t i = 0; i < kCountGroup; ++i) {
    if (counts[i] == 0) continue;
    word |= uint64_t{1} << i;
    target.counts_.push_back(counts[i]);
    counts[i] = 0;
  }
  target.groups_.push_back(word);
}

void TokenCounter::move_to(CountedTokens& target) {
  target.is_dense_ = false;
  target.groups_.clear();
  target.counts_.clear();
  try {
    for (std::size_t i = 0; i < touched_.size(); ++i) {
      for (; touched_[i]; touched_[i] &= touched_[i] - 1) {
        write_group(size_of(i) * 64 + __builtin_ctzll(touched_[i]), target);
      }
    }
  } catch (const std::bad_alloc&) {
    std::fill(touched_.begin(), touched_.end(), 0);
    std::fill(counts_.begin(), counts_.end(), 0);
    target = CountedTokens();
    throw;
  }
  target.distinct_ = size_of(target.counts_.size());
}

// ---- the tokens of a sequence ---------------------------------------------------------------------------

void TokenHistory::set_ignored(const int64_t* tokens, int64_t count, bool has_outside) {
  ignored_.assign(tokens, tokens + count);
  ignores_outside_ = has_outside;
}

bool TokenHistory::is_counted(int64_t token) const noexcept {
  return token >= 0 && token < limit_ &&
         (ignored_.empty() || !std::binary_search(ignored_.begin(), ignored_.end(), token));
}

void TokenHistory::set_limit(int64_t limit) noexcept {
  limit_ = limit;
  for (ScopeCounts& counts : scopes_) counts.is_stale = true;
  find_max(count());
}

void TokenHistory::set_prompt(const int64_t* tokens, int64_t count) {
  reserve_more(count);
  extend(tokens, count);
  prompt_count_ = count;
}

void TokenHistory::grow(std::size_t size) {
  tokens_.reserve(std::max(size, tokens_.size() + tokens_.size() / 2));
}

void TokenHistory::extend(const int64_t* tokens, int64_t more) noexcept {
  const int64_t before = count();
  for (int64_t i = 0; i < more; ++i) {
    note_max(tokens[i], count());
    tokens_.push_back(static_cast<int32_t>(tokens[i]));
  }
  if (!scopes_.empty()) move_counts(before, count());
}

void TokenHistory::truncate(int64_t output_count) noexcept {
  const int64_t kept = prompt_count_ + output_count;
  move_counts(count(), kept);
  tokens_.resize(index_of(kept));
  if (kept <= max_place_) find_max(kept);
}

void TokenHistory::find_max(int64_t end) noexcept {
  max_token_ = -1;
  max_place_ = 0;
  for (int64_t i = 0; i < end; ++i) note_max(tokens_[index_of(i)], i);
}

void TokenHistory::note_max(int64_t token, int64_t place) noexcept {
  if (token <= max_token_ || !is_counted(token)) return;
  max_token_ = token;
  max_place_ = place;
}

std::size_t TokenHistory::bytes() const {
  std::size_t bytes = (tokens_.capacity() + ignored_.capacity()) * sizeof tokens_[0];
  for (const ScopeCounts& counts : scopes_) bytes += sizeof counts + counts.counted.bytes();
  return bytes;
}

TokenHistory::Range TokenHistory::range(int64_t scope, int64_t count) const {
  if (scope >= 0) return {std::max<int64_t>(0, count - scope), count};
  return {scope == kOutput ? prompt_count_ : 0, scope == kPrompt ? prompt_count_ : count};
}

// Moves the counts of all scopes from a number of tokens to another; tokens_ must hold the larger number. Counts
// that change much, or that there is no memory for, are made anew when they are read.
void TokenHistory::move_counts(int64_t from, int64_t to) noexcept {
  for (ScopeCounts& counts : scopes_) {
    if (counts.is_stale) continue;
    const Range before = range(counts.scope, from);
    const Range after = range(counts.scope, to);
    const int64_t changes = std::abs(after.first - before.first) + std::abs(after.end - before.end);
    counts.is_stale = changes > 8 + (after.end - after.first) / 512;
    if (counts.is_stale) continue;
    try {
      move(counts, before, after);
    } catch (const std::bad_alloc&) {
      counts.is_stale = true;
    }
  }
}

void TokenHistory::move(ScopeCounts& counts, Range from, Range to) {
  const auto visit = [&](int64_t first, int64_t end, void (CountedTokens::*change)(int64_t)) {
    for (int64_t i = first; i < end; ++i) {
      if (is_counted(tokens_[index_of(i)])) (counts.counted.*change)(tokens_[index_of(i)]);
    }
  };
  visit(std::max(to.first, from.end), to.end, &CountedTokens::add);
  visit(to.first, std::min(from.first, to.end), &CountedTokens::add);
  visit(from.first, std::min(to.first, from.end), &CountedTokens::remove);
  visit(std::max(from.first, to.end), from.end, &CountedTokens::remove);
}

const CountedTokens& TokenHistory::counts(int64_t scope) {
  auto found = std::find_if(scopes_.begin(), scopes_.end(),
                            [&](const ScopeCounts& counts) { return counts.scope == scope; });
  if (found == scopes_.end()) found = scopes_.insert(found, {scope, true, {}});
  if (found->is_stale) rebuild(*found);
  return found->counted;
}

void TokenHistory::rebuild(ScopeCounts& counts) {
  TokenCounter& counter = token_counter();
  counter.reserve(max_token() + 1);
  const Range tokens = range(counts.scope, count());
  for (int64_t i = tokens.first; i < tokens.end; ++i) {
    if (is_counted(tokens_[index_of(i)])) counter.add(tokens_[index_of(i)]);
  }
  CountedTokens counted;
  counter.move_to(counted);
  counted.settle();
  counts.counted = std::move(counted);
  counts.is_stale = false;
}

}  // namespace fastsample
