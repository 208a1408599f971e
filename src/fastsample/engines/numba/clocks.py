"""Section 6 in loops: the clocks of tokens and of arrivals, and section 7's logarithm."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines.reference.clocks import ROUNDER
from fastsample.engines.reference.draw import ARRIVAL, CLOCK
from fastsample.engines.reference.mass import LN2_HIGH, LN2_LOW, LOGARITHM, SQRT_HALF_BITS

from . import compiled
from .draw import words

_G0, _G1, _G2, _G3, _G4, _G5, _G6 = LOGARITHM
_BITS_OF_ONE = 0x3FF0000000000000
_FRACTION = 2**52 - 1
_TOP_BITS, _BITS_OF_ONE_UNSIGNED = np.uint64(12), np.uint64(_BITS_OF_ONE)
_ALMOST_ONE = 1 - 2.0**-53


@compiled
def _ln(z: Any) -> Any:
    """Natural logarithm of a positive normal float64, each operation rounded on its own."""
    a = np.float64(z).view(np.int64) + np.int64(_BITS_OF_ONE - SQRT_HALF_BITS)
    e = np.float64(np.int32((a >> 52) - 1023))
    f = np.int64((a & _FRACTION) + SQRT_HALF_BITS).view(np.float64) - 1.0
    q = f / (2.0 + f)
    w = q * q
    v = w * w
    r = w * (_G0 + v * (_G2 + v * (_G4 + v * _G6))) + v * (_G1 + v * (_G3 + v * _G5))
    h = (0.5 * f) * f
    return e * LN2_HIGH - ((h - (q * (h + r) + e * LN2_LOW)) - f)


@compiled
def clock_of(k: Any) -> Any:
    """Clock of a random word, whose first 52 bits are read as the fraction of a float64."""
    u = np.uint64((k >> _TOP_BITS) | _BITS_OF_ONE_UNSIGNED).view(np.float64) - _ALMOST_ONE
    return -_ln(u)


@compiled
def clock_of_token(place: Any, token: Any) -> Any:
    """Clock of a token in the draw at (seed, position, stream)."""
    seed, position, stream = place
    k, _ = words(seed, position, stream, np.uint64(CLOCK + (token << 8)))
    return clock_of(k)


@compiled
def write_arrivals(
    place: Any, first: int, steps: NDArray[np.float64], points: NDArray[np.uint64]
) -> None:
    """Write the clocks and the points of arrivals, the clocks in steps of 2^-32."""
    seed, position, stream = place
    k = steps.view(np.uint64)
    for i in range(len(steps)):
        last = np.uint64(ARRIVAL + ((first + i) << 8))
        k[i], points[i] = words(seed, position, stream, last)
    for i in range(len(steps)):  # apart from the words, so that it is compiled to vectors
        steps[i] = (clock_of(k[i]) + ROUNDER) - ROUNDER
