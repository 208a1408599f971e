"""Section 6 of the rule, as functions that kernels call: random words, and the clocks of a race."""

from __future__ import annotations

import triton
import triton.language as tl

from fastsample.engines.reference.clocks import ROUNDER as _ROUNDER
from fastsample.engines.reference.draw import AFTER_RACE as _AFTER_RACE
from fastsample.engines.reference.draw import ARRIVAL as _ARRIVAL
from fastsample.engines.reference.draw import CLOCK as _CLOCK

from .mass import ln

INVERSE, CLOCK = tl.constexpr(0), tl.constexpr(_CLOCK)
ARRIVAL, AFTER_RACE = tl.constexpr(_ARRIVAL), tl.constexpr(_AFTER_RACE)
_CLOCK_ROUNDER = tl.constexpr(_ROUNDER)


@triton.jit
def words(seed, position, stream, index, purpose: tl.constexpr):
    """w0 + 2^32 w1 and w2 + 2^32 w3 in uint64, for int64 tensors of one shape.

    Seed and position hold bits.
    """
    low, high = position.to(tl.uint32), (position >> 32).to(tl.uint32)
    last = (index * 256 + purpose).to(tl.uint32)
    w0, w1, w2, w3 = tl.philox(seed, low, high, stream.to(tl.uint32), last)
    first = w0.to(tl.uint64) | (w1.to(tl.uint64) << 32)
    return first, w2.to(tl.uint64) | (w3.to(tl.uint64) << 32)


@triton.jit
def uniform(seed, position, stream, purpose: tl.constexpr):
    """U in uint64, for int64 tensors of one shape that hold seed and position as bits."""
    u, _ = words(seed, position, stream, stream * 0, purpose)
    return u


@triton.jit
def clock(k):
    """The clock of a word in uint64: float64."""
    u = ((k >> 12).to(tl.int64).to(tl.float64) + 0.5) * 2.0**-52
    return -ln(u)


@triton.jit
def in_steps(clocks):
    """Clocks rounded to multiples of 2^-32, which add up exactly in any order."""
    return (clocks + _CLOCK_ROUNDER) - _CLOCK_ROUNDER
