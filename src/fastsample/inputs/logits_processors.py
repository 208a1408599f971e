"""Logits processors: mask, bias and token histories, checked, in the layout that engines read."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsample.params.foreign import host_array
from fastsample.params.ignored_tokens import NONE_IGNORED, IgnoredTokens
from fastsample.params.validation import Bad

from .bias import Terms, parse_bias
from .logits import Rows
from .mask import parse_mask
from .tokens import IGNORED, is_nested, text_error, token_list

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
    # With `output` the history that penalties count; a negative token only takes up its place.
    prompt: TokenLists | None
    output: TokenLists | None


def make_logits_processors(
    rows: Rows,
    *,
    mask: Any = None,
    bias: Any = None,
    prompt: Any = None,
    output: Any = None,
    allow_short_mask: bool = False,
    ignored: IgnoredTokens | list[IgnoredTokens] = NONE_IGNORED,
    bad: Bad | None = None,
) -> LogitsProcessors | None:
    """Check the arguments of `sample` of these names; None if there are none.

    `ignored` are the tokens of histories that penalties skip, in all rows or each. Rows whose
    history or own bias is out of range are marked in `bad`; without it they are an error.
    """
    if mask is None and bias is None and prompt is None and output is None:
        return None
    return LogitsProcessors(
        None if mask is None else parse_mask(mask, rows, allow_short=allow_short_mask),
        None if bias is None else _lists_of(parse_bias(bias, rows, bad)),
        None if prompt is None else history("prompt", prompt, rows, ignored, bad),
        None if output is None else history("output", output, rows, ignored, bad),
    )


# ---------------------------------------------------------------- tokens


def history(
    name: str,
    value: Any,
    rows: Rows,
    ignored: IgnoredTokens | list[IgnoredTokens],
    bad: Bad | None,
) -> TokenLists:
    """Check the tokens of every row; of one row they need not be in another list."""
    n_rows = len(rows.values)
    value = host_array(name, value)
    if isinstance(value, (str, bytes)):
        raise text_error(name, value)
    if not isinstance(value, (list, tuple)) and getattr(value, "ndim", 0) not in (1, 2):
        raise TypeError(
            f"`{name}` must be a list of tokens, one such list per row, or an array, got "
            f"{type(value).__name__} (pass lists of integers, empty where there are none)"
        )
    if n_rows == 1 and not is_nested(value):
        value = [value]
        places: list[int | None] = [None]
    else:
        check_count(name, len(value), n_rows)
        places = [*range(n_rows)]
    each = ignored if isinstance(ignored, list) else [ignored] * n_rows
    lists = []
    for b, (one, skipped) in enumerate(zip(value, each, strict=True)):
        try:
            tokens = token_list(name, one, rows.vocabulary, places[b], ignored=skipped)
        except ValueError:
            if bad is None:
                raise
            bad[b], tokens = True, _NO_TOKENS
        if skipped is not NONE_IGNORED:
            tokens[skipped.among(tokens, rows.vocabulary)] = IGNORED
        lists.append(tokens)
    return _concatenate(lists, None)


def check_count(name: str, count: int, n_rows: int) -> None:
    """Refuse another number of entries than rows."""
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
