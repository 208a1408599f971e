// Section 8: masses as float32, v = 2^y, and their sums: in one order on every machine (fixed), in the fastest order
// (fast), or nearly without rounding (wide), to prove that the order does not matter. Sums are of halved powers
// and doubled at the end, which changes no bit.
#pragma once

#include "math/mass.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// The masses of a vector of logits; that of -inf is 0.
FASTSAMPLE_INLINE Floats float_masses_of(Scaling scaling, Floats logits) {
  const Power<Floats> v = power(exponent2(scaling, logits));
  const Floats values = v.p * doubled(v.half);
  return logits >= fill(kLowest) ? values : Floats{};
}

inline float float_mass_of(Scaling scaling, float logit) { return float_masses_of(scaling, fill(logit))[0]; }

// Section 8's order: 16 lanes by token inside aligned blocks of 4,096 tokens.
constexpr int kRuleLanes = 16;

// Adds lanes i + 8 to lanes i, then i + 4, i + 2 and i + 1.
template <class Item>
inline Item sum_of_rule_lanes(Item* lanes) {
  for (int apart = kRuleLanes / 2; apart > 0; apart /= 2) {
    for (int i = 0; i < apart; ++i) lanes[i] += lanes[i + apart];
  }
  return lanes[0];
}

class FixedSum {
 public:
  typedef double Total;
  static constexpr bool kHasZeros = false;
  static constexpr int64_t kBlocks = kRuleBlock / kBlock;

  FASTSAMPLE_INLINE void add(const Power<Pack>& v) {
    for (int i = 0; i < kPack; ++i) {
      Floats& lanes = lanes_[i % kVectors];
      lanes = add_exact_product(v.p.vector[i], v.half.vector[i], lanes);
    }
  }
  double total() const {
    float lanes[kRuleLanes];
    std::memcpy(lanes, lanes_, sizeof lanes);
    return 2.0 * static_cast<double>(sum_of_rule_lanes(lanes));
  }

 private:
  static constexpr int kVectors = kRuleLanes / kLanes;
  Floats lanes_[kVectors] = {};
};

// Each vector of a pack in its own lanes, over a span.
class FastSum {
 public:
  typedef double Total;
  static constexpr bool kHasZeros = false;
  static constexpr int64_t kBlocks = kSpan;

  FASTSAMPLE_INLINE void add(const Power<Pack>& v) { lanes_ = add_exact_product(v.p, v.half, lanes_); }
  double total() const {
    const Floats lanes = (lanes_.vector[0] + lanes_.vector[1]) + (lanes_.vector[2] + lanes_.vector[3]);
    return 2.0 * static_cast<double>(sum_of(lanes));
  }

 private:
  Pack lanes_ = {};
};

// Lanes of float64, over a span.
class WideSum {
 public:
  typedef double Total;
  static constexpr bool kHasZeros = false;
  static constexpr int64_t kBlocks = kSpan;

  FASTSAMPLE_INLINE void add(const Power<Pack>& v) {
    typedef float HalfFloats __attribute__((vector_size(2 * kLanes)));
    for (int i = 0; i < kPack; ++i) {
      const Floats values = v.p.vector[i] * v.half.vector[i];
      HalfFloats halves[2];
      std::memcpy(halves, &values, sizeof halves);
      for (int half = 0; half < 2; ++half) lanes_[half] += __builtin_convertvector(halves[half], Doubles);
    }
  }
  double total() const {
    const Doubles lanes = lanes_[0] + lanes_[1];
    double sum = 0;
    for (int lane = 0; lane < kLanes / 2; ++lane) sum += lanes[lane];
    return 2.0 * sum;
  }

 private:
  typedef double Doubles __attribute__((vector_size(4 * kLanes)));
  Doubles lanes_[2] = {};
};

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
