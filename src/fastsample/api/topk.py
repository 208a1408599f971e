"""`top_k` and `top_p`: the top tokens of each row, by count or by probability."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsample.engines.contract import KeptSets
from fastsample.engines.plan import make_plan
from fastsample.inputs.arrays import dtype_of, in_type_of, minus_inf
from fastsample.inputs.logits import Rows, as_rows
from fastsample.params.table import TOP_P
from fastsample.params.validation import vocabulary_parameter

from .filtering import find_kept_sets, indices_of
from .result import as_caller_array, check_out, written_during_call


class TopTokens(NamedTuple):
    """The result of `top_k` and `top_p`: the top tokens of each row and their logits.

    Attributes
    ----------
    values : array or tensor, of the dtype of the logits
        The unmodified logits of `tokens`, in the shape of `tokens`. bfloat16 of DLPack objects is
        returned as uint16.
    tokens : int64 array or tensor
        In each row by descending logit, ties by ascending token. Of `top_k` with one k the shape is
        ``logits.shape[:-1] + (k,)``; else it is (N,), with the rows concatenated.
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
    """Find the k tokens with the largest logits in each row, with ties by ascending token.

    Parameters
    ----------
    logits : array of shape (V,) or (B, V)
        As in `sample`.
    k : int, or one per row, shape (B,)
        In [1, V]. Exactly k tokens are returned; tokens at -inf are last, in ascending order.
    out : pair (values, tokens), optional
        Arrays or tensors as `logits`, of shape ``logits.shape[:-1] + (k,)``: one of the dtype of
        `logits`, one int64. Written only if every row is valid; they are then the result's. Not
        with one `k` per row.
    engine, isa, n_threads
        As in `sample`.

    Returns
    -------
    TopTokens
        values, tokens, offsets.

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As `sample`; ValueError for an invalid row.

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
    way_out = "how many tokens to return per row"
    check = vocabulary_parameter("k", 1, rows.vocabulary, way_out)
    shape: tuple[int, ...] | None = None
    counts = check.values(k, n_rows)
    if not isinstance(counts, np.ndarray):
        shape = (*rows.shape, counts)
    memory = None if out is None else _check_pair(out, shape, logits, rows)
    plan = make_plan(n_rows, top_k=counts)
    sets = find_kept_sets(rows, plan, None, engine, isa, n_threads)
    sets = _with_minus_inf(rows, sets, np.broadcast_to(np.asarray(counts, np.int64), n_rows))
    if out is None or memory is None:
        return _top_tokens(logits, rows, sets, shape)
    memory[0][...] = rows.values[indices_of(sets)].reshape(shape)
    memory[1][...] = sets.tokens.reshape(shape)
    return TopTokens(*out, as_caller_array(sets.offsets, torch=rows.torch))


def top_p(
    logits: Any,
    p: ArrayLike,
    temperature: ArrayLike = 1.0,
    *,
    engine: str | None = None,
    isa: str | None = None,
    n_threads: int | None = None,
) -> TopTokens:
    """Find the fewest top tokens of each row whose probabilities sum to at least p (the nucleus).

    Parameters
    ----------
    logits : array of shape (V,) or (B, V)
        As in `sample`.
    p : float, or one per row, shape (B,)
        In [0, 1]. At least one token is returned; 1 returns all but those at -inf.
    temperature : float, or one per row, shape (B,)
        As in `SamplingParams`.
    engine, isa, n_threads
        As in `sample`.

    Returns
    -------
    TopTokens
        values, tokens, offsets, with the rows concatenated.

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
    plan = make_plan(n_rows, top_p=_P.values(p, n_rows), temperature=temperature)
    sets = find_kept_sets(rows, plan, None, engine, isa, n_threads)
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
    """Add a row's first tokens at -inf to its kept ones, up to its count."""
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
        in_type_of(logits, values.reshape(shape)),
        as_caller_array(sets.tokens.reshape(shape), torch=rows.torch),
        as_caller_array(sets.offsets, torch=rows.torch),
    )
