#include "sampling/penalties.hpp"

namespace fastsample {
namespace {

int64_t length_of(const TokenLists& lists, int64_t r) {
  return lists.offsets ? lists.offsets[r + 1] - lists.offsets[r] : 0;
}

// A row's prompt and output, concatenated.
class History {
 public:
  History(const LogitsProcessors& all, int64_t r, int64_t vocabulary)
      : vocabulary_(vocabulary),
        prompt_(start(all.prompt, r)),
        output_(start(all.output, r)),
        prompt_count_(length_of(all.prompt, r)),
        count_(prompt_count_ + length_of(all.output, r)) {}

  int64_t count() const { return count_; }

  // Calls visit(token) for every token in a penalty's scope. The caller has checked them, but another thread may
  // write the array: numbers that are not tokens are skipped.
  template <class Visit>
  void for_each(int64_t scope, Visit visit) const {
    int64_t first = scope == kOutput ? prompt_count_ : 0;
    if (scope >= 0 && scope < count_) first = count_ - scope;
    const int64_t end = scope == kPrompt ? prompt_count_ : count_;
    for (int64_t i = first; i < end; ++i) {
      const int64_t token = i < prompt_count_ ? prompt_[i] : output_[i - prompt_count_];
      if (token >= 0 && token < vocabulary_) visit(token);
    }
  }

 private:
  static const int64_t* start(const TokenLists& lists, int64_t r) {
    return lists.offsets ? lists.tokens + lists.offsets[r] : nullptr;
  }

  int64_t vocabulary_;
  const int64_t* prompt_;
  const int64_t* output_;
  int64_t prompt_count_;
  int64_t count_;
};

RowProcessors without_edits(const LogitsProcessors& all, int64_t r, const RowParams& params) {
  RowProcessors processors = {};
  processors.repetition_penalty = static_cast<float>(params.repetition_penalty);
  processors.frequency_penalty = static_cast<float>(params.frequency_penalty);
  processors.presence_penalty = static_cast<float>(params.presence_penalty);
  if (!all.mask) return processors;
  const char* mask = all.mask + r * all.mask_stride;
  processors.allowed_count = all.mask_count;
  if (all.mask_is_bits) {
    processors.allowed_bits = mask;
  } else {
    processors.allowed = reinterpret_cast<const uint8_t*>(mask);
  }
  return processors;
}

}  // namespace

void RowProcessorBuilder::reserve(int64_t tokens) {
  std::size_t size = 16;
  while (size < 2 * static_cast<std::size_t>(tokens)) size *= 2;
  slots_.assign(size, -1);
  unsorted_.clear();
}

TokenEdit& RowProcessorBuilder::edit_of(int64_t token) {
  const std::size_t last = slots_.size() - 1;
  std::size_t slot = (static_cast<uint64_t>(token) * 0x9E3779B97F4A7C15 >> 32) & last;
  for (; slots_[slot] >= 0; slot = (slot + 1) & last) {
    TokenEdit& edit = unsorted_[static_cast<std::size_t>(slots_[slot])];
    if (edit.token == token) return edit;
  }
  slots_[slot] = static_cast<int32_t>(unsorted_.size());
  unsorted_.push_back({token, 0.0f, 0, false, false});
  return unsorted_.back();
}

void RowProcessorBuilder::add_edits(const LogitsProcessors& all, int64_t r, int64_t vocabulary,
                                    const RowParams& params) {
  for (int64_t i = 0; i < length_of(all.bias, r); ++i) {
    const int64_t at = all.bias.offsets[r] + i;
    const int64_t token = all.bias.tokens[at];
    if (token >= 0 && token < vocabulary) edit_of(token).bias = all.bias.values[at];
  }
  const History history(all, r, vocabulary);
  if (params.repetition_penalty != 1.0) {
    history.for_each(params.repetition_scope, [&](int64_t token) { edit_of(token).repeated = true; });
  }
  if (params.frequency_penalty != 0.0) {
    history.for_each(params.frequency_scope, [&](int64_t token) { ++edit_of(token).frequency; });
  }
  if (params.presence_penalty != 0.0) {
    history.for_each(params.presence_scope, [&](int64_t token) { edit_of(token).present = true; });
  }
}

void RowProcessorBuilder::sort_by_block(int64_t vocabulary) {
  const auto block_of = [](const TokenEdit& edit) { return static_cast<std::size_t>(edit.token / kBlock); };
  const std::size_t blocks = static_cast<std::size_t>((vocabulary + kBlock - 1) / kBlock);
  edit_start_.assign(blocks + 2, 0);
  for (const TokenEdit& edit : unsorted_) ++edit_start_[block_of(edit) + 2];
  for (std::size_t b = 2; b < blocks + 2; ++b) edit_start_[b] += edit_start_[b - 1];
  // Filling a block advances its start to that of the next block.
  edits_.resize(unsorted_.size());
  for (const TokenEdit& edit : unsorted_) {
    edits_[static_cast<std::size_t>(edit_start_[block_of(edit) + 1]++)] = edit;
  }
}

RowProcessors RowProcessorBuilder::build(const LogitsProcessors& all, int64_t r, int64_t vocabulary,
                                         const RowParams& params) {
  RowProcessors processors = without_edits(all, r, params);
  const bool penalised = params.repetition_penalty != 1.0 || params.frequency_penalty != 0.0 ||
                         params.presence_penalty != 0.0;
  const int64_t most = length_of(all.bias, r) + (penalised ? History(all, r, vocabulary).count() : 0);
  if (most == 0) return processors;
  reserve(most);
  add_edits(all, r, vocabulary, params);
  if (unsorted_.empty()) return processors;
  sort_by_block(vocabulary);
  processors.edits = edits_.data();
  processors.edit_start = edit_start_.data();
  return processors;
}

}  // namespace fastsample
