// Rule 5 on a candidate set: top_k, top_p, min_p. Each of them keeps the first tokens of rule 3's order,
// so each is a cut, and no candidate is ever sorted.
#pragma once

#include "mass.hpp"
#include "select.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

// Tokens in ascending order, with their masses once they are weighed.
struct Candidates {
  uint64_t* keys;
  uint64_t* masses;
  int64_t count;
};

// Gives all candidates their masses; the total comes back.
inline uint64_t weigh(Candidates& candidates, Law law) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < candidates.count; i += kLanes) {
    const int64_t rest = candidates.count - i;
    const int lanes = rest < kLanes ? static_cast<int>(rest) : kLanes;
    Floats logits = fill(law.top);
    for (int lane = 0; lane < lanes; ++lane) logits[lane] = logit_of(candidates.keys[i + lane]);
    const Masses masses = masses_of(law, logits);
    for (int lane = 0; lane < lanes; ++lane) {
      const uint64_t mass = mass_at(masses, lane);
      candidates.masses[i + lane] = mass;
      sum += mass;
    }
  }
  return sum;
}

// Drops what is below the cut; the total mass of the rest comes back. With `weighed` false the masses are
// not there yet.
inline uint64_t drop_below(Candidates& candidates, uint64_t cut, bool weighed) {
  int64_t left = 0;
  uint64_t sum = 0;
  for (int64_t i = 0; i < candidates.count; ++i) {
    if (candidates.keys[i] < cut) continue;
    candidates.keys[left] = candidates.keys[i];
    if (weighed) {
      candidates.masses[left] = candidates.masses[i];
      sum += candidates.masses[i];
    }
    ++left;
  }
  candidates.count = left;
  return sum;
}

inline void keep_top_k(Candidates& candidates, int64_t k, Workspace& work) {
  if (candidates.count <= k) return;
  std::memcpy(work.keys_left, candidates.keys, static_cast<size_t>(candidates.count) * 8);
  const uint64_t cut =
      cut_among(work.keys_left, ByCount{}, candidates.count, static_cast<uint64_t>(k));
  drop_below(candidates, cut, false);
}

// The mass that a nucleus must reach, of a kept set of this total; 0 where top_p is off.
inline uint64_t nucleus_need(float top_p, uint64_t total) {
  if (top_p >= 1.0f) return 0;
  const int64_t share = static_cast<int64_t>(static_cast<double>(top_p) * 0x1p31) - 1024;
  if (share <= 0) return 1;
  const unsigned __int128 product = static_cast<unsigned __int128>(share) * total;
  return static_cast<uint64_t>((product + 0x7FFFFFFF) >> 31);
}

inline uint64_t keep_nucleus(Candidates& candidates, uint64_t need, Workspace& work) {
  const size_t bytes = static_cast<size_t>(candidates.count) * 8;
  std::memcpy(work.keys_left, candidates.keys, bytes);
  std::memcpy(work.masses_left, candidates.masses, bytes);
  const uint64_t cut =
      cut_among(work.keys_left, ByMass{work.masses_left}, candidates.count, need);
  return drop_below(candidates, cut, true);
}

// The lowest read logit whose exponent reaches y. Exponents rise with the logit, so halving finds it.
inline float lowest_logit(Law law, float y) {
  uint32_t low = ordered(kLowest);
  uint32_t high = ordered(law.top);
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (exponent(law, read(from_ordered(middle))) >= y) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return read(from_ordered(low));
}

// The lowest logit that min_p keeps.
inline float min_p_bound(Law law, float min_p) {
  if (min_p <= 0x1p-60f) return kLowest;
  const double y = natural_log(static_cast<double>(min_p)) * kLog2E - 0x1p-19;
  return lowest_logit(law, static_cast<float>(y));
}

// A logit below which all tokens together weigh less than `spare`: a nucleus that may leave `spare` out
// lies above it. Masses of lower logits exceed 2^(y + 40) by an ulp at most, hence the halving.
inline float nucleus_bound(Law law, uint64_t spare, int64_t vocabulary) {
  const uint64_t each = spare / static_cast<uint64_t>(vocabulary) / 2;
  const float y = each == 0 ? kZeroExponent : static_cast<float>(23 - __builtin_clzll(each));
  return lowest_logit(law, y);
}

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
