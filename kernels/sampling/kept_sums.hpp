// Exact sums over a kept set for section 5: the deviation of its logits, and the mean exponent of its tokens. They are
// integers, so their order does not matter.
#pragma once

#include "sampling/total_mass.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// Calls visit(logits) for vectors that hold every kept logit, and `filler` in all other lanes.
template <class Visit>
inline void visit_kept(const KeptSet& kept, float filler, Visit visit) {
  if (!kept.in_place) {
    for (int64_t i = 0; i < kept.count; i += kLanes) {
      Floats logits = logits_of(kept.work.keys + i);
      for (int64_t lane = kept.count - i; lane < kLanes; ++lane) logits[lane] = filler;
      visit(logits);
    }
    return;
  }
  const Cut cut(kept.cut);
  for (int64_t b = 0; b < kept.row.blocks(); ++b) {
    if (kept.work.block_max[b] < logit_of(kept.cut)) continue;
    kept.row.prefetch(b);
    const char* block = kept.row.block(b);
    for (int64_t i = 0; i < kBlock; i += kLanes) {
      const Floats logits = load(block + 4 * i);
      visit(logits >= cut.bound_at(b * kBlock + i) ? logits : fill(filler));
    }
  }
}

// Lanes in [0, 2^22] as integers, rounded to nearest, ties to even.
inline Uints rounded(Floats lanes) {
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23
  constexpr uint32_t kRounderBits = 0x4B400000;
  return (Uints)(lanes + kRounder) - kRounderBits;
}

// Lanes of 32 or 64 bits.
template <class Vector>
inline uint64_t sum_lanes(Vector lanes) {
  uint64_t sum = 0;
  for (size_t lane = 0; lane < sizeof lanes / sizeof lanes[0]; ++lane) sum += lanes[lane];
  return sum;
}

// S1 and S2 of section 5, where d = high * 2^10 + low. So many vectors are added in 32 bits a lane: then high, low
// and their products, all below 2^20, cannot overflow.
class DeviationSums {
 public:
  explicit DeviationSums(float top) : top_(top) {}

  void add(Floats logits) {
    constexpr float kMost = 1048575.0f;  // 2^20 - 1
    const Floats steps = (top_ - logits) * 2048.0f;
    const Uints d = rounded(steps < kMost ? steps : fill(kMost));
    const Uints high = d >> 10;
    const Uints low = d & 1023u;
    d_ += d;
    high_high_ += high * high;
    high_low_ += high * low;
    low_low_ += low * low;
    if (++vectors_ == kVectors) carry();
  }

  // The standard deviation of `count` logits.
  double deviation(int64_t count) {
    carry();
    const double n = static_cast<double>(count);
    const double mean = static_cast<double>(sum_) / n;
    const double variance = static_cast<double>(squares_) / n - mean * mean;
    return __builtin_sqrt(variance > 0 ? variance : 0) * 0x1p-11;
  }

 private:
  static constexpr int kVectors = 4096;

  void carry() {
    sum_ += static_cast<int64_t>(sum_lanes(d_));
    squares_ += static_cast<int64_t>((sum_lanes(high_high_) << 20) + (sum_lanes(high_low_) << 11) +
                                     sum_lanes(low_low_));
    d_ = high_high_ = high_low_ = low_low_ = Uints{};
    vectors_ = 0;
  }

  float top_;
  Uints d_ = {};
  Uints high_high_ = {};
  Uints high_low_ = {};
  Uints low_low_ = {};
  int vectors_ = 0;
  int64_t sum_ = 0;
  int64_t squares_ = 0;
};

// E1 and E0 of section 5.
class ExponentSums {
 public:
  explicit ExponentSums(Scaling scaling) : scaling_(scaling) {}

  // Masses.low is in [-2^19, 2^19], so its floor and its rest are taken from it alone.
  void add(Floats logits) {
    const Masses masses = masses_of(scaling_, logits);
    const Uints k = rounded(exponent2(scaling_, logits) * -65536.0f);
    high_ += multiply_pairs((Uints)(masses.high * 2 + (masses.low >> 19)), k);
    low_ += multiply_pairs((Uints)(masses.low & 0x7FFFF), k);
  }

  // The mean exponent, at most -2^-36, where the masses add up to `total`.
  float mean(uint64_t total) const {
    const double sum = as_double(sum_lanes(high_)) * 0x1p19 + as_double(sum_lanes(low_));
    const float mean = static_cast<float>(-(sum / (as_double(total) * 0x1p16)));
    return mean < -0x1p-36f ? mean : -0x1p-36f;
  }

 private:
  // All are below 2^63.
  static double as_double(uint64_t number) { return static_cast<double>(static_cast<int64_t>(number)); }

  Scaling scaling_;
  Uwords high_ = {};
  Uwords low_ = {};
};

// The standard deviation of the kept logits.
__attribute__((noinline)) double deviation_of(const KeptSet& kept) {
  DeviationSums sums(kept.scaling.top);
  visit_kept(kept, kept.scaling.top, [&](Floats logits) __attribute__((always_inline)) { sums.add(logits); });
  return sums.deviation(count_kept(kept));
}

// The mean of y over the kept tokens, weighted by their masses.
__attribute__((noinline)) float mean_exponent2(const KeptSet& kept, uint64_t total) {
  ExponentSums sums(kept.scaling);
  visit_kept(kept, -kInfinity, [&](Floats logits) __attribute__((always_inline)) { sums.add(logits); });
  return sums.mean(total);
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
