// softmax, log_softmax and logsumexp over an entire row, at a temperature, without filters. The normaliser is the
// row's mass in the reduction of the call.
#pragma once

#include "sampling/logprobs.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// Lower than section 4's -64: probabilities keep their relative precision down to 2^-126.
constexpr float kMinNormalExponent2 = -126.0f;

// The float mass of a token whose 2^y is v: section 4's y is at least -64, and the mass of -inf is 0.
FASTSAMPLE_INLINE Power<Pack> mass_power(const Power<Pack>& v, const Pack& y, const Pack& logits) {
  constexpr float kLowestHalf = 0x1p-65f;
  Power<Pack> mass = v;
  for (int i = 0; i < kPack; ++i) {
    const auto above = y.vector[i] >= kMinExponent2;
    mass.p.vector[i] = above ? v.p.vector[i] : fill(1.0f);
    mass.half.vector[i] = above ? v.half.vector[i] : fill(kLowestHalf);
    mass.half.vector[i] = logits.vector[i] >= kLowest ? mass.half.vector[i] : Floats{};
  }
  return mass;
}

// 2^y of each lane; adds the masses to `sum`.
template <class Sum>
FASTSAMPLE_INLINE Pack powers(Scaling scaling, const Pack& logits, Sum& sum) {
  const Pack y = (logits - scaling.top) * scaling.scale;
  const Power<Pack> v = power(larger_negative(y, kMinNormalExponent2));
  sum.add(Sum::kHasZeros ? v : mass_power(v, y, logits));
  return each([&](int i) {
    const Floats power = v.p.vector[i] * doubled(v.half.vector[i]);
    return y.vector[i] >= kMinNormalExponent2 ? power : Floats{};
  });
}

// Writes 2^y of each token; returns the row's total mass.
template <class Sum>
typename Sum::Total write_unscaled(const Row& row, Scaling scaling, float* target) {
  typename Sum::Total total = 0;
  float last[kBlock];
  for (int64_t span = 0; span < spans_of<Sum>(row); ++span) {
    const int64_t after = (span + 1) * Sum::kBlocks;
    const int64_t end = after < row.blocks() ? after : row.blocks();
    Sum sum;
    for (int64_t b = span * Sum::kBlocks; b < end; ++b) {
      float* const place = b < row.full_blocks() ? target + b * kBlock : last;
      row.prefetch(b);
      row.with_block(b, [&](auto logits) __attribute__((always_inline)) {
        for (int64_t i = 0; i < kBlock; i += kPack * kLanes) {
          const Pack v = powers(scaling, each([&](int j) { return logits(i + j * kLanes); }), sum);
          for (int j = 0; j < kPack; ++j) store(place + i + j * kLanes, v.vector[j]);
        }
      });
    }
    total += sum.total();
  }
  const int64_t full = row.full_blocks() * kBlock;
  for (int64_t token = full; token < row.vocabulary(); ++token) target[token] = last[token - full];
  return total;
}

// Writes 2^y of each token; returns the row's mass relative to the top token's.
inline double write_powers(const Row& row, Scaling scaling, Reduction reduction, float* target) {
  switch (reduction) {
    case kFixed: return write_unscaled<FixedSum>(row, scaling, target);
    case kFast: return write_unscaled<FastSum>(row, scaling, target);
    default: return to_float_mass(write_unscaled<SpanMass>(row, scaling, target));
  }
}

inline void write_one_hot(const Row& row, const Workspace& work, float top, float hot, float cold,
                          float* target) {
  // Before anything is written: the target may be the row.
  const int64_t first = first_token(row, work.block_max, top);
  for (int64_t token = 0; token < row.vocabulary(); ++token) target[token] = cold;
  target[first] = hot;
}

Status softmax(const Logits& logits, double temperature, Reduction reduction, Workspace& work, float* target) {
  const Row row(logits, {});
  float top;
  const Status status = scan<false>(row, work, &top);
  if (status != kOk) return status;
  if (static_cast<float>(temperature) == 0.0f) {
    write_one_hot(row, work, top, 1.0f, 0.0f, target);
    return kOk;
  }
  const double weight = write_powers(row, {top, scale_of(temperature)}, reduction, target);
  const float scale = static_cast<float>(1.0 / weight);
  for (int64_t token = 0; token < row.vocabulary(); ++token) target[token] *= scale;
  return kOk;
}

Status log_softmax(const Logits& logits, double temperature, Reduction reduction, Workspace& work,
                   float* target) {
  const Row row(logits, {});
  float top;
  const Status status = scan<false>(row, work, &top);
  if (status != kOk) return status;
  if (static_cast<float>(temperature) == 0.0f) {
    write_one_hot(row, work, top, 0.0f, -kInfinity, target);
    return kOk;
  }
  const Distribution distribution = row_distribution(row, work, top, temperature, reduction);
  for (int64_t b = 0; b < row.blocks(); ++b) {
    const char* block = row.block(b);
    const int64_t first = b * kBlock;
    const int64_t rest = row.vocabulary() - first;
    for (int64_t i = 0; i < (rest < kBlock ? rest : kBlock); ++i) {
      const double gap = static_cast<double>(read(load_one(block + 4 * i))) - top;
      target[first + i] = static_cast<float>(gap / distribution.temperature - distribution.log_total);
    }
  }
  return kOk;
}

Status logsumexp(const Logits& logits, double temperature, Reduction reduction, Workspace& work,
                 double* target) {
  const Row row(logits, {});
  float top;
  const Status status = scan<false>(row, work, &top);
  if (status != kOk) return status;
  const Distribution distribution = row_distribution(row, work, top, temperature, reduction);
  *target = static_cast<double>(top) / distribution.temperature + distribution.log_total;
  return kOk;
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
