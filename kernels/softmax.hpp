// Softmax, its logarithm and its normaliser over a whole row, at a temperature and with no filter. The
// normaliser is the exact integer mass of rule 4.
#pragma once

#include "report.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// Lower than rule 4's -64, where masses end: probabilities keep their relative precision down to 2^-126.
constexpr float kLowestNormalExponent = -126.0f;

// 2^y; its mass goes into `mass` on the way.
inline Pack powers(Law law, const Pack& logits, SpanMass& mass) {
  const Pack y = (logits - law.top) * law.scale;
  const Power<Pack> v = power(larger_negative(y, kLowestNormalExponent));
  mass.add(v);
  return each([&](int i) {
    const Floats whole = v.p.vector[i] * doubled(v.half.vector[i]);
    return y.vector[i] >= kLowestNormalExponent ? whole : Floats{};
  });
}

// Returns the row's total mass.
inline uint64_t write_unscaled(const Row& row, Law law, float* target) {
  uint64_t total = 0;
  float last[kBlock];
  for (int64_t b = 0; b < row.blocks(); ++b) {
    float* const place = b < row.full_blocks() ? target + b * kBlock : last;
    row.prefetch(b);
    total += row.with_block(b, [&](auto logits) __attribute__((always_inline)) {
      SpanMass mass;
      for (int64_t i = 0; i < kBlock; i += kPack * kLanes) {
        const Pack v = powers(law, each([&](int j) { return logits(i + j * kLanes); }), mass);
        for (int j = 0; j < kPack; ++j) store(place + i + j * kLanes, v.vector[j]);
      }
      return mass.total();
    });
  }
  const int64_t full = row.full_blocks() * kBlock;
  for (int64_t token = full; token < row.vocabulary(); ++token) target[token] = last[token - full];
  return total;
}

inline void write_one_hot(const Row& row, const Workspace& work, float top, float hot, float cold,
                          float* target) {
  // Found first: the target may be the row.
  const int64_t first = first_token(row, work.best, top);
  for (int64_t token = 0; token < row.vocabulary(); ++token) target[token] = cold;
  target[first] = hot;
}

Status softmax(const Logits& logits, double temperature, Workspace& work, float* target) {
  const Row row(logits, {});
  float top;
  const Status status = scan<false>(row, work, &top);
  if (status != kOk) return status;
  if (static_cast<float>(temperature) == 0.0f) {
    write_one_hot(row, work, top, 1.0f, 0.0f, target);
    return kOk;
  }
  const uint64_t total = write_unscaled(row, {top, scale_of(temperature)}, target);
  const float scale = static_cast<float>(0x1p40 / static_cast<double>(total));
  for (int64_t token = 0; token < row.vocabulary(); ++token) target[token] *= scale;
  return kOk;
}

Status log_softmax(const Logits& logits, double temperature, Workspace& work, float* target) {
  const Row row(logits, {});
  float top;
  const Status status = scan<false>(row, work, &top);
  if (status != kOk) return status;
  if (static_cast<float>(temperature) == 0.0f) {
    write_one_hot(row, work, top, 0.0f, -kInfinity, target);
    return kOk;
  }
  const Told told = whole_law(row, work, top, temperature);
  for (int64_t b = 0; b < row.blocks(); ++b) {
    const char* block = row.block(b);
    const int64_t first = b * kBlock;
    const int64_t rest = row.vocabulary() - first;
    for (int64_t i = 0; i < (rest < kBlock ? rest : kBlock); ++i) {
      const double gap = static_cast<double>(read(load_one(block + 4 * i))) - top;
      target[first + i] = static_cast<float>(gap / told.temperature - told.log_total);
    }
  }
  return kOk;
}

Status logsumexp(const Logits& logits, double temperature, Workspace& work, double* target) {
  const Row row(logits, {});
  float top;
  const Status status = scan<false>(row, work, &top);
  if (status != kOk) return status;
  const Told told = whole_law(row, work, top, temperature);
  *target = static_cast<double>(top) / told.temperature + told.log_total;
  return kOk;
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
