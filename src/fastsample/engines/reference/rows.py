"""Sections 1 to 3 of the rule: what a row is, how it is adjusted, and the order of its tokens.

The first of the reference's rooms: `reference` takes these rows to a token, `reference_laws` tells
of the laws behind it. Written to be read beside the rule, and not to be fast.

Float32 results are computed in float64 and then rounded. For one addition, multiplication or
division of two float32 values this gives the bits of the float32 operation, and no denormal float32
is ever met, so processor modes that flush denormals to zero change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

OK, INVALID, EMPTY = 0, 1, 2
"""Status of a row: a token was drawn; it holds NaN or +inf; every logit in it is -inf."""

Scope = Literal["all", "prompt", "output"] | int

# ---------------------------------------------------------------- section 1: input

_EXPONENT = np.uint32(0x7F800000)
_MINUS_INF = np.uint32(0xFF800000)
_SIGN = np.uint32(0x80000000)
_SMALLEST_NORMAL = 2.0**-126
_SMALLEST_DENORMAL = 2.0**-149


def require_rounding_to_nearest() -> None:
    """Raise where the processor rounds up, down or towards zero: another library's doing.

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


def _bits(row: NDArray[np.float32]) -> NDArray[np.uint32]:
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
    bits = _bits(row)
    bits[(bits & _EXPONENT) == 0] = 0
    return bits.view(np.float32)


def is_minus_inf(row: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Tell which logits are -inf.

    Examples
    --------
    >>> is_minus_inf(np.array([1, -np.inf], dtype=np.float32))
    array([False,  True])
    """
    found: NDArray[np.bool_] = _bits(row) == _MINUS_INF
    return found


def status(row: NDArray[np.float32]) -> int:
    """Tell whether a token can be drawn from a row, which is an adjusted one.

    Returns
    -------
    int
        0 when it can; 1, invalid, when the row holds NaN or +inf; 2, empty, when all is -inf.

    Examples
    --------
    >>> [status(np.array([0, x], dtype=np.float32)) for x in (-np.inf, np.inf, np.nan)]
    [0, 1, 1]
    """
    bits = _bits(row)
    is_special = (bits & _EXPONENT) == _EXPONENT
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
    if abs(value) < _SMALLEST_NORMAL:
        return round(value / _SMALLEST_DENORMAL) * _SMALLEST_DENORMAL
    return float(np.float32(value))


# ---------------------------------------------------------------- section 2: adjusting


def _exact(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Widen to float64, denormals too, from their bits."""
    bits = _bits(values)
    tiny = (bits & _EXPONENT) == 0
    size = (bits & ~_SIGN).astype(np.float64) * _SMALLEST_DENORMAL
    denormal = np.where(bits & _SIGN, -size, size)
    return np.where(tiny, denormal, read(values).astype(np.float64))


def _nearest(results: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round each result to float32 and read it as section 1 reads a logit; float64 again."""
    # Half a denormal below the smallest normal rounds up to it, as ties go to even.
    size = np.abs(results)
    normal = np.copysign(np.maximum(size, _SMALLEST_NORMAL), results)
    vanishes = size < _SMALLEST_NORMAL - _SMALLEST_DENORMAL / 2
    return np.where(vanishes, 0.0, normal).astype(np.float32).astype(np.float64)


def _allowed(mask: NDArray[Any], size: int) -> NDArray[np.bool_]:
    """Spread a mask over the row: tokens past its end are banned."""
    if mask.dtype != np.bool_:
        mask = np.unpackbits(mask.astype("<u4").view(np.uint8), bitorder="little")
    allowed = np.zeros(size, dtype=np.bool_)
    covered = min(size, len(mask))
    allowed[:covered] = mask[:covered]
    return allowed


def _counts(
    prompt: Sequence[int], output: Sequence[int], scope: Scope, size: int
) -> NDArray[np.int64]:
    """How often each token of the row is in a scope of its history."""
    if scope == "prompt":
        history = [*prompt]
    elif scope == "output":
        history = [*output]
    else:
        history = [*prompt, *output]
        if scope != "all":
            history = history[max(0, len(history) - scope) :]
    return np.bincount(np.array(history, dtype=np.int64), minlength=size)


def adjust(
    row: NDArray[np.float32],
    *,
    mask: NDArray[Any] | None = None,
    bias: tuple[NDArray[np.int64], NDArray[np.float32]] | None = None,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
    repetition_penalty: float = 1.0,
    frequency_penalty: float = 0.0,
    presence_penalty: float = 0.0,
    repetition_scope: Scope = "all",
    frequency_scope: Scope = "output",
    presence_scope: Scope = "output",
) -> NDArray[np.float32]:
    """Mask, bias and penalise a row, in this order: repetition, frequency, presence.

    Each operation is one of float32, and its result is read as `read` reads a logit. A logit that
    is -inf after the bias stays -inf.

    Parameters
    ----------
    row : float32 array of shape (V,)
    mask : bool array of shape (M,) or uint32 array of shape (W,), or None
        The allowed tokens: True, or bit `t % 32` of word `t // 32` for the token t. The others, and
        all past the mask's end, become -inf.
    bias : (tokens, values) or None
        Distinct tokens (int64) and what to add to their logits (float32).
    prompt, output : sequences of tokens
        The sequence so far, its two parts.
    repetition_penalty : float
        r above 0. A logit x becomes x / r if it is above 0, else x * r: once for every distinct
        token in its scope.
    frequency_penalty : float
        f. A logit loses f times the number of its token in the scope.
    presence_penalty : float
        s. A logit loses s if its token is in the scope.
    repetition_scope, frequency_scope, presence_scope : {"all", "prompt", "output"} or int
        "all" is prompt and output; a number n is the last n tokens of both together.

    Returns
    -------
    float32 array of shape (V,)

    Raises
    ------
    RuntimeError
        When the processor does not round to nearest.

    Examples
    --------
    >>> row = np.array([3.0, -2.0, 1.0, 0.5], dtype=np.float32)
    >>> adjust(row, mask=np.array([True, True, True]), output=[0, 1, 1], repetition_penalty=2.0)
    array([ 1.5, -4. ,  1. , -inf], dtype=float32)
    >>> adjust(row, output=[0, 1, 1], frequency_penalty=0.5, frequency_scope=2)
    array([ 3. , -3. ,  1. ,  0.5], dtype=float32)
    """
    require_rounding_to_nearest()
    size = len(row)
    with np.errstate(all="ignore"):
        x = read(row).astype(np.float64)
        if mask is not None:
            x[~_allowed(mask, size)] = -np.inf
        if bias is not None:
            tokens, values = bias
            x[tokens] = _nearest(x[tokens] + _exact(values))
        out = x == -np.inf

        r = to_float32(repetition_penalty)
        seen = _counts(prompt, output, repetition_scope, size) > 0
        x = np.where(seen, _nearest(np.where(x > 0, x / r, x * r)), x)

        f = to_float32(frequency_penalty)
        count = _counts(prompt, output, frequency_scope, size)
        cost = _nearest(f * count.astype(np.float32).astype(np.float64))
        x = np.where(count > 0, _nearest(x - cost), x)

        s = to_float32(presence_penalty)
        seen = _counts(prompt, output, presence_scope, size) > 0
        x = np.where(seen, _nearest(x - s), x)
    x[out] = -np.inf
    return x.astype(np.float32)


# ---------------------------------------------------------------- section 3: order of tokens


def order(row: NDArray[np.float32]) -> NDArray[np.int64]:
    """Order the tokens of a row: higher logit first, the lower token first where logits are equal.

    The row has no NaN; the result is int64, of the row's shape.

    Examples
    --------
    >>> order(np.array([1.0, 3.0, 3.0, 2.0], dtype=np.float32))
    array([1, 2, 3, 0])
    """
    bits = _bits(read(row))
    # As unsigned integers these keys ascend where the logits descend.
    keys = np.where(bits & _SIGN, bits, ~(bits | _SIGN))
    return np.argsort(keys, kind="stable").astype(np.int64)
