"""The first tokens of each row: so many of them, or so much of the mass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import checks
from .engines.laws import KeptSets
from .kept import find, places
from .logits import Rows, as_rows
from .memory import in_form_of, minus_inf
from .params import make_plan
from .result import as_given


class TopTokens(NamedTuple):
    """What `top_k` and `top_p` return: the first tokens of each row and their logits.

    Attributes
    ----------
    values : array or tensor, of the dtype of the logits
        The logits of `tokens`, bit for bit; the shape of `tokens`. bfloat16 read through DLPack
        comes as uint16.
    tokens : int64 array or tensor
        Of each row the higher logit first, equal logits by token, the lower first. From `top_k`
        with one k the shape is ``logits.shape[:-1] + (k,)``; else (N,), the rows end to end.
    offsets : int64 array or tensor of shape (B + 1,)
        Row b has ``tokens.ravel()[offsets[b] : offsets[b + 1]]``. Logits of shape (V,) are one row.
    """

    values: Any
    tokens: Any
    offsets: Any


def top_k(
    logits: Any, k: ArrayLike, *, engine: str | None = None, isa: str | None = None
) -> TopTokens:
    """Find the first k tokens of each row, as ``torch.topk`` does, with ties always the same way.

    Parameters
    ----------
    logits : array of shape (V,) or (B, V)
        As in `sample`.
    k : int, or one per row, shape (B,)
        In [1, V]. Exactly so many tokens come: those at -inf are last, the lower token first.
    engine, isa
        As in `sample`.

    Returns
    -------
    TopTokens
        Named values, tokens, offsets. With one `k`, values and tokens have the shape
        ``logits.shape[:-1] + (k,)``; with one per row they are flat and the offsets tell the rows.

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As `sample`: also for a row that holds NaN or +inf, or nothing but -inf.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> values, tokens, offsets = fastsample.top_k(np.array([1, 3, 3, 2], dtype=np.float32), 3)
    >>> values, tokens
    (array([3., 3., 2.], dtype=float32), array([1, 2, 3]))
    """
    rows = as_rows(logits)
    n_rows = len(rows.values)
    check = checks.Whole(
        name="k",
        rule=f"in [1, V] = [1, {rows.vocabulary}]",
        way_out="how many tokens to take of each row",
        low=1,
        high=rows.vocabulary,
        dtype=np.int64,
    )
    each = checks.per_row(k)
    counts = check.column(k, n_rows) if each else np.full(n_rows, check.one(k))
    found = find(rows, make_plan(n_rows, top_k=counts), None, engine, isa)
    tokens, offsets = _filled_up(rows, found, counts.astype(np.int64))
    shape = tokens.shape if each else (*rows.shape, int(check.one(k)))
    return _top_tokens(logits, rows, tokens, offsets, shape)


def top_p(
    logits: Any,
    p: ArrayLike,
    temperature: ArrayLike = 1.0,
    *,
    engine: str | None = None,
    isa: str | None = None,
) -> TopTokens:
    """Find the shortest head of each row whose mass reaches the share p.

    Parameters
    ----------
    logits : array of shape (V,) or (B, V)
        As in `sample`.
    p : float, or one per row, shape (B,)
        In [0, 1]. At least one token comes; 1 takes all but those at -inf.
    temperature : float, or one per row, shape (B,)
        As in `SamplingParams`, before the masses are taken.
    engine, isa
        As in `sample`.

    Returns
    -------
    TopTokens
        Named values, tokens, offsets: flat, as rows differ in length.

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As `top_k`.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> row = np.log(np.array([0.1, 0.5, 0.4], dtype=np.float32))
    >>> fastsample.top_p(row, 0.8).tokens
    array([1, 2])
    """
    rows = as_rows(logits)
    n_rows = len(rows.values)
    p = _P.column(p, n_rows) if checks.per_row(p) else _P.one(p)
    found = find(rows, make_plan(n_rows, top_p=p, temperature=temperature), None, engine, isa)
    return _top_tokens(logits, rows, found.tokens, found.offsets, found.tokens.shape)


_P = replace(checks.TOP_P, name="p")


def _filled_up(
    rows: Rows, found: KeptSets, counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Follow the kept tokens of a row by its first ones at -inf, as many as are lacking."""
    lacking = counts - np.diff(found.offsets)
    if not np.any(lacking):
        return found.tokens, found.offsets
    pieces = []
    for b in range(len(counts)):
        pieces.append(found.tokens[found.offsets[b] : found.offsets[b + 1]])
        if lacking[b]:
            pieces.append(_at_minus_inf(rows, b)[: lacking[b]])
    return np.concatenate(pieces), np.concatenate([[0], np.cumsum(counts)])


def _at_minus_inf(rows: Rows, b: int) -> NDArray[np.int64]:
    logits = rows.values[b, : rows.vocabulary]
    return np.flatnonzero(logits == minus_inf(logits.dtype))


def _top_tokens(
    logits: Any,
    rows: Rows,
    tokens: NDArray[np.int64],
    offsets: NDArray[np.int64],
    shape: tuple[int, ...],
) -> TopTokens:
    values = rows.values[places(tokens, offsets)].reshape(shape)
    return TopTokens(
        in_form_of(logits, values),
        as_given(tokens, shape, torch=rows.torch),
        as_given(offsets, offsets.shape, torch=rows.torch),
    )
