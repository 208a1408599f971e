// A row as blocks of 128 adjacent float32 logits, for any dtype, stride and logits processors. Plain float32 blocks
// are read in the caller's memory; any other block is built when it is read.
#pragma once

#include "sampling/penalised.hpp"

namespace fastsample {
namespace FASTSAMPLE_ISA {
namespace {

inline float load_one(const char* source) {
  float logit;
  std::memcpy(&logit, source, sizeof logit);
  return logit;
}

// ---- widening: exact -----------------------------------------------------------------------------------

// Intrinsics where GCC widens half a vector at a time, or uses several instructions in place of one.

inline Floats widen_bfloat16(const char* source) {
#if defined(__AVX512F__)
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
  return (Floats)((Uints)_mm512_maskz_cvtepu16_epi32(0xFFFF, halves) << 16);
#elif defined(__AVX2__)
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
  return (Floats)((Uints)_mm256_cvtepu16_epi32(halves) << 16);
#elif defined(__SSE2__)
  const __m128i halves = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(source));
  return (Floats)_mm_unpacklo_epi16(_mm_setzero_si128(), halves);
#else
  typedef uint16_t Halves __attribute__((vector_size(2 * kLanes)));
  Halves halves;
  std::memcpy(&halves, source, sizeof halves);
  return (Floats)(__builtin_convertvector(halves, Uints) << 16);
#endif
}

inline Floats widen_float16(const char* source) {
#if defined(__AVX512F__)
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
  return (Floats)_mm512_maskz_cvtph_ps(0xFFFF, halves);
#elif defined(__AVX2__) && defined(__F16C__)
  return (Floats)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source)));
#elif defined(__aarch64__)
  uint16x4_t halves;
  std::memcpy(&halves, source, sizeof halves);
  return (Floats)vcvt_f32_f16(vreinterpret_f16_u16(halves));
#else
  const Ints bits = (Ints)widen_bfloat16(source);
  const Ints size = (bits & 0x7FFF0000) >> 3;
  // The product corrects the exponent, also of float16's denormals; infinity and NaN are restored.
  const Ints finite = (Ints)((Floats)size * 0x1p112f);
  const Ints special = size >= 0x0F800000;
  return (Floats)(finite | (special & 0x7F800000) | (bits & static_cast<int32_t>(0x80000000)));
#endif
}

// ---- rows ----------------------------------------------------------------------------------------------

// How many bytes ahead the second-level cache is filled in a pass over a row. Measured best among distances from
// 512 bytes to 8 KB and both cache levels, on rows in the third-level cache and in memory.
constexpr int64_t kPrefetch = 6144;
constexpr int kSecondLevel = 2;

class Row {
 public:
  Row(const Logits& logits, const RowProcessors& processors)
      : logits_(logits),
        processors_(processors),
        blocks_((logits.vocabulary + kBlock - 1) / kBlock),
        plain_blocks_(0),
        half_blocks_(0),
        masked_blocks_(0),
        has_processors_(processors.allowed || processors.allowed_bits || processors.bias_start ||
                        processors.penalties) {
    const bool masked = processors.allowed || processors.allowed_bits;
    const bool plain = logits.dtype == kFloat32 && logits.step == 4;
    if (plain && !masked) plain_blocks_ = full_blocks();
    if (plain && masked) masked_blocks_ = processors.allowed_count / kBlock;
    if (logits.dtype != kFloat32 && logits.step == 2 && !masked) half_blocks_ = full_blocks();
  }

  int64_t blocks() const { return blocks_; }
  int64_t vocabulary() const { return logits_.vocabulary; }
  int64_t full_blocks() const { return logits_.vocabulary / kBlock; }
  bool has_processors() const { return has_processors_; }

  // 128 float32 logits, -inf past the row's end; valid until the next call.
  const char* block(int64_t b) const {
    return b < plain_blocks_ && !has_edits(b) ? logits_.data + b * (kBlock * 4) : build(b);
  }

  // Calls use(load), where load(i) is a vector of the block's logits from its i-th on; returns what `use`
  // returns. load(i) widens two-byte logits and applies a mask: building the block first takes at least a third
  // longer.
  template <class Use>
  __attribute__((always_inline)) auto with_block(int64_t b, Use use) const {
    if (b < half_blocks_ && !has_edits(b)) {
      const char* halves = logits_.data + b * (kBlock * 2);
      if (logits_.dtype == kFloat16) {
        return use([=](int64_t i) { return widen_float16(halves + 2 * i); });
      }
      return use([=](int64_t i) { return widen_bfloat16(halves + 2 * i); });
    }
    if (b < masked_blocks_ && !has_edits(b)) {
      const int64_t first = b * kBlock;
      return use([=](int64_t i) { return masked(load(logits_.data + 4 * (first + i)), first + i); });
    }
    const char* floats = block(b);
    return use([=](int64_t i) { return load(floats + 4 * i); });
  }

  // Calls pass(load, size), where load(token) is a vector of the logits from a token on, in full blocks, and `size` the
  // bytes of each in the caller's memory; false where not all full blocks are read in one way. A pass over all blocks
  // is a third quicker if the choice of how to read is not made for each of them.
  template <class Pass>
  __attribute__((always_inline)) bool read_alike(Pass pass) const {
    const char* data = logits_.data;
    if (processors_.bias_start || processors_.penalties) return false;
    if (plain_blocks_ == full_blocks()) {
      pass([=](int64_t token) __attribute__((always_inline)) { return load(data + 4 * token); }, 4);
    } else if (half_blocks_ == full_blocks() && logits_.dtype == kFloat16) {
      pass([=](int64_t token) __attribute__((always_inline)) { return widen_float16(data + 2 * token); }, 2);
    } else if (half_blocks_ == full_blocks()) {
      pass([=](int64_t token) __attribute__((always_inline)) { return widen_bfloat16(data + 2 * token); }, 2);
    } else if (masked_blocks_ >= full_blocks()) {
      pass([=](int64_t token) __attribute__((always_inline)) { return masked(load(data + 4 * token), token); },
           4);
    } else {
      return false;
    }
    return true;
  }

  float logit(int64_t token) const { return read(load_one(block(token / kBlock) + 4 * (token % kBlock))); }

  // The unread logits of some tokens, -inf past the row's end.
  FASTSAMPLE_INLINE Floats logits_at(Uints tokens) const {
    const bool is_dense = !has_processors_ && logits_.step == (logits_.dtype == kFloat32 ? 4 : 2);
    if (is_dense) return logits_.dtype == kFloat32 ? gather(tokens) : gather_halves(tokens);
    Floats logits;
    for (int lane = 0; lane < kLanes; ++lane) logits[lane] = unread_logit(tokens[lane]);
    return logits;
  }

  // Prefetches `bytes` that are kAhead bytes after this place in the row, into the first-level cache.
  __attribute__((always_inline)) void prefetch_ahead(int64_t place, int64_t bytes) const {
    constexpr int64_t kAhead = 4096;
    for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(logits_.data + place + kAhead + byte);
  }

  // Prefetch what is kPrefetch bytes after block b, for a pass over the row; or block b itself.
  __attribute__((always_inline)) void prefetch(int64_t b) const {
    const char* start = logits_.data + kPrefetch;
    logits_.dtype == kFloat32 ? prefetch_bytes<kBlock * 4>(start, b) : prefetch_bytes<kBlock * 2>(start, b);
  }
  __attribute__((always_inline)) void prefetch_block(int64_t b) const {
    logits_.dtype == kFloat32 ? prefetch_bytes<kBlock * 4>(logits_.data, b)
                              : prefetch_bytes<kBlock * 2>(logits_.data, b);
  }

 private:
  // Always inlined: GCC drops calls of a function that only prefetches, as one without effect.
  template <int64_t kBytes>
  __attribute__((always_inline)) void prefetch_bytes(const char* start, int64_t b) const {
    for (int64_t byte = 0; byte < kBytes; byte += 64) {
      __builtin_prefetch(start + b * kBytes + byte, 0, kSecondLevel);
    }
  }

  Floats gather(Uints tokens) const {
    const uint32_t size = static_cast<uint32_t>(logits_.vocabulary);
#if defined(__AVX512F__)
    const __mmask16 inside = _mm512_cmplt_epu32_mask((__m512i)tokens, (__m512i)(size - Uints{}));
    return (Floats)_mm512_mask_i32gather_ps((__m512)fill(-kInfinity), inside, (__m512i)tokens, logits_.data, 4);
#elif defined(__AVX2__)
    const Ints inside = tokens < size;
    return (Floats)_mm256_mask_i32gather_ps((__m256)fill(-kInfinity),
                                            reinterpret_cast<const float*>(logits_.data), (__m256i)tokens,
                                            (__m256)inside, 4);
#else
    Floats logits;
    for (int lane = 0; lane < kLanes; ++lane) {
      logits[lane] = tokens[lane] < size ? load_one(logits_.data + 4 * int64_t{tokens[lane]}) : -kInfinity;
    }
    return logits;
#endif
  }

  Floats gather_halves(Uints tokens) const {
    const uint32_t size = static_cast<uint32_t>(logits_.vocabulary);
    const uint16_t minus_infinity = logits_.dtype == kFloat16 ? 0xFC00 : 0xFF80;
    uint16_t halves[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      halves[lane] = minus_infinity;
      if (tokens[lane] < size) std::memcpy(halves + lane, logits_.data + 2 * int64_t{tokens[lane]}, 2);
    }
    const char* source = reinterpret_cast<const char*>(halves);
    return logits_.dtype == kFloat16 ? widen_float16(source) : widen_bfloat16(source);
  }

  // One logit, without building its block unless the block has edits.
  float unread_logit(int64_t token) const {
    if (token >= logits_.vocabulary) return -kInfinity;
    if (has_edits(token / kBlock)) return load_one(build(token / kBlock) + 4 * (token % kBlock));
    const bool masked = processors_.allowed || processors_.allowed_bits;
    if (masked && !is_allowed(token)) return -kInfinity;
    const char* source = logits_.data + token * logits_.step;
    if (logits_.dtype == kFloat32) return load_one(source);
    char halves[2 * kLanes] = {};
    std::memcpy(halves, source, 2);
    return logits_.dtype == kFloat16 ? widen_float16(halves)[0] : widen_bfloat16(halves)[0];
  }

  bool has_edits(int64_t b) const { return has_processors_ && FASTSAMPLE_ISA::has_edits(processors_, b); }

  // Not inlined, so that the loops over blocks keep their constants in registers.
  __attribute__((noinline)) const char* build(int64_t b) const {
    const int64_t first = b * kBlock;
    const int64_t rest = logits_.vocabulary - first;
    if (b < plain_blocks_ && !has_biases(processors_, b)) {
      penalise(*processors_.penalties, b, logits_.data + 4 * first, buffer_);
    } else {
      widen(first, rest < kBlock ? rest : kBlock);
      if (has_processors_) apply_processors(b);
    }
    return reinterpret_cast<const char*>(buffer_);
  }

  void widen(int64_t first, int64_t count) const {
    const char* source = logits_.data + first * logits_.step;
    if (logits_.dtype != kFloat32) {
      widen_halves(source, count);
    } else if (logits_.step == 4) {
      std::memcpy(buffer_, source, static_cast<size_t>(4 * count));
    } else {
      for (int64_t i = 0; i < count; ++i) buffer_[i] = load_one(source + i * logits_.step);
    }
    for (int64_t i = count; i < kBlock; ++i) buffer_[i] = -kInfinity;
  }

  void widen_halves(const char* source, int64_t count) const {
    char gathered[2 * kBlock] = {};
    if (count < kBlock || logits_.step != 2) {
      for (int64_t i = 0; i < count; ++i) std::memcpy(gathered + 2 * i, source + i * logits_.step, 2);
      source = gathered;
    }
    for (int64_t i = 0; i < kBlock; i += kLanes) {
      store(buffer_ + i,
            logits_.dtype == kFloat16 ? widen_float16(source + 2 * i) : widen_bfloat16(source + 2 * i));
    }
  }

  void apply_processors(int64_t b) const {
    const RowProcessors& a = processors_;
    const int64_t first = b * kBlock;
    if (a.allowed || a.allowed_bits) {
      if (first + kBlock <= a.allowed_count) {
        mask_lanes(first);
      } else {
        for (int64_t i = 0; i < kBlock; ++i) buffer_[i] = is_allowed(first + i) ? buffer_[i] : -kInfinity;
      }
    }
    if (has_biases(a, b)) add_biases(a, b, buffer_);
    if (a.penalties) penalise(*a.penalties, b, reinterpret_cast<const char*>(buffer_), buffer_);
  }

  void mask_lanes(int64_t first) const {
    for (int64_t i = 0; i < kBlock; i += kLanes) store(buffer_ + i, masked(load(buffer_ + i), first + i));
  }

  // A vector of logits that starts at this token, -inf where the mask bans them.
  Floats masked(Floats logits, int64_t token) const {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    __mmask16 allowed;
    if (processors_.allowed) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(processors_.allowed + token));
      allowed = _mm_test_epi8_mask(bytes, bytes);
    } else {
      std::memcpy(&allowed, processors_.allowed_bits + token / 8, 2);
    }
    return (Floats)_mm512_mask_mov_ps((__m512)fill(-kInfinity), allowed, (__m512)logits);
#else
    const Ints allowed = processors_.allowed ? allowed_bytes(processors_.allowed + token)
                                             : allowed_bits(processors_.allowed_bits, token);
    return allowed != 0 ? logits : fill(-kInfinity);
#endif
  }

  static Ints allowed_bytes(const uint8_t* allowed) {
    typedef uint8_t Bytes __attribute__((vector_size(kLanes)));
    Bytes bytes;
    std::memcpy(&bytes, allowed, sizeof bytes);
    return __builtin_convertvector(bytes, Ints);
  }

  static Ints allowed_bits(const char* bits, int64_t token) {
    int32_t lanes = 0;
    std::memcpy(&lanes, bits + token / 8, (kLanes + 7) / 8);
    Ints weights;
    for (int lane = 0; lane < kLanes; ++lane) weights[lane] = 1 << lane;
    return ((lanes >> token % 8) - Ints{}) & weights;
  }

  bool is_allowed(int64_t token) const {
    if (token >= processors_.allowed_count) return false;
    if (processors_.allowed) return processors_.allowed[token] != 0;
    return static_cast<uint8_t>(processors_.allowed_bits[token / 8]) >> (token % 8) & 1;
  }

  Logits logits_;
  RowProcessors processors_;
  int64_t blocks_;
  int64_t plain_blocks_;  // so many blocks are read in the caller's memory, unless they have edits
  int64_t half_blocks_;  // so many are only widened, unless they have edits
  int64_t masked_blocks_;  // so many are only masked, unless they have edits
  bool has_processors_;
  alignas(64) mutable float buffer_[kBlock];
};

}  // namespace
}  // namespace FASTSAMPLE_ISA
}  // namespace fastsample
