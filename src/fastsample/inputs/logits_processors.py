"""Logits processors: mask, bias and token histories, checked, in the layout that engines read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsample.params.validation import at

from .arrays import nearest_float32
from .logits import Rows
from .mask import parse_mask
from .tokens import is_nested, token_list

_NO_TOKENS = np.empty(0, np.int64)
_NO_VALUES = np.empty(0, np.float32)


class TokenLists(NamedTuple):
    """A list of tokens per row, concatenated: row b is ``tokens[offsets[b] : offsets[b + 1]]``."""

    offsets: NDArray[np.int64]
    tokens: NDArray[np.int64]
    values: NDArray[np.float32] | None  # one for each token, or None


class LogitsProcessors(NamedTuple):
    """What modifies logits before the filters; each part may be None."""

    # bool of shape (B or 1, M), or uint32 of shape (B or 1, W), C-contiguous: True, or bit t % 32
    # of word t // 32, allows token t; tokens past the last column are banned.
    mask: NDArray[Any] | None
    bias: TokenLists | None  # added to logits; each token at most once in a row
    prompt: TokenLists | None  # with `output` the history that penalties count
    output: TokenLists | None


def make_logits_processors(
    rows: Rows,
    *,
    mask: Any = None,
    bias: Any = None,
    prompt: Any = None,
    output: Any = None,
    allow_short_mask: bool = False,
) -> LogitsProcessors | None:
    """Check the arguments of `sample` of these names; None if there are none."""
    if mask is None and bias is None and prompt is None and output is None:
        return None
    return LogitsProcessors(
        None if mask is None else parse_mask(mask, rows, allow_short=allow_short_mask),
        None if bias is None else _bias(bias, rows),
        None if prompt is None else history("prompt", prompt, rows),
        None if output is None else history("output", output, rows),
    )


# ---------------------------------------------------------------- bias


def _bias(bias: Any, rows: Rows) -> TokenLists:
    n_rows = len(rows.values)
    if isinstance(bias, list) or _is_dict_per_row(bias):
        _check_count("bias", len(bias), n_rows)
        each = [_dict_bias(one, rows, b) for b, one in enumerate(bias)]
    elif isinstance(bias, tuple):
        each = [_array_bias(bias, rows)] * n_rows
    else:
        each = [_dict_bias(bias, rows, None)] * n_rows
    return _concatenate([tokens for tokens, _ in each], [values for _, values in each])


def _is_dict_per_row(bias: Any) -> bool:
    """Return whether a bias is a tuple of dicts rather than of two arrays."""
    return isinstance(bias, tuple) and any(one is None or isinstance(one, Mapping) for one in bias)


def _dict_bias(
    bias: Any, rows: Rows, row: int | None
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    if bias is None:
        bias = {}
    if not isinstance(bias, Mapping):
        raise TypeError(
            "`bias` must be a dict {token: value}, a list of B dicts or a tuple (tokens, values), "
            f"got {type(bias).__name__}{at(row)} (leave it out where there is none; add one "
            "that is as wide as the rows to `logits`)"
        )
    tokens = token_list("bias", list(bias.keys()), rows.vocabulary, row)
    return tokens, _bias_values(list(bias.values()), tokens, row)


def _array_bias(bias: tuple[Any, ...], rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    if len(bias) != 2:
        raise ValueError(
            f"`bias` must be two arrays (tokens, values) where it is a tuple, got {len(bias)} "
            "things (a list has one dict per row)"
        )
    tokens = token_list("bias", bias[0], rows.vocabulary)
    values = _bias_values(bias[1], tokens, None)
    distinct, counts = np.unique(tokens, return_counts=True)
    if len(distinct) < len(tokens):
        raise ValueError(
            f"`bias` must hold each token once, got token {distinct[counts > 1][0]} "
            f"{counts.max()} times (add its values up)"
        )
    return tokens, values


def _bias_values(given: Any, tokens: NDArray[np.int64], row: int | None) -> NDArray[np.float32]:
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(
            "`bias` must have numbers as values, got a masked array (pass the values that it does "
            "not mask, its `compressed()`)"
        )
    try:
        numbers = np.asarray(given)
    except (TypeError, RuntimeError, ValueError) as error:
        raise TypeError(
            f"`bias` must have numbers as values, got {type(given).__name__}: {error} "
            "(each is added to a logit)"
        ) from error
    if numbers.dtype.kind not in "fiu" and numbers.size:
        raise TypeError(
            f"`bias` must have numbers as values, got {numbers.dtype}{at(row)} "
            "(each is added to a logit)"
        )
    if numbers.shape != tokens.shape:
        raise ValueError(
            f"`bias` must have a value for each token, got {numbers.shape} values for "
            f"{tokens.shape} tokens (two arrays of one length)"
        )
    values = nearest_float32(numbers)
    bad = np.flatnonzero(~(values < np.inf))
    if len(bad):
        raise ValueError(
            f"`bias` must be finite or -inf in float32, got {numbers[bad[0]]} for token "
            f"{tokens[bad[0]]}{at(row)} (-inf bans a token)"
        )
    return values


# ---------------------------------------------------------------- tokens


def history(name: str, value: Any, rows: Rows) -> TokenLists:
    """Check the tokens of every row; of one row they need not be in another list."""
    n_rows = len(rows.values)
    if not isinstance(value, (list, tuple)) and getattr(value, "ndim", 0) not in (1, 2):
        raise TypeError(
            f"`{name}` must be a list of tokens, one such list per row, or an array, got "
            f"{type(value).__name__} (an empty list where there are none)"
        )
    limit = rows.vocabulary
    if n_rows == 1 and not is_nested(value):
        return _concatenate([token_list(name, value, limit)], None)
    _check_count(name, len(value), n_rows)
    return _concatenate([token_list(name, one, limit, b) for b, one in enumerate(value)], None)


def _check_count(name: str, count: int, n_rows: int) -> None:
    if count != n_rows:
        raise ValueError(
            f"`{name}` must have one entry for each of the {n_rows} rows, got {count} "
            "(one per row of `logits`, in their order)"
        )


def _concatenate(
    tokens: list[NDArray[np.int64]], values: list[NDArray[np.float32]] | None
) -> TokenLists:
    offsets = np.zeros(len(tokens) + 1, np.int64)
    offsets[1:] = np.cumsum(np.array([len(one) for one in tokens], np.int64))
    if len(tokens) == 1:
        return TokenLists(offsets, tokens[0], None if values is None else values[0])
    return TokenLists(
        offsets,
        np.concatenate([_NO_TOKENS, *tokens]),
        None if values is None else np.concatenate([_NO_VALUES, *values]),
    )
