#include "sampling/penalties.hpp"

#include <algorithm>

namespace fastsample {
namespace {

int64_t length_of(const TokenLists& lists, int64_t r) {
  return lists.offsets ? lists.offsets[r + 1] - lists.offsets[r] : 0;
}

const int64_t* start_of(const TokenLists& lists, int64_t r) {
  return lists.offsets ? lists.tokens + lists.offsets[r] : nullptr;
}

std::size_t blocks_of(int64_t vocabulary) {
  return static_cast<std::size_t>((vocabulary + kBlock - 1) / kBlock);
}

// Counts a row's tokens in a penalty's scope. The caller has checked them, but another thread may write the array:
// numbers that are not tokens are skipped.
void count_tokens(const LogitsProcessors& all, int64_t r, int64_t scope, int64_t vocabulary,
                  CountedTokens& counted) {
  TokenCounter& counter = token_counter();
  counter.reserve(vocabulary);
  const auto count = [&](const int64_t* tokens, int64_t first, int64_t end) {
    for (int64_t i = std::max<int64_t>(first, 0); i < end; ++i) {
      const int64_t token = tokens[i];
      if (token >= 0 && token < vocabulary) counter.add(token);
    }
  };
  const int64_t prompt_count = length_of(all.prompt, r);
  const int64_t output_count = length_of(all.output, r);
  const int64_t skipped = scope >= 0 ? prompt_count + output_count - scope : 0;
  if (scope != kOutput) count(start_of(all.prompt, r), skipped, prompt_count);
  if (scope != kPrompt) count(start_of(all.output, r), skipped - prompt_count, output_count);
  counter.move_to(counted);
}

// Finds where the groups of each block start.
void index_blocks(const TokenCounts& counts, int64_t vocabulary, std::vector<uint32_t>& starts) {
  const std::size_t blocks = blocks_of(vocabulary);
  starts.assign(blocks + 1, 0);
  for (int64_t i = 0; i < counts.group_count; ++i) {
    const std::size_t block = (counts.groups[i] >> kGroupBit) / (kBlock / kCountGroup);
    if (block < blocks) starts[block + 1] = static_cast<uint32_t>(i + 1);
  }
  for (std::size_t b = 1; b <= blocks; ++b) starts[b] = std::max(starts[b], starts[b - 1]);
}

}  // namespace

bool has_penalty(const RowParams& params) {
  return params.repetition_penalty != 1.0 || params.frequency_penalty != 0.0 || params.presence_penalty != 0.0;
}

// A stable sort by block: if another thread has made a token occur twice, both values are added.
void RowProcessorBuilder::build_bias(const TokenLists& bias, int64_t r, int64_t vocabulary) {
  const int64_t* tokens = start_of(bias, r);
  const float* values = bias.values + bias.offsets[r];
  const int64_t length = length_of(bias, r);
  biases_.clear();
  bias_start_.assign(blocks_of(vocabulary) + 2, 0);
  for (int64_t i = 0; i < length; ++i) {
    const Bias one = {tokens[i], values[i]};
    if (one.token < 0 || one.token >= vocabulary) continue;
    biases_.push_back(one);
    ++bias_start_[static_cast<std::size_t>(one.token / kBlock + 2)];
  }
  for (std::size_t b = 2; b < bias_start_.size(); ++b) bias_start_[b] += bias_start_[b - 1];
  const std::size_t count = biases_.size();
  biases_.resize(2 * count);
  // Filling a block advances its start to that of the next block.
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t block = static_cast<std::size_t>(biases_[i].token / kBlock);
    biases_[count + static_cast<std::size_t>(bias_start_[block + 1]++)] = biases_[i];
  }
}

const RowProcessorBuilder::CountedScope& RowProcessorBuilder::count_scope(int64_t scope,
                                                                          const LogitsProcessors& all,
                                                                          int64_t r, int64_t vocabulary) {
  for (int i = 0; i < scope_count_; ++i) {
    if (scopes_[i].scope == scope) return scopes_[i];
  }
  const int at = scope_count_;
  if (!all.histories) count_tokens(all, r, scope, vocabulary, counted_[at]);
  const TokenCounts counts = (all.histories ? all.histories[r]->counts(scope) : counted_[at]).view();
  scopes_[at] = {scope, counts, nullptr};
  if (counts.groups) {
    index_blocks(counts, vocabulary, block_start_[at]);
    scopes_[at].block_start = block_start_[at].data();
  }
  ++scope_count_;
  return scopes_[at];
}

Penalty RowProcessorBuilder::penalty_of(double value, double off, int64_t scope, const LogitsProcessors& all,
                                        int64_t r, int64_t vocabulary) {
  Penalty penalty = {};
  penalty.value = static_cast<float>(value);
  if (value == off) return penalty;
  const CountedScope& counted = count_scope(scope, all, r, vocabulary);
  penalty.counts = counted.counts;
  penalty.block_start = counted.block_start;
  return penalty;
}

RowProcessors RowProcessorBuilder::build(const LogitsProcessors& all, int64_t r, int64_t vocabulary,
                                         const RowParams& params) {
  RowProcessors row = {};
  if (all.mask) {
    const char* mask = all.mask + r * all.mask_stride;
    row.allowed_count = all.mask_count;
    row.allowed_bits = all.mask_is_bits ? mask : nullptr;
    row.allowed = all.mask_is_bits ? nullptr : reinterpret_cast<const uint8_t*>(mask);
  }
  if (length_of(all.bias, r) > 0) {
    build_bias(all.bias, r, vocabulary);
    row.biases = biases_.data() + biases_.size() / 2;
    row.bias_start = bias_start_.data();
  }
  if (!has_penalty(params) || !(all.histories || all.prompt.offsets || all.output.offsets)) return row;
  scope_count_ = 0;
  const auto penalty = [&](double value, double off, int64_t scope) {
    return penalty_of(value, off, scope, all, r, vocabulary);
  };
  penalties_.repetition = penalty(params.repetition_penalty, 1.0, params.repetition_scope);
  penalties_.frequency = penalty(params.frequency_penalty, 0.0, params.frequency_scope);
  penalties_.presence = penalty(params.presence_penalty, 0.0, params.presence_scope);
  const bool has_tokens = penalties_.repetition.counts.group_count + penalties_.frequency.counts.group_count +
                              penalties_.presence.counts.group_count >
                          0;
  if (has_tokens) row.penalties = &penalties_;
  return row;
}

}  // namespace fastsample
