// What this processor, under this system, can run, and how it reads rows fastest.
#pragma once

#include <cstring>

#include "runtime/types.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace fastsample {

inline bool runs_anywhere() { return true; }

#if defined(__x86_64__)
// Is a bit of ECX set? __builtin_cpu_supports does not know every feature in Clang 14 to 16.
inline bool cpuid_ecx(unsigned leaf, int bit) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(leaf, &eax, &ebx, &ecx, &edx) && (ecx >> bit & 1);
}

// "avx2" includes that the system saves the registers, which f16c needs too.
inline bool runs_x86_v3() {
  const bool has_f16c = cpuid_ecx(1, 29), has_movbe = cpuid_ecx(1, 22), has_lzcnt = cpuid_ecx(0x80000001, 5);
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
         __builtin_cpu_supports("fma") && __builtin_cpu_supports("popcnt") && has_f16c && has_movbe &&
         has_lzcnt;
}

inline bool runs_x86_v4() {
  return runs_x86_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

// Processors of one vendor, from a family on, and how a first pass is fastest on them.
struct ProcessorReading {
  char vendor[13];
  unsigned family;
  Reading reading;
};

// Measured: AMD's Zen 4 (family 25), where prefetching adds a fifth, and Zen 5 (26), where it saves a tenth. On an Intel
// Xeon prefetching halved the time of a mass pass. Of those that fit, the last one counts; benches/reading.py measures.
constexpr ProcessorReading kReadings[] = {
    {"AuthenticAMD", 0, Reading::kStreams},
    {"AuthenticAMD", 26, Reading::kAhead},
    {"GenuineIntel", 0, Reading::kAhead},
};

inline Reading preferred_reading() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid(0, &eax, &ebx, &ecx, &edx)) return Reading::kStreams;
  const unsigned vendor[3] = {ebx, edx, ecx};
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return Reading::kStreams;
  const unsigned base = eax >> 8 & 15;
  const unsigned family = base == 15 ? base + (eax >> 20 & 255) : base;
  Reading reading = Reading::kStreams;
  for (const ProcessorReading& entry : kReadings) {
    if (std::memcmp(entry.vendor, vendor, sizeof vendor) == 0 && family >= entry.family)
      reading = entry.reading;
  }
  return reading;
}
#else
inline Reading preferred_reading() { return Reading::kStreams; }
#endif

}  // namespace fastsample
