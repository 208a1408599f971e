"""The three reductions of the rule's section 8 over plain numbers, in NumPy: what `reduce_sum` is.

The compiled sums are held to `exact` and `fixed` bit for bit, and `reduce_sum` takes these where
there is no extension. Each takes a flat array of any dtype that `reduce_sum` does, and bfloat16 as
uint16. `exact` adds integers, so processor modes that flush denormals to zero change nothing; the
other two need the default mode.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .reductions import BLOCK, block_totals
from .rows import widen

SCALE = 1_074
"""The smallest float64 above 0 is 2**-1074: every finite one is a whole number of these."""

_INFINITY = 0x7FF << 52

# As many halves of a significand, below 2**27 each, add up in float64 without rounding.
_AT_ONCE = 2**20


class _Format(NamedTuple):
    """Widths of a dtype's fields, and the exponent of the smallest number above 0."""

    bits: Any
    exponent: int
    fraction: int
    least: int


_FORMATS = {
    "e": _Format(np.uint16, 5, 10, -24),
    "H": _Format(np.uint16, 8, 7, -133),
    "f": _Format(np.uint32, 8, 23, -149),
    "d": _Format(np.uint64, 11, 52, -1074),
}


def exact(values: NDArray[Any]) -> float:
    """Sum numbers as if nothing were ever rounded, and round once, to the nearest float64.

    Examples
    --------
    >>> exact(np.array([1e300, 1.0, -1e300, 2.0**-1074]))
    1.0
    """
    form = _FORMATS[values.dtype.char]
    total, special = 0, 0.0
    for first in range(0, values.size, _AT_ONCE):
        part = values[first : first + _AT_ONCE]
        bits = np.ascontiguousarray(part).view(form.bits).astype(np.uint64)
        field = bits >> np.uint64(form.fraction) & np.uint64(2**form.exponent - 1)
        is_finite = field != 2**form.exponent - 1
        total += _total(bits[is_finite], field[is_finite].astype(np.int64), form)
        special += _special(bits[~is_finite], form)
    return one_nan(special) if special != 0.0 else rounded(total << (SCALE + form.least))


def _total(bits: NDArray[np.uint64], field: NDArray[np.int64], form: _Format) -> int:
    """Sum finite numbers, in units of the smallest one above 0: each half of each exponent."""
    half = form.fraction // 2
    size = bits & np.uint64(2**form.fraction - 1)
    size |= (field > 0).astype(np.uint64) << np.uint64(form.fraction)
    is_negative = bits >> np.uint64(form.exponent + form.fraction) != 0
    total = 0
    for part, place in ((size & np.uint64(2**half - 1), 0), (size >> np.uint64(half), half)):
        weights = np.where(is_negative, -part.astype(np.float64), part.astype(np.float64))
        sums = np.bincount(field, weights=weights)
        for exponent in np.flatnonzero(sums):
            total += int(sums[exponent]) << (place + max(0, int(exponent) - 1))
    return total


def _special(bits: NDArray[np.uint64], form: _Format) -> float:
    """Sum infinities and NaNs as IEEE addition does; 0 where there are none."""
    if not bits.size:
        return 0.0
    if np.any(bits & np.uint64(2**form.fraction - 1)):
        return math.nan
    is_negative = bits >> np.uint64(form.exponent + form.fraction) != 0
    if is_negative.all() or not is_negative.any():
        return -math.inf if is_negative[0] else math.inf
    return math.nan


def rounded(total: int) -> float:
    """Round a whole number of 2**-1074 to the nearest float64, ties to even; past the last, inf.

    Examples
    --------
    >>> rounded(3), rounded(-(2**2100))
    (1.5e-323, -inf)
    """
    size = abs(total)
    shift = max(0, size.bit_length() - 53)
    kept, rest = size >> shift, size & (2**shift - 1)
    kept += 2 * rest + (kept & 1) > 2**shift
    bits = min((shift << 52) + kept, _INFINITY) | (total < 0) << 63
    number: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return number


def one_nan(total: float) -> float:
    """Return a sum, any NaN as `math.nan`: processors differ in the sign and payload of theirs."""
    return math.nan if math.isnan(total) else total


def fixed(values: NDArray[Any]) -> float:
    """Sum numbers in section 8's fixed order: float32 (float64 for float64), blocks in float64.

    Examples
    --------
    >>> fixed(np.array([1e8, 1.0, -1e8], dtype=np.float32))
    1.0
    """
    numbers = _wide(values)
    padded = np.zeros(-(-numbers.size // BLOCK) * BLOCK, numbers.dtype)
    padded[: numbers.size] = numbers
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for block in block_totals(padded.reshape(-1, BLOCK)).astype(np.float64).tolist():
            total += block
    return one_nan(total)


def fast(values: NDArray[Any]) -> float:
    """Sum numbers as NumPy does: in pairs, in float32 (float64 for float64).

    Examples
    --------
    >>> fast(np.array([0.5, 0.25], dtype=np.float16))
    0.75
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return one_nan(float(np.add.reduce(_wide(values))))


def _wide(values: NDArray[Any]) -> NDArray[Any]:
    return values if values.dtype.char == "d" else widen(values)


SUMS: dict[str, Callable[[NDArray[Any]], float]] = {"exact": exact, "fixed": fixed, "fast": fast}
"""Every reduction by its name."""
