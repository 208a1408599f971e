"""`logprob_tokens`: the tokens of the caller's choice whose log-probabilities are returned."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.params.foreign import host_array, shown
from fastsample.params.ignored_tokens import IgnoredTokens
from fastsample.params.validation import Bad, per_row

from .logits import Rows
from .logits_processors import check_count
from .tokens import text_error, token_list

NAME = "logprob_tokens"
NO_TOKEN = -1
"""What fills the lists of rows that have fewer tokens than others."""

_FILLER = IgnoredTokens((NO_TOKEN,), False)


def parse_logprob_tokens(value: Any, rows: Rows, bad: Bad | None) -> NDArray[np.int64]:
    """Check lists of tokens, one for all rows or one for each.

    A row whose own list has a token out of range is marked in `bad`; without it that is an error.

    Returns
    -------
    int64 array of shape (B, K)
        K is the length of the longest list, `NO_TOKEN` in the rest of the others.
    """
    n_rows = len(rows.values)
    value = host_array(NAME, value)
    if isinstance(value, (str, bytes)):
        raise text_error(NAME, value)
    if not isinstance(value, (list, tuple)) and getattr(value, "ndim", 0) not in (1, 2):
        raise TypeError(
            f"`{NAME}` must be a list of tokens, one such list per row, or an array, got "
            f"{shown(value)} (a list of one, for one token)"
        )
    if not _is_per_row(value):
        shared = np.empty((n_rows, len(value)), np.int64)
        shared[:] = token_list(NAME, value, rows.vocabulary, ignored=_FILLER)
        return shared
    check_count(NAME, len(value), n_rows)
    places = range(n_rows) if rows.shape else [None]
    lists = []
    for b, (row, tokens) in enumerate(zip(places, value, strict=True)):
        tokens = () if tokens is None else tokens
        try:
            lists.append(token_list(NAME, tokens, rows.vocabulary, row, ignored=_FILLER))
        except ValueError:
            if bad is None:
                raise
            bad[b] = True
            lists.append(np.full(len(tokens), NO_TOKEN, np.int64))
    count = max(map(len, lists)) if lists else value.shape[1]
    found = np.full((n_rows, count), NO_TOKEN, np.int64)
    for row_tokens, tokens in zip(found, lists, strict=True):
        row_tokens[: len(tokens)] = tokens
    return found


def _is_per_row(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(one is None or per_row(one) for one in value)
    return bool(value.ndim == 2)
