// Whether this processor, under this system, can run an instruction set.
#pragma once

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
#endif

}  // namespace fastsample
