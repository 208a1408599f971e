"""Lists of tokens: prompts, outputs, accepted tokens and the tokens of a bias."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.params.foreign import at, host_array
from fastsample.params.ignored_tokens import (
    LEAST_TOKEN,
    MOST_TOKENS,
    NONE_IGNORED,
    IgnoredTokens,
)
from fastsample.params.validation import per_row

_INTEGERS = "pass integers: tokens are columns of `logits`"
_ONE_TOKEN = "pass a list, [0] for one token 0: tokens are columns of `logits`"

IGNORED = -2
"""What engines read in place of a token that no penalty counts; windows keep its place."""


_WAYS_OUT = {
    "bias": "leave others out",
    "logprob_tokens": "-1 leaves a place without a token",
}


def token_list(
    name: str,
    value: Any,
    limit: int,
    row: int | None = None,
    *,
    is_scalar_ok: bool = False,
    skip_marks: bool = False,
    ignored: IgnoredTokens = NONE_IGNORED,
) -> NDArray[np.int64]:
    """Check a list of tokens in [0, limit), or ignored ones.

    Parameters
    ----------
    name, row
        The argument, and the row or sequence of the list, for messages.
    is_scalar_ok : bool
        Whether one token may be given instead of a list of one.
    skip_marks : bool
        Whether to drop -1, which a marked row has instead of a token.
    ignored : IgnoredTokens
        Tokens that may also be outside of that range.

    Returns
    -------
    int64 array of shape (N,)
        A copy, which another thread cannot change between this check and its use.
    """
    value = host_array(name, value, row)
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"`{name}` must hold lists of integers, got a masked array{at(row)} (pass "
            f"`{name if row is None else f'{name}[{row}]'}.compressed()`, the tokens that it does "
            "not mask)"
        )
    _check_types(name, value, row)
    try:
        tokens = np.array(np.asarray(value), ndmin=int(is_scalar_ok))
        if tokens.dtype.kind in "fO" and isinstance(value, list) and all(map(is_integer, value)):
            # Integers that no dtype holds together, such as uint64 and a negative one.
            tokens = np.array([int(one) for one in value], object)
    except (TypeError, RuntimeError, ValueError) as error:
        raise TypeError(
            f"`{name}` must hold lists of integers, got {type(value).__name__}{at(row)}: {error} "
            f"({_INTEGERS})"
        ) from error
    are_integers = tokens.dtype.kind in "iu" or all(map(is_integer, tokens.ravel()))
    if tokens.ndim != 1 or not are_integers:
        raise TypeError(
            f"`{name}` must hold lists of integers, got {type(value).__name__} of shape "
            f"{tokens.shape} and dtype {tokens.dtype}{at(row)} "
            f"({_ONE_TOKEN if tokens.ndim == 0 and are_integers else _INTEGERS})"
        )
    if skip_marks:
        tokens = tokens[tokens != -1]
    if tokens.size and not (tokens.min() >= 0 and tokens.max() < limit):
        require_tokens(name, tokens, limit, row, ignored)
    return np.ascontiguousarray(tokens, np.int64)


def require_tokens(
    name: str, tokens: NDArray[Any], limit: int, row: int | None, ignored: IgnoredTokens
) -> None:
    """Refuse a token outside of [0, limit) that is not ignored."""
    is_good = ((tokens >= 0) & (tokens < limit)) | ignored.among(tokens, limit)
    is_good &= (tokens >= LEAST_TOKEN) & (tokens < MOST_TOKENS)
    if is_good.all():
        return
    other = tokens[~is_good][0]
    way_out = _WAYS_OUT.get(name, 'ignore_tokens="outside" lets penalties skip others')
    if name not in _WAYS_OUT and not LEAST_TOKEN <= other < MOST_TOKENS:
        way_out = _WAYS_OUT["bias"]
    raise ValueError(
        f"`{name}` must hold tokens in [0, {limit}), got {other}{at(row)} "
        f"(tokens are columns of `logits`; {way_out})"
    )


def is_nested(value: Any) -> bool:
    """Return whether a value is a list of lists, or an array with two axes."""
    return per_row(value) and len(value) > 0 and per_row(value[0])


def is_integer(value: Any) -> bool:
    """Return whether a value is one integer, of Python or NumPy, and not a bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _check_types(name: str, value: Any, row: int | None) -> None:
    """Refuse text, and a bool among integers, which NumPy would read as one."""
    listed = value if isinstance(value, (list, tuple)) else (value,)
    types = set(map(type, listed))
    if types & {str, bytes}:
        text = next(one for one in listed if isinstance(one, (str, bytes)))
        raise text_error(name, text, row)
    if bool in types and len(types) > 1:
        raise TypeError(
            f"`{name}` must hold lists of integers, got a bool among them{at(row)} ({_INTEGERS})"
        )


def text_error(name: str, text: str | bytes, row: int | None = None) -> TypeError:
    """Make the error for text in the place of tokens."""
    return TypeError(
        f"`{name}` must hold tokens, got the text {text!r:.40}{at(row)} (pass the numbers that a "
        "tokenizer makes of it)"
    )
