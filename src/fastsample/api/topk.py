"""The first tokens of each row: so many of them, or so much of the mass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsample.engines.contract import KeptSets, SampleRequest
from fastsample.engines.execution import Execution
from fastsample.engines.plan import make_plan
from fastsample.inputs.arrays import dtype_of, in_form_of, minus_inf
from fastsample.inputs.logits import Rows, as_rows
from fastsample.params.table import TOP_P
from fastsample.params.validation import IntParameter, per_row

from .filtering import find_kept_sets, indices_of
from .result import as_caller_array, check_out, written_during_call


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
    logits: Any,
    k: ArrayLike,
    *,
    out: tuple[Any, Any] | None = None,
    engine: str | None = None,
    isa: str | None = None,
    n_threads: int | None = None,
) -> TopTokens:
    """Find the first k tokens of each row, as ``torch.topk`` does, with ties always the same way.

    Parameters
    ----------
    logits : array of shape (V,) or (B, V)
        As in `sample`.
    k : int, or one per row, shape (B,)
        In [1, V]. Exactly so many tokens come: those at -inf are last, the lower token first.
    out : pair (values, tokens), optional
        Arrays or tensors of the kind of `logits` and the shape ``logits.shape[:-1] + (k,)``: one of
        the dtype of `logits`, one int64. Written only when every row is good; they become the
        result's. Only with one `k`: rows of different length are flat, and always new.
    engine, isa, n_threads
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
    check = IntParameter(
        name="k",
        rule=f"in [1, V] = [1, {rows.vocabulary}]",
        way_out="how many tokens to take of each row",
        low=1,
        high=rows.vocabulary,
        dtype=np.int64,
    )
    shape: tuple[int, ...] | None
    if per_row(k):
        counts, shape = check.column(k, n_rows), None
    else:
        counts, shape = np.full(n_rows, check.one(k)), (*rows.shape, int(check.one(k)))
    memory = None if out is None else _check_pair(out, shape, logits, rows)
    plan = make_plan(n_rows, top_k=counts)
    request = SampleRequest(rows.values, rows.vocabulary, plan, None)
    sets = find_kept_sets(request, rows.shape, Execution.of(engine, isa, n_threads))
    sets = _with_minus_inf(rows, sets, counts.astype(np.int64))
    if out is None or memory is None:
        return _top_tokens(logits, rows, sets, shape)
    memory[0][...] = rows.values[indices_of(sets)].reshape(shape)
    memory[1][...] = sets.tokens.reshape(shape)
    return TopTokens(*out, as_caller_array(sets.offsets, sets.offsets.shape, torch=rows.torch))


def top_p(
    logits: Any,
    p: ArrayLike,
    temperature: ArrayLike = 1.0,
    *,
    engine: str | None = None,
    isa: str | None = None,
    n_threads: int | None = None,
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
    engine, isa, n_threads
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
    p = _P.column(p, n_rows) if per_row(p) else _P.one(p)
    plan = make_plan(n_rows, top_p=p, temperature=temperature)
    request = SampleRequest(rows.values, rows.vocabulary, plan, None)
    sets = find_kept_sets(request, rows.shape, Execution.of(engine, isa, n_threads))
    return _top_tokens(logits, rows, sets)


_P = replace(TOP_P, name="p")


def _check_pair(
    out: Any, shape: tuple[int, ...] | None, logits: Any, rows: Rows
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Check the `out` of `top_k`, and return the memory of its values and of its tokens."""
    if shape is None:
        raise ValueError(
            f"`out` must be left out with one `k` per row, got {type(out).__name__} (rows differ "
            "in length; pass one `k`)"
        )
    if not isinstance(out, tuple) or len(out) != 2:
        raise TypeError(
            f"`out` must be a pair (values, tokens), got {type(out).__name__} (leave it out to get "
            "new ones)"
        )
    values = check_out(out[0], shape, torch=rows.torch, dtype=dtype_of(logits, rows.values))
    tokens = check_out(out[1], shape, torch=rows.torch)
    if np.shares_memory(values, tokens):
        raise ValueError(
            "`out` must be two arrays, got values and tokens that share memory (leave it out to "
            "get new ones)"
        )
    return values, tokens


def _with_minus_inf(rows: Rows, sets: KeptSets, counts: NDArray[np.int64]) -> KeptSets:
    """Add a row's first tokens at -inf to its kept ones, up to its count.

    Raises
    ------
    ValueError
        A row has fewer tokens than its count: it was written during the call.
    """
    missing = counts - np.diff(sets.offsets)
    if not np.any(missing):
        return sets
    parts = []
    for b in range(len(counts)):
        parts.append(sets.tokens[sets.offsets[b] : sets.offsets[b + 1]])
        if missing[b]:
            logits = rows.values[b, : rows.vocabulary]
            banned = np.flatnonzero(logits == minus_inf(logits.dtype))[: missing[b]]
            if len(banned) < missing[b]:
                raise written_during_call(f"`logits` row {b}" if rows.shape else "`logits`")
            parts.append(banned)
    return sets._replace(
        tokens=np.concatenate(parts), offsets=np.concatenate([[0], np.cumsum(counts)])
    )


def _top_tokens(
    logits: Any, rows: Rows, sets: KeptSets, shape: tuple[int, ...] | None = None
) -> TopTokens:
    """Return tokens and their logits in a shape, flat without one, as the caller's array type."""
    values = rows.values[indices_of(sets)]
    shape = sets.tokens.shape if shape is None else shape
    return TopTokens(
        in_form_of(logits, values.reshape(shape)),
        as_caller_array(sets.tokens, shape, torch=rows.torch),
        as_caller_array(sets.offsets, sets.offsets.shape, torch=rows.torch),
    )
