// Every instruction set that the kernels are compiled for, one line each, the least demanding first within an
// architecture. setup.py reads the lines too: each must match its pattern.
#pragma once

#include "simd/cpu.hpp"

// X(architecture, namespace, name, compiler flags, can this processor run it?)
#define FASTSAMPLE_ISA_LIST(X)                                                              \
  X(any, baseline, "baseline", "", runs_anywhere)                                           \
  X(x86_64, x86_v3, "x86-64-v3", "-march=x86-64-v3", runs_x86_v3)                           \
  X(x86_64, x86_v4, "x86-64-v4", "-march=x86-64-v4 -mprefer-vector-width=512", runs_x86_v4) \
  X(aarch64, neon, "neon", "", runs_anywhere)

// FASTSAMPLE_IF_<architecture>(tokens): the tokens where the build is for this architecture, nothing elsewhere.
#define FASTSAMPLE_IF_any(...) __VA_ARGS__
#if defined(__x86_64__)
#define FASTSAMPLE_IF_x86_64(...) __VA_ARGS__
#else
#define FASTSAMPLE_IF_x86_64(...)
#endif
#if defined(__aarch64__)
#define FASTSAMPLE_IF_aarch64(...) __VA_ARGS__
#else
#define FASTSAMPLE_IF_aarch64(...)
#endif
