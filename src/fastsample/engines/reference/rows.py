"""Section 1 of the rule: how a row and its parameters are read, and the status of a row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

OK, INVALID, EMPTY = 0, 1, 2
"""Status of a row: a token was drawn; it holds NaN or +inf; every logit in it is -inf."""

EXPONENT_BITS = np.uint32(0x7F800000)
_MINUS_INF = np.uint32(0xFF800000)
SIGN_BIT = np.uint32(0x80000000)
SMALLEST_NORMAL = 2.0**-126
SMALLEST_DENORMAL = 2.0**-149


def require_rounding_to_nearest() -> None:
    """Raise where another library has set the processor to round up, down or towards zero.

    Examples
    --------
    >>> require_rounding_to_nearest()
    """
    one, half_step, odd = np.float32(1), np.float32(2**-24), np.float32(1 + 2**-23)
    even = np.float32(1 + 2**-22)
    if one + half_step != one or -one - half_step != -one or odd + half_step != even:
        raise RuntimeError(
            "the processor must round to nearest, ties to even, and was set to round otherwise "
            "(undo what some library did with fesetround, or use the native engine)"
        )


def bits_of(row: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Copy the bits of a row."""
    return np.array(row, dtype=np.float32, order="C").view(np.uint32)


def widen(row: NDArray[Any]) -> NDArray[np.float32]:
    """Widen a row of any dtype that has logits to float32, exactly.

    Parameters
    ----------
    row : array of shape (V,)
        float32; float16; or uint16, which holds the bits of bfloat16.

    Examples
    --------
    >>> widen(np.array([0x3FC0, 0xFF80], dtype=np.uint16)), widen(np.array([0.5], dtype=np.float16))
    (array([ 1.5, -inf], dtype=float32), array([0.5], dtype=float32))
    """
    wide: NDArray[np.float32]
    if row.dtype == np.uint16:
        wide = (row.astype(np.uint32) << np.uint32(16)).view(np.float32)
    else:
        wide = row.astype(np.float32)
    return wide


def read(row: NDArray[np.float32]) -> NDArray[np.float32]:
    """Copy a row, with every logit whose exponent field is 0 (denormal, -0) read as +0.

    The row has shape (V,), any stride and any alignment; it does not change.

    Examples
    --------
    >>> read(np.array([-0.0, 1e-40, 2.5], dtype=np.float32))
    array([0. , 0. , 2.5], dtype=float32)
    """
    bits = bits_of(row)
    bits[(bits & EXPONENT_BITS) == 0] = 0
    return bits.view(np.float32)


def is_minus_inf(row: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Mark the logits that are -inf.

    Examples
    --------
    >>> is_minus_inf(np.array([1, -np.inf], dtype=np.float32))
    array([False,  True])
    """
    found: NDArray[np.bool_] = bits_of(row) == _MINUS_INF
    return found


def status(row: NDArray[np.float32]) -> int:
    """Return whether a token can be drawn from a row, to which section 2 has been applied.

    Returns
    -------
    int
        0 when it can; 1, invalid, when the row holds NaN or +inf; 2, empty, when all is -inf.

    Examples
    --------
    >>> [status(np.array([0, x], dtype=np.float32)) for x in (-np.inf, np.inf, np.nan)]
    [0, 1, 1]
    """
    bits = bits_of(row)
    is_special = (bits & EXPONENT_BITS) == EXPONENT_BITS
    if np.any(is_special & (bits != _MINUS_INF)):
        return INVALID
    return EMPTY if np.all(bits == _MINUS_INF) else OK


def to_float32(value: float) -> float:
    """Round a parameter to the nearest float32, ties to even, and widen it again.

    A denormal result is rounded on integers: the processor's own conversion would flush it.

    Examples
    --------
    >>> to_float32(0.8)
    0.800000011920929
    >>> to_float32(1e-50)
    0.0
    """
    value = float(value)
    if abs(value) < SMALLEST_NORMAL:
        return round(value / SMALLEST_DENORMAL) * SMALLEST_DENORMAL
    return float(np.float32(value))
