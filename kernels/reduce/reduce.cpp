#include "reduce/reduce.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "simd/float_mode.hpp"
#include "runtime/pool.hpp"

namespace fastsample {
namespace {

// Waking a thread costs a few microseconds: each must have several times that to do.
constexpr int64_t kNumbersPerThread = 1 << 18;
// The digits of an exact sum are carried after so many.
constexpr int64_t kNumbersPerRun = 1 << 28;

int64_t size_of(DType dtype) { return dtype == kFloat64 ? 8 : dtype == kFloat32 ? 4 : 2; }

// The numbers of an array in the order in which they are read, with as few axes as possible.
class Elements {
 public:
  explicit Elements(const Strided& array)
      : data_(array.data), dtype_(array.dtype), size_(size_of(array.dtype)) {
    for (int axis = 0; axis < array.dimensions; ++axis) {
      const int64_t length = array.shape[axis];
      const int64_t stride = array.strides[axis];
      count_ *= length;
      if (length == 1) continue;
      if (!axes_.empty() && axes_.back().stride == stride * length) {
        axes_.back() = {axes_.back().length * length, stride};
      } else {
        axes_.push_back({length, stride});
      }
    }
    if (axes_.empty()) axes_.push_back({1, size_});
  }

  int64_t count() const { return count_; }
  int64_t blocks() const { return (count_ + kRuleBlock - 1) / kRuleBlock; }
  DType dtype() const { return dtype_; }

  // Calls use(numbers, block) for adjacent runs of blocks, from one block to another: in the caller's memory, or
  // block by block in a copy where they are not adjacent there.
  template <class Use>
  void each_run(int64_t first_block, int64_t last_block, Use use) const {
    const bool in_place = axes_.size() == 1 && axes_[0].stride == size_;
    alignas(64) char gathered[kRuleBlock * sizeof(double)];
    const int64_t last = std::min(last_block * kRuleBlock, count_);
    const int64_t step = in_place ? kNumbersPerRun : kRuleBlock;
    for (int64_t first = first_block * kRuleBlock; first < last; first += step) {
      const int64_t count = std::min(step, last - first);
      if (!in_place) gather(first, count, gathered);
      use(Numbers{in_place ? data_ + first * size_ : gathered, count, dtype_}, first / kRuleBlock);
    }
  }

 private:
  struct Axis {
    int64_t length;
    int64_t stride;
  };

  // Copies row by row of the last axis.
  void gather(int64_t first, int64_t count, char* target) const {
    const Axis& row = axes_.back();
    while (count > 0) {
      const int64_t at = first % row.length;
      const int64_t taken = std::min(row.length - at, count);
      const char* source = row_start(first / row.length) + at * row.stride;
      if (size_ == 8) {
        copy<8>(source, row.stride, taken, target);
      } else if (size_ == 4) {
        copy<4>(source, row.stride, taken, target);
      } else {
        copy<2>(source, row.stride, taken, target);
      }
      first += taken;
      count -= taken;
      target += taken * size_;
    }
  }

  const char* row_start(int64_t row) const {
    const char* start = data_;
    for (size_t axis = axes_.size() - 1; axis-- > 0;) {
      start += row % axes_[axis].length * axes_[axis].stride;
      row /= axes_[axis].length;
    }
    return start;
  }

  template <int kSize>
  static void copy(const char* source, int64_t stride, int64_t count, char* target) {
    for (int64_t i = 0; i < count; ++i) std::memcpy(target + i * kSize, source + i * stride, kSize);
  }

  const char* data_;
  DType dtype_;
  int64_t size_;
  int64_t count_ = 1;
  std::vector<Axis> axes_;
};

int choose_shares(const Elements& elements, int threads) {
  const int64_t wanted = threads == 0 ? elements.count() / kNumbersPerThread : threads;
  const int64_t most = std::min({wanted, elements.blocks(), int64_t{kMaxThreads}});
  return most <= 1 ? 1 : std::min(static_cast<int>(most), max_threads());
}

// Calls task(share, first block, last block) for each share of the blocks, each on a thread.
template <class Task>
void for_each_share(const Elements& elements, int shares, const Task& task) {
  const auto share_out = [&](int64_t share) {
    const DefaultFloatMode mode;
    const int64_t blocks = elements.blocks();
    task(share, share * blocks / shares, (share + 1) * blocks / shares);
  };
  parallel_for(
      shares, 1, shares,
      [](void* context, int64_t share) { (*static_cast<decltype(share_out)*>(context))(share); },
      const_cast<void*>(static_cast<const void*>(&share_out)));
}

// Carries the bits of each digit beyond 32 to the next one.
void carry_digits(ExactSum& sum) {
  int64_t carry = 0;
  for (int i = 0; i + 1 < kDigits; ++i) {
    const int64_t digit = sum.digits[i] + carry;
    sum.digits[i] = digit & 0xFFFFFFFF;
    carry = digit >> 32;
  }
  sum.digits[kDigits - 1] += carry;
}

void merge(const ExactSum& from, ExactSum& into) {
  for (int i = 0; i < kDigits; ++i) into.digits[i] += from.digits[i];
  into.special += from.special;
}

}  // namespace

ExactSum exact_sum(const Kernels& kernels, const Strided& array, int threads) {
  const Elements elements(array);
  const int shares = choose_shares(elements, threads);
  std::vector<ExactSum> sums(static_cast<size_t>(shares));
  for_each_share(elements, shares, [&](int64_t share, int64_t first, int64_t last) {
    ExactSum sum = {};
    elements.each_run(first, last, [&](const Numbers& numbers, int64_t) {
      kernels.sums.exact(numbers, sum);
      carry_digits(sum);
    });
    sums[static_cast<size_t>(share)] = sum;
  });
  ExactSum total = {};
  for (const ExactSum& sum : sums) merge(sum, total);
  carry_digits(total);
  return total;
}

double fixed_sum(const Kernels& kernels, const Strided& array, int threads) {
  const Elements elements(array);
  std::vector<double> totals(static_cast<size_t>(elements.blocks()));
  for_each_share(elements, choose_shares(elements, threads), [&](int64_t, int64_t first, int64_t last) {
    elements.each_run(first, last, [&](const Numbers& numbers, int64_t block) {
      kernels.sums.fixed(numbers, totals.data() + block);
    });
  });
  double sum = 0;
  const DefaultFloatMode mode;
  for (const double total : totals) sum += total;
  return sum;
}

double fast_sum(const Kernels& kernels, const Strided& array, int threads) {
  const Elements elements(array);
  const auto plus = [&](double a, double b) {
    if (elements.dtype() == kFloat64) return a + b;
    return static_cast<double>(static_cast<float>(a) + static_cast<float>(b));
  };
  const int shares = choose_shares(elements, threads);
  std::vector<double> sums(static_cast<size_t>(shares));
  for_each_share(elements, shares, [&](int64_t share, int64_t first, int64_t last) {
    double sum = 0;
    elements.each_run(first, last,
                      [&](const Numbers& numbers, int64_t) { sum = plus(sum, kernels.sums.fast(numbers)); });
    sums[static_cast<size_t>(share)] = sum;
  });
  double total = 0;
  const DefaultFloatMode mode;
  for (const double sum : sums) total = plus(total, sum);
  return total;
}

}  // namespace fastsample
