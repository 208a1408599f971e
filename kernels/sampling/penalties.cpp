#include "sampling/penalties.hpp"

namespace fastsample {
namespace {

int64_t length_of(const TokenLists& lists, int64_t r) {
  return lists.offsets ? lists.offsets[r + 1] - lists.offsets[r] : 0;
}

// A row's prompt and output, end to end.
class History {
 public:
  History(const Adjustments& all, int64_t r, int64_t vocabulary)
      : vocabulary_(vocabulary),
        prompt_(start(all.prompt, r)),
        output_(start(all.output, r)),
        prompt_count_(length_of(all.prompt, r)),
        count_(prompt_count_ + length_of(all.output, r)) {}

  int64_t count() const { return count_; }

  // Calls visit(token) for every token in a penalty's scope. They have been checked, but another thread may
  // write the array since: what is not a token is passed over.
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

Adjustment without_edits(const Adjustments& all, int64_t r, const RowParams& settings) {
  Adjustment adjustment = {};
  adjustment.repetition_penalty = static_cast<float>(settings.repetition_penalty);
  adjustment.frequency_penalty = static_cast<float>(settings.frequency_penalty);
  adjustment.presence_penalty = static_cast<float>(settings.presence_penalty);
  if (!all.mask) return adjustment;
  const char* mask = all.mask + r * all.mask_stride;
  adjustment.allowed_count = all.mask_count;
  if (all.mask_is_bits) {
    adjustment.allowed_bits = mask;
  } else {
    adjustment.allowed = reinterpret_cast<const uint8_t*>(mask);
  }
  return adjustment;
}

}  // namespace

void Adjuster::make_room(int64_t touches) {
  std::size_t size = 16;
  while (size < 2 * static_cast<std::size_t>(touches)) size *= 2;
  slots_.assign(size, -1);
  touched_.clear();
}

Edit& Adjuster::touch(int64_t token) {
  const std::size_t last = slots_.size() - 1;
  std::size_t slot = (static_cast<uint64_t>(token) * 0x9E3779B97F4A7C15 >> 32) & last;
  for (; slots_[slot] >= 0; slot = (slot + 1) & last) {
    Edit& edit = touched_[static_cast<std::size_t>(slots_[slot])];
    if (edit.token == token) return edit;
  }
  slots_[slot] = static_cast<int32_t>(touched_.size());
  touched_.push_back({token, 0.0f, 0, false, false});
  return touched_.back();
}

void Adjuster::touch_all(const Adjustments& all, int64_t r, int64_t vocabulary, const RowParams& settings) {
  for (int64_t i = 0; i < length_of(all.bias, r); ++i) {
    const int64_t at = all.bias.offsets[r] + i;
    const int64_t token = all.bias.tokens[at];
    if (token >= 0 && token < vocabulary) touch(token).bias = all.bias.values[at];
  }
  const History history(all, r, vocabulary);
  if (settings.repetition_penalty != 1.0) {
    history.for_each(settings.repetition_scope, [&](int64_t token) { touch(token).repeated = true; });
  }
  if (settings.frequency_penalty != 0.0) {
    history.for_each(settings.frequency_scope, [&](int64_t token) { ++touch(token).frequency; });
  }
  if (settings.presence_penalty != 0.0) {
    history.for_each(settings.presence_scope, [&](int64_t token) { touch(token).present = true; });
  }
}

void Adjuster::sort_by_block(int64_t vocabulary) {
  const auto block_of = [](const Edit& edit) { return static_cast<std::size_t>(edit.token / kBlock); };
  const std::size_t blocks = static_cast<std::size_t>((vocabulary + kBlock - 1) / kBlock);
  edit_start_.assign(blocks + 2, 0);
  for (const Edit& edit : touched_) ++edit_start_[block_of(edit) + 2];
  for (std::size_t b = 2; b < blocks + 2; ++b) edit_start_[b] += edit_start_[b - 1];
  // Filling a block moves its own start to where the next one's is.
  edits_.resize(touched_.size());
  for (const Edit& edit : touched_) {
    edits_[static_cast<std::size_t>(edit_start_[block_of(edit) + 1]++)] = edit;
  }
}

Adjustment Adjuster::adjust(const Adjustments& all, int64_t r, int64_t vocabulary, const RowParams& settings) {
  Adjustment adjustment = without_edits(all, r, settings);
  const bool penalised = settings.repetition_penalty != 1.0 || settings.frequency_penalty != 0.0 ||
                         settings.presence_penalty != 0.0;
  const int64_t most = length_of(all.bias, r) + (penalised ? History(all, r, vocabulary).count() : 0);
  if (most == 0) return adjustment;
  make_room(most);
  touch_all(all, r, vocabulary, settings);
  if (touched_.empty()) return adjustment;
  sort_by_block(vocabulary);
  adjustment.edits = edits_.data();
  adjustment.edit_start = edit_start_.data();
  return adjustment;
}

}  // namespace fastsample
