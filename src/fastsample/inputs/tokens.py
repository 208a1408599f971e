"""Lists of tokens: prompts, outputs, accepted tokens and the tokens of a bias."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.params.validation import at, per_row


def token_list(
    name: str,
    value: Any,
    limit: int,
    row: int | None = None,
    *,
    is_scalar_ok: bool = False,
    skip_marks: bool = False,
) -> NDArray[np.int64]:
    """Check a list of tokens in [0, limit).

    Parameters
    ----------
    name, row
        The argument, and the row or sequence of the list, for messages.
    is_scalar_ok : bool
        Whether one token may be given instead of a list of one.
    skip_marks : bool
        Whether to drop -1, which a marked row has instead of a token.

    Returns
    -------
    int64 array of shape (N,)
        A copy, which another thread cannot change between this check and its use.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"`{name}` must hold lists of integers, got a masked array{at(row)} (pass the tokens "
            "that it does not mask, its `compressed()`)"
        )
    try:
        tokens = np.array(np.asarray(value), ndmin=int(is_scalar_ok))
    except (TypeError, RuntimeError, ValueError) as error:
        raise TypeError(
            f"`{name}` must hold lists of integers, got {type(value).__name__}{at(row)}: {error} "
            "(tokens are columns of `logits`)"
        ) from error
    if tokens.ndim != 1 or (tokens.dtype.kind not in "iu" and tokens.size):
        raise TypeError(
            f"`{name}` must hold lists of integers, got {type(value).__name__} of shape "
            f"{tokens.shape} and dtype {tokens.dtype}{at(row)} (tokens are columns of `logits`)"
        )
    if skip_marks:
        tokens = tokens[tokens != -1]
    if tokens.size and not (tokens.min() >= 0 and tokens.max() < limit):
        token = next(t for t in tokens.tolist() if not 0 <= t < limit)
        raise ValueError(
            f"`{name}` must hold tokens in [0, {limit}), got {token}{at(row)} "
            "(tokens are columns of `logits`)"
        )
    return np.ascontiguousarray(tokens, np.int64)


def is_nested(value: Any) -> bool:
    """Return whether a value is a list of lists, or an array with two axes."""
    return per_row(value) and len(value) > 0 and per_row(value[0])
