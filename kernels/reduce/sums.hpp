// Sums of numbers, in section 8's three reduction modes. 16-bit floats are widened as a row's are.
//
// The exact sum splits numbers into slices so narrow that float64 adds the slices of a block without rounding, so
// only the few sums of a block become integers.
#pragma once

#include "math/float_mass.hpp"
#include "sampling/row.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

template <class Item>
struct Vectors {
  static constexpr int kCount = 4 * kLanes / static_cast<int>(sizeof(Item));
  typedef Item Lanes __attribute__((vector_size(4 * kLanes)));
};

template <class Item>
inline typename Vectors<Item>::Lanes load_items(const char* source) {
  typename Vectors<Item>::Lanes lanes;
  std::memcpy(&lanes, source, sizeof lanes);
  return lanes;
}

// Always inlined: GCC drops calls of a function that only prefetches.
__attribute__((always_inline)) inline void prefetch_ahead(const char* source, int64_t bytes) {
  for (int64_t byte = 0; byte < bytes; byte += 64) {
    __builtin_prefetch(source + kPrefetch + byte, 0, kSecondLevel);
  }
}

// ---- halves -------------------------------------------------------------------------------------------

// Up to a block of 16-bit floats.
inline void widen_numbers(const Numbers& halves, float* target) {
  const auto widen = [&](const char* source) {
    return halves.dtype == kFloat16 ? widen_float16(source) : widen_bfloat16(source);
  };
  int64_t i = 0;
  for (; i + kLanes <= halves.count; i += kLanes) store(target + i, widen(halves.data + 2 * i));
  if (i == halves.count) return;
  char last[2 * kLanes] = {};
  std::memcpy(last, halves.data + 2 * i, static_cast<size_t>(2 * (halves.count - i)));
  store(target + i, widen(last));
}

inline bool is_half(DType dtype) { return dtype == kFloat16 || dtype == kBFloat16; }

// Calls use(numbers, n) for the n-th block of 16-bit floats, widened.
template <class Use>
inline void each_widened(const Numbers& halves, Use use) {
  alignas(64) float wide[kRuleBlock];
  for (int64_t first = 0; first < halves.count; first += kRuleBlock) {
    const int64_t rest = halves.count - first;
    const int64_t count = rest < kRuleBlock ? rest : kRuleBlock;
    prefetch_ahead(halves.data + 2 * first, 2 * count);
    widen_numbers({halves.data + 2 * first, count, halves.dtype}, wide);
    use(Numbers{reinterpret_cast<const char*>(wide), count, kFloat32}, first / kRuleBlock);
  }
}

// ---- fixed --------------------------------------------------------------------------------------------

// Several full blocks at once, since an addition waits for the one before it in its block.
template <class Item, int kBlocks>
inline void fixed_blocks(const char* items, double* totals) {
  using V = Vectors<Item>;
  constexpr int kVectors = kRuleLanes / V::kCount;
  constexpr int64_t kBytes = kRuleBlock * sizeof(Item);
  typename V::Lanes sums[kBlocks][kVectors] = {};
  for (int64_t at = 0; at < kBytes; at += kRuleLanes * sizeof(Item)) {
    for (int block = 0; block < kBlocks; ++block) {
      const char* source = items + block * kBytes + at;
      prefetch_ahead(source, kRuleLanes * sizeof(Item));
      for (int i = 0; i < kVectors; ++i) sums[block][i] += load_items<Item>(source + i * 4 * kLanes);
    }
  }
  for (int block = 0; block < kBlocks; ++block) {
    Item lanes[kRuleLanes];
    std::memcpy(lanes, sums[block], sizeof lanes);
    totals[block] = static_cast<double>(sum_of_rule_lanes(lanes));
  }
}

template <class Item>
inline double fixed_part(const char* items, int64_t count) {
  Item lanes[kRuleLanes] = {};
  int64_t i = 0;
  for (; i + kRuleLanes <= count; i += kRuleLanes) {
    Item next[kRuleLanes];
    std::memcpy(next, items + i * sizeof(Item), sizeof next);
    for (int lane = 0; lane < kRuleLanes; ++lane) lanes[lane] += next[lane];
  }
  for (int lane = 0; i < count; ++i, ++lane) {
    Item next;
    std::memcpy(&next, items + i * sizeof(Item), sizeof next);
    lanes[lane] += next;
  }
  return static_cast<double>(sum_of_rule_lanes(lanes));
}

template <class Item>
inline void fixed_sums_of(const Numbers& numbers, double* totals) {
  constexpr int kAtOnce = 4 * Vectors<Item>::kCount < kRuleLanes ? 1 : 4 * Vectors<Item>::kCount / kRuleLanes;
  constexpr int64_t kBytes = kRuleBlock * sizeof(Item);
  const int64_t blocks = numbers.count / kRuleBlock;
  int64_t block = 0;
  for (; block + kAtOnce <= blocks; block += kAtOnce) {
    fixed_blocks<Item, kAtOnce>(numbers.data + block * kBytes, totals + block);
  }
  for (; block < blocks; ++block) fixed_blocks<Item, 1>(numbers.data + block * kBytes, totals + block);
  const int64_t rest = numbers.count - blocks * kRuleBlock;
  if (rest) totals[blocks] = fixed_part<Item>(numbers.data + blocks * kBytes, rest);
}

void fixed_sums(const Numbers& numbers, double* totals) {
  if (is_half(numbers.dtype)) {
    each_widened(numbers,
                 [&](const Numbers& wide, int64_t block) { fixed_sums_of<float>(wide, totals + block); });
  } else if (numbers.dtype == kFloat32) {
    fixed_sums_of<float>(numbers, totals);
  } else {
    fixed_sums_of<double>(numbers, totals);
  }
}

// ---- fast ---------------------------------------------------------------------------------------------

template <class Item>
inline Item fast_sum_of(const Numbers& numbers) {
  using V = Vectors<Item>;
  constexpr int kChains = 8;
  constexpr int64_t kStep = kChains * V::kCount;
  typename V::Lanes sums[kChains] = {};
  int64_t i = 0;
  for (; i + kStep <= numbers.count; i += kStep) {
    const char* source = numbers.data + i * sizeof(Item);
    prefetch_ahead(source, kStep * sizeof(Item));
    for (int n = 0; n < kChains; ++n) sums[n] += load_items<Item>(source + n * 4 * kLanes);
  }
  for (int n = 1; n < kChains; ++n) sums[0] += sums[n];
  Item total = 0;
  for (int lane = 0; lane < V::kCount; ++lane) total += sums[0][lane];
  for (; i < numbers.count; ++i) {
    Item next;
    std::memcpy(&next, numbers.data + i * sizeof(Item), sizeof next);
    total += next;
  }
  return total;
}

double fast_sum(const Numbers& numbers) {
  if (numbers.dtype == kFloat64) return fast_sum_of<double>(numbers);
  if (numbers.dtype == kFloat32) return fast_sum_of<float>(numbers);
  float total = 0;
  each_widened(numbers, [&](const Numbers& wide, int64_t) { total += fast_sum_of<float>(wide); });
  return total;
}

// ---- exact: one number ---------------------------------------------------------------------------------

constexpr int kExponentMask = 0x7FF;

inline void add_exactly_one(double number, ExactSum& sum) {
  uint64_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  const int exponent = static_cast<int>(bits >> 52) & kExponentMask;
  if (exponent == kExponentMask) {
    sum.special += number;
    return;
  }
  uint64_t size = bits & ((uint64_t{1} << 52) - 1);
  size |= static_cast<uint64_t>(exponent > 0) << 52;
  const int place = exponent > 0 ? exponent - 1 : 0;
  const unsigned __int128 wide = static_cast<unsigned __int128>(size) << (place % 32);
  const int64_t sign = static_cast<int64_t>(bits) >> 63;  // -1 or 0: (x ^ sign) - sign negates
  for (int i = 0; i < 3; ++i) {
    const int64_t digit = static_cast<int64_t>(static_cast<uint32_t>(wide >> (32 * i)));
    sum.digits[place / 32 + i] += (digit ^ sign) - sign;
  }
}

template <class Item>
inline void add_one_by_one(const char* items, int64_t count, ExactSum& sum) {
  for (int64_t i = 0; i < count; ++i) {
    Item item;
    std::memcpy(&item, items + i * sizeof(Item), sizeof item);
    add_exactly_one(static_cast<double>(item), sum);
  }
}

// ---- exact: a block -----------------------------------------------------------------------------------

template <class Item>
struct Format;
template <>
struct Format<float> {
  typedef int32_t Bits;
  static constexpr int kFraction = 23;
};
template <>
struct Format<double> {
  typedef int64_t Bits;
  static constexpr int kFraction = 52;
};

// The exponent fields, as in float64, of the largest number of a block and of the smallest one but 0.
struct ExponentRange {
  int high;
  int low;
};

template <class Item>
inline int exponent_of(typename Format<Item>::Bits bits) {
  Item item;
  std::memcpy(&item, &bits, sizeof item);
  const double number = static_cast<double>(item);
  uint64_t wide;
  std::memcpy(&wide, &number, sizeof wide);
  const int exponent = static_cast<int>(wide >> 52);
  return exponent > 0 ? exponent : 1;
}

// `count` is a multiple of a vector's items.
template <class Item>
inline ExponentRange range_of(const char* items, int64_t count) {
  typedef typename Format<Item>::Bits Bits;
  using V = Vectors<Bits>;
  constexpr Bits kSize = static_cast<Bits>(~(uint64_t{1} << (8 * sizeof(Bits) - 1)));
  typename V::Lanes high = {};
  typename V::Lanes low = kSize - typename V::Lanes{};
  for (int64_t i = 0; i < count; i += V::kCount) {
    const char* source = items + i * sizeof(Bits);
    prefetch_ahead(source, 4 * kLanes);
    const typename V::Lanes size = load_items<Bits>(source) & kSize;
    const typename V::Lanes below = (size - 1) & kSize;  // for 0 the largest number
    high = size > high ? size : high;
    low = below < low ? below : low;
  }
  for (int lane = 1; lane < V::kCount; ++lane) {
    high[0] = high[lane] > high[0] ? high[lane] : high[0];
    low[0] = low[lane] < low[0] ? low[lane] : low[0];
  }
  if (high[0] == 0) return {1, 1};
  return {exponent_of<Item>(high[0]), exponent_of<Item>(static_cast<Bits>(low[0] + 1))};
}

typedef double Doubles __attribute__((vector_size(4 * kLanes)));
constexpr int kDoubles = kLanes / 2;

template <class Item>
inline Doubles load_doubles(const char* source);

template <>
inline Doubles load_doubles<double>(const char* source) {
  return load_items<double>(source);
}

// Intrinsics where GCC widens half a vector at a time.
template <>
inline Doubles load_doubles<float>(const char* source) {
#if defined(__AVX512F__)
  const __m256 floats = _mm256_loadu_ps(reinterpret_cast<const float*>(source));
  return (Doubles)_mm512_maskz_cvtps_pd(0xFF, floats);
#elif defined(__AVX2__)
  return (Doubles)_mm256_cvtps_pd(_mm_loadu_ps(reinterpret_cast<const float*>(source)));
#else
  typedef float HalfFloats __attribute__((vector_size(2 * kLanes)));
  HalfFloats floats;
  std::memcpy(&floats, source, sizeof floats);
  return __builtin_convertvector(floats, Doubles);
#endif
}

constexpr int kCountBits = 12;
static_assert(kRuleBlock == 1 << kCountBits, "a block adds so many bits");
// For a number x below 2^e, (x + rounder) - rounder is the slice of x from the unit 2^(e + kCountBits - 52) up. A
// block's slices add up to at most 2^(e + kCountBits), and the rest of each number is at most half of that unit:
// the exponent of the next slice is lower by kSlice.
constexpr int kSlice = 53 - kCountBits;

inline double power_of_two(int field) {
  const uint64_t bits = static_cast<uint64_t>(field) << 52;
  double power;
  std::memcpy(&power, &bits, sizeof power);
  return power;
}

constexpr int kExactChains = 4;  // vectors whose sums do not wait for each other
constexpr int64_t kStride = kExactChains * kDoubles;

// Adds the slices and the rests; `count` is a multiple of kStride.
template <class Item, int kSlices>
inline void add_sliced(const char* items, int64_t count, int high, ExactSum& sum) {
  double rounder[kSlices + 1];
  for (int n = 0; n < kSlices; ++n) rounder[n] = 1.5 * power_of_two(high + 1 + kCountBits - n * kSlice);
  Doubles sums[kSlices + 1][kExactChains] = {};
  for (int64_t i = 0; i < count; i += kStride) {
    for (int v = 0; v < kExactChains; ++v) {
      Doubles left = load_doubles<Item>(items + (i + v * kDoubles) * sizeof(Item));
      for (int n = 0; n < kSlices; ++n) {
        const Doubles slice = (left + rounder[n]) - rounder[n];
        sums[n][v] += slice;
        left -= slice;
      }
      sums[kSlices][v] += left;
    }
  }
  for (int n = 0; n <= kSlices; ++n) {
    const Doubles all = (sums[n][0] + sums[n][1]) + (sums[n][2] + sums[n][3]);
    double total = 0;
    for (int lane = 0; lane < kDoubles; ++lane) total += all[lane];
    add_exactly_one(total, sum);
  }
}

// `count` is a multiple of kStride, and at most a block.
template <class Item>
inline void add_block(const char* items, int64_t count, ExactSum& sum) {
  const ExponentRange range = range_of<Item>(items, count);
  const int bits = range.high - range.low + Format<Item>::kFraction + 1 + kCountBits - 53;
  const int slices = bits > 0 ? (bits + kSlice - 1) / kSlice : 0;
  const int last = range.high + 1 + kCountBits - (slices - 1) * kSlice;
  const bool fits = range.high + 1 + kCountBits < kExponentMask && last > 0;
  if (!fits || slices > 3) return add_one_by_one<Item>(items, count, sum);
  if (slices == 0) return add_sliced<Item, 0>(items, count, range.high, sum);
  if (slices == 1) return add_sliced<Item, 1>(items, count, range.high, sum);
  if (slices == 2) return add_sliced<Item, 2>(items, count, range.high, sum);
  add_sliced<Item, 3>(items, count, range.high, sum);
}

template <class Item>
inline void add_exactly_of(const Numbers& numbers, ExactSum& sum) {
  const int64_t full = numbers.count / kStride * kStride;
  for (int64_t first = 0; first < full; first += kRuleBlock) {
    const int64_t rest = full - first;
    add_block<Item>(numbers.data + first * sizeof(Item), rest < kRuleBlock ? rest : kRuleBlock, sum);
  }
  add_one_by_one<Item>(numbers.data + full * sizeof(Item), numbers.count - full, sum);
}

void add_exactly(const Numbers& numbers, ExactSum& sum) {
  if (numbers.dtype == kFloat64) {
    add_exactly_of<double>(numbers, sum);
  } else if (numbers.dtype == kFloat32) {
    add_exactly_of<float>(numbers, sum);
  } else {
    each_widened(numbers, [&](const Numbers& wide, int64_t) { add_exactly_of<float>(wide, sum); });
  }
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
