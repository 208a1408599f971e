"""Logits processors: mask, bias and token histories, checked, in the layout that engines read."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .bias import Terms, parse_bias
from .logits import Rows
from .mask import parse_mask
from .tokens import is_nested, text_error, token_list

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
        None if bias is None else _lists_of(parse_bias(bias, rows)),
        None if prompt is None else history("prompt", prompt, rows),
        None if output is None else history("output", output, rows),
    )


# ---------------------------------------------------------------- tokens


def history(name: str, value: Any, rows: Rows) -> TokenLists:
    """Check the tokens of every row; of one row they need not be in another list."""
    n_rows = len(rows.values)
    if isinstance(value, (str, bytes)):
        raise text_error(name, value)
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


def _lists_of(terms: list[Terms]) -> TokenLists:
    return _concatenate([tokens for tokens, _ in terms], [values for _, values in terms])


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
