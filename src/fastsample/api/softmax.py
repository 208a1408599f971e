"""Functions of whole rows, with no filter: softmax, its logarithm and its normaliser."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsample.engines import resolve
from fastsample.engines.contract import Job
from fastsample.engines.execution import NOTHING, draw, first_bad
from fastsample.engines.plan import make_plan
from fastsample.inputs.logits import as_rows
from fastsample.params.parameters import check_threads
from fastsample.params.table import REPETITION_PENALTY, TEMPERATURE
from fastsample.params.validation import check_reduction, per_row

from .result import as_given, check_out


def softmax(
    logits: Any,
    temperature: ArrayLike = 1.0,
    *,
    reduction: str = "exact",
    out: Any = None,
    engine: str | None = None,
    isa: str | None = None,
    n_threads: int | None = None,
) -> Any:
    """Turn each row into probabilities.

    Parameters
    ----------
    logits : array of shape (V,) or (B, V)
        As in `sample`, of any dtype that it takes. For a padded vocabulary pass ``logits[:, :V]``.
    temperature : float, or one per row
        As in `SamplingParams`; at 0 the first token of the row has probability 1.
    reduction : {"exact", "fixed", "fast"}
        How masses add up to W, as in `sample`.
    out : float32 array or torch.float32 CPU tensor of shape ``logits.shape``, optional
        Written only when every row is good. It may be `logits` itself.
    engine, isa, n_threads
        As in `sample`. All give the same bits, unless `reduction` is "fast".

    Returns
    -------
    float32 array, or a tensor for a tensor, of shape ``logits.shape``

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As `sample`: also for a row that holds NaN or +inf, or nothing but -inf.

    Notes
    -----
    Each probability is 2**y of the rule's masses, kept in float32 down to y = -126 and 0 below,
    times float32(2**40 / W), with W the exact integer mass of the row. One that is 2**-n of the
    row's largest, and at least 2**-126, is within (1.04 * (n + log2(V)) + 6 + V / 2**18) * 2**-23
    of itself, for a temperature in [1e-19, 1e38]. For sums that are exact: `kept_set`. In the other
    reductions W is a float32 sum of 2**y itself, in float64 from block to block.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> logits = np.array([[0.0, 0.0], [1.0, -np.inf]], dtype=np.float32)
    >>> fastsample.softmax(logits)
    array([[0.5, 0.5],
           [1. , 0. ]], dtype=float32)
    """
    return _law("softmax", logits, temperature, reduction, out, "float32", engine, isa, n_threads)


def log_softmax(
    logits: Any,
    temperature: ArrayLike = 1.0,
    *,
    reduction: str = "exact",
    out: Any = None,
    engine: str | None = None,
    isa: str | None = None,
    n_threads: int | None = None,
) -> Any:
    """Turn each row into log-probabilities: those that `sample` calls "tempered", in float32.

    Parameters
    ----------
    logits : array of shape (V,) or (B, V)
        As in `softmax`.
    temperature : float, or one per row
        At 0 the first token of the row has 0 and all others -inf.
    reduction : {"exact", "fixed", "fast"}
        As in `softmax`.
    out : float32 array or torch.float32 CPU tensor of shape ``logits.shape``, optional
        As in `softmax`.
    engine, isa, n_threads
        As in `sample`. All give the same bits, unless `reduction` is "fast".

    Returns
    -------
    float32 array, or a tensor for a tensor, of shape ``logits.shape``

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As `softmax`.

    Notes
    -----
    (x - m) / T - ln(W / 2**40) in float64, with m the row's largest logit and W its total mass, is
    rounded to float32 once. Tokens far from the top keep their log-probability, where the
    logarithm of `softmax` would be -inf.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> fastsample.log_softmax(np.array([0.0, 0.0, -500.0], dtype=np.float32))
    array([  -0.6931472,   -0.6931472, -500.69315  ], dtype=float32)
    """
    return _law(
        "log_softmax", logits, temperature, reduction, out, "float32", engine, isa, n_threads
    )


def logsumexp(
    logits: Any,
    temperature: ArrayLike = 1.0,
    *,
    reduction: str = "exact",
    out: Any = None,
    engine: str | None = None,
    isa: str | None = None,
    n_threads: int | None = None,
) -> Any:
    """Compute the logarithm of the sum of exp(logit / temperature) over each row.

    Parameters
    ----------
    logits : array of shape (V,) or (B, V)
        As in `softmax`.
    temperature : float, or one per row
        Above 0.
    reduction : {"exact", "fixed", "fast"}
        As in `softmax`.
    out : float64 array or torch.float64 CPU tensor of shape ``logits.shape[:-1]``, optional
        Written only when every row is good.
    engine, isa, n_threads
        As in `sample`. All give the same bits, unless `reduction` is "fast".

    Returns
    -------
    float64 array, or a tensor for a tensor, of shape ``logits.shape[:-1]``
        An array without dimensions for logits of shape (V,).

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As `softmax`.

    Notes
    -----
    m / T + ln(W / 2**40) in float64, with m the row's largest logit and W its total mass.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> fastsample.logsumexp(np.zeros((2, 8), dtype=np.float32)).round(6)
    array([2.079442, 2.079442])
    """
    return _law("logsumexp", logits, temperature, reduction, out, "float64", engine, isa, n_threads)


_ABOVE_0 = replace(
    TEMPERATURE,
    rule="a finite number > 0",
    way_out="at 0 the sum has no logarithm",
    low=REPETITION_PENALTY.low,
)


def _law(
    name: str,
    logits: Any,
    temperature: Any,
    reduction: str,
    out: Any,
    dtype: str,
    engine: str | None,
    isa: str | None,
    n_threads: int | None,
) -> Any:
    rows = as_rows(logits)
    n_rows = len(rows.values)
    shape: tuple[int, ...]
    flat: tuple[int, ...]
    if name == "logsumexp":
        _check_above_0(temperature, n_rows)
        shape, flat = rows.shape, (n_rows,)
    else:
        shape, flat = (*rows.shape, rows.vocabulary), (n_rows, rows.vocabulary)
    memory = None if out is None else check_out(out, shape, torch=rows.torch, dtype=dtype)
    plan = make_plan(n_rows, temperature=temperature)
    job = Job(rows.values, rows.vocabulary, plan, None, check_reduction(reduction))
    how: dict[str, Any] = {"isa": isa, "n_threads": check_threads(n_threads)}
    write_law = resolve(engine, isa).write_law
    at_once = memory is not None and _takes_law(memory, rows.values)
    if at_once and n_rows > 1:
        # A greedy draw looks at every row and raises for a bad one, before anything is written. One
        # row needs none: an engine looks at a row before it writes.
        draw(rows, make_plan(n_rows, temperature=0.0), None, NOTHING, engine=engine, **how)
    target = memory.reshape(flat) if memory is not None and at_once else np.empty(flat, dtype)
    status = np.zeros(n_rows, np.uint8)
    write_law(name, job, target, status, **how)
    if np.count_nonzero(status):
        raise first_bad(job, rows.shape, status)
    if memory is None:
        return as_given(target, shape, torch=rows.torch)
    if not at_once:
        memory[...] = target.reshape(shape)
    return out


def _check_above_0(temperature: Any, n_rows: int) -> None:
    if per_row(temperature):
        _ABOVE_0.column(temperature, n_rows)
    else:
        _ABOVE_0.one(temperature)


def _takes_law(memory: NDArray[Any], values: NDArray[Any]) -> bool:
    """Tell whether an engine can write to memory at once: without reading what it has written."""
    if not (memory.flags.c_contiguous and memory.flags.aligned):
        return False
    if not np.may_share_memory(memory, values):
        return True
    same_place = memory.ctypes.data == values.ctypes.data and memory.dtype == values.dtype
    return same_place and memory.size == values.size and values.flags.c_contiguous
