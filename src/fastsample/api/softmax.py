"""`softmax`, `log_softmax` and `logsumexp` of each row, without filters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsample.engines.contract import SampleOutput, SampleRequest
from fastsample.engines.execution import Execution
from fastsample.engines.plan import make_plan
from fastsample.inputs.logits import as_rows
from fastsample.params.table import REPETITION_PENALTY, TEMPERATURE
from fastsample.params.validation import check_reduction

from .result import as_caller_array, check_out, require_valid_rows


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
    """Compute the softmax of each row: its probabilities.

    Parameters
    ----------
    logits : array of shape (V,) or (B, V)
        As in `sample`. For a padded vocabulary pass ``logits[:, :V]``.
    temperature : float, or one per row
        As in `SamplingParams`; at 0 the top token has probability 1.
    reduction : {"exact", "fixed", "fast"}
        How masses are summed, as in `sample`.
    out : float32 array or torch.float32 CPU tensor of shape ``logits.shape``, optional
        Written only if every row is valid. It may be `logits` itself.
    engine, isa, n_threads
        As in `sample`. All give the same bits, unless `reduction` is "fast".

    Returns
    -------
    float32 array, or a tensor for a tensor, of shape ``logits.shape``

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As `sample`; ValueError for an invalid row.

    Notes
    -----
    With y as in section 4 of docs/rule.md, a probability is 2**y in float32, 0 below y = -126,
    times float32(2**40 / W), where W is the exact integer mass of the row. For a temperature in
    [1e-19, 1e38], a probability of 2**-n times the largest one of the row, and of at least 2**-126,
    has a relative error of at most (1.04 * (n + log2(V)) + 6 + V / 2**18) * 2**-23. `kept_set`
    returns exact masses. In the other reductions W is a float32 sum of 2**y per block, and a
    float64 sum over blocks.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> logits = np.array([[0.0, 0.0], [1.0, -np.inf]], dtype=np.float32)
    >>> fastsample.softmax(logits)
    array([[0.5, 0.5],
           [1. , 0. ]], dtype=float32)
    """
    return _apply("softmax", logits, temperature, reduction, out, "float32", engine, isa, n_threads)


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
    """Compute the log-softmax of each row: the mode "tempered" of `sample`, in float32.

    Parameters
    ----------
    logits, reduction, out, engine, isa, n_threads
        As in `softmax`.
    temperature : float, or one per row
        As in `SamplingParams`; at 0 the top token has 0 and all others -inf.

    Returns
    -------
    float32 array, or a tensor for a tensor, of shape ``logits.shape``

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As `softmax`.

    Notes
    -----
    A log-probability is (x - m) / T - ln(W / 2**40) in float64, rounded once to float32, where m is
    the row's largest logit and W its total mass. It is finite also where the result of `softmax` is
    0.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> fastsample.log_softmax(np.array([0.0, 0.0, -500.0], dtype=np.float32))
    array([  -0.6931472,   -0.6931472, -500.69315  ], dtype=float32)
    """
    return _apply(
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
    logits, reduction, engine, isa, n_threads
        As in `softmax`.
    temperature : float, or one per row
        Above 0.
    out : float64 array or torch.float64 CPU tensor of shape ``logits.shape[:-1]``, optional
        Written only if every row is valid.

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
    m / T + ln(W / 2**40) in float64, where m is the row's largest logit and W its total mass.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> fastsample.logsumexp(np.zeros((2, 8), dtype=np.float32)).round(6)
    array([2.079442, 2.079442])
    """
    return _apply(
        "logsumexp", logits, temperature, reduction, out, "float64", engine, isa, n_threads
    )


_ABOVE_0 = replace(
    TEMPERATURE,
    rule="a finite number > 0",
    way_out="1 changes nothing; at 0 the sum has no logarithm",
    low=REPETITION_PENALTY.low,
)


def _apply(
    function: str,
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
    row_shape: tuple[int, ...] = (rows.vocabulary,)
    if function == "logsumexp":
        _ABOVE_0.values(temperature, n_rows)
        row_shape = ()
    shape = (*rows.shape, *row_shape)
    memory = None if out is None else check_out(out, shape, torch=rows.torch, dtype=dtype)
    mode = check_reduction(reduction)
    plan = make_plan(n_rows, temperature=temperature)
    request = SampleRequest(rows.values, rows.vocabulary, plan, None, mode)
    execution = Execution.of(engine, isa, n_threads)
    is_direct = memory is not None and _is_safe_to_write(memory, rows.values)
    if is_direct and n_rows > 1:
        # A greedy draw reads every row and raises for an invalid one, before anything is written.
        # One row needs none: an engine reads a row before it writes it.
        greedy = request._replace(plan=make_plan(n_rows, temperature=0.0))
        buffers = SampleOutput.empty(n_rows)
        execution.sample(greedy, buffers)
        require_valid_rows(greedy, buffers.status, rows.shape)
    target = memory if is_direct and memory is not None else np.empty(shape, dtype)
    status = execution.softmax(function, request, target.reshape((n_rows, *row_shape)))
    require_valid_rows(request, status, rows.shape)
    if memory is None:
        return as_caller_array(target, torch=rows.torch)
    if not is_direct:
        memory[...] = target
    return out


def _is_safe_to_write(memory: NDArray[Any], values: NDArray[Any]) -> bool:
    """Return whether an engine can write to this memory without reading what it has written."""
    if not (memory.flags.c_contiguous and memory.flags.aligned):
        return False
    if not np.may_share_memory(memory, values):
        return True
    same_place = memory.ctypes.data == values.ctypes.data and memory.dtype == values.dtype
    return same_place and memory.size == values.size and values.flags.c_contiguous
