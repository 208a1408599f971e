"""Section 2 of the rule: mask, bias and penalties.

Float32 results are computed in float64 and then rounded. For one addition, multiplication or
division of two float32 values this gives the bits of the float32 operation, and no denormal float32
is ever met, so processor modes that flush denormals to zero change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .rows import (
    EXPONENT_BITS,
    SIGN_BIT,
    SMALLEST_DENORMAL,
    SMALLEST_NORMAL,
    bits_of,
    read,
    require_rounding_to_nearest,
    to_float32,
)

Scope = Literal["all", "prompt", "output"] | int


def _exact(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Widen to float64, denormals too, from their bits."""
    bits = bits_of(values)
    tiny = (bits & EXPONENT_BITS) == 0
    size = (bits & ~SIGN_BIT).astype(np.float64) * SMALLEST_DENORMAL
    denormal = np.where(bits & SIGN_BIT, -size, size)
    return np.where(tiny, denormal, read(values).astype(np.float64))


def _nearest(results: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round each result to float32 and read it as section 1 reads a logit; float64 again."""
    # Half a denormal below the smallest normal rounds up to it, as ties go to even.
    size = np.abs(results)
    normal = np.copysign(np.maximum(size, SMALLEST_NORMAL), results)
    vanishes = size < SMALLEST_NORMAL - SMALLEST_DENORMAL / 2
    return np.where(vanishes, 0.0, normal).astype(np.float32).astype(np.float64)


def _allowed(mask: NDArray[Any], size: int) -> NDArray[np.bool_]:
    """Spread a mask over the row: tokens past its end are banned."""
    if mask.dtype != np.bool_:
        mask = np.unpackbits(mask.astype("<u4").view(np.uint8), bitorder="little")
    allowed = np.zeros(size, dtype=np.bool_)
    covered = min(size, len(mask))
    allowed[:covered] = mask[:covered]
    return allowed


def adjust(
    row: NDArray[np.float32],
    *,
    mask: NDArray[Any] | None = None,
    bias: tuple[NDArray[np.int64], NDArray[np.float32]] | None = None,
    prompt: Sequence[int] | NDArray[np.int64] = (),
    output: Sequence[int] | NDArray[np.int64] = (),
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
        A negative one is not counted, but has its place among the last n.
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
    parts = [np.asarray(tokens, dtype=np.int64) for tokens in (prompt, output)]
    history = np.concatenate(parts)

    def counts(scope: Scope) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The distinct tokens in a scope, and how often each is there."""
        if scope in ("prompt", "output"):
            tokens = parts[scope == "output"]
        else:
            tokens = history if isinstance(scope, str) else history[max(0, len(history) - scope) :]
        return np.unique(tokens[tokens >= 0], return_counts=True)

    with np.errstate(all="ignore"):
        x = read(row).astype(np.float64)
        if mask is not None:
            x[~_allowed(mask, len(row))] = -np.inf
        if bias is not None:
            tokens, values = bias
            x[tokens] = _nearest(x[tokens] + _exact(values))
        counted = history[history >= 0]
        out = counted[x[counted] == -np.inf]

        r = to_float32(repetition_penalty)
        tokens, _ = counts(repetition_scope)
        x[tokens] = _nearest(np.where(x[tokens] > 0, x[tokens] / r, x[tokens] * r))

        f = to_float32(frequency_penalty)
        tokens, count = counts(frequency_scope)
        x[tokens] = _nearest(x[tokens] - _nearest(f * count.astype(np.float32).astype(np.float64)))

        s = to_float32(presence_penalty)
        tokens, _ = counts(presence_scope)
        x[tokens] = _nearest(x[tokens] - s)
    x[out] = -np.inf
    return x.astype(np.float32)
