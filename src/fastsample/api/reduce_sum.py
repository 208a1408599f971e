"""`reduce_sum`: the reductions of section 8 of the rule on any array of floats."""

from __future__ import annotations

from typing import Any

from fastsample.engines import is_installed
from fastsample.engines.reference.sums import SUMS, one_nan, rounded
from fastsample.inputs.logits import Floats, memory_of_floats
from fastsample.params.table import THREADS
from fastsample.params.validation import check_reduction

_X = Floats("x", "float16, bfloat16, float32 or float64", "efd", ("np.float64", "double()"), "0")


def reduce_sum(
    x: Any, reduction: str = "exact", *, n_threads: int | None = None, isa: str | None = None
) -> float:
    """Sum all numbers of an array with one of the three reductions.

    Parameters
    ----------
    x : array of any shape, float16, bfloat16, float32 or float64, on the CPU
        A NumPy array (bfloat16 of the package ml_dtypes), a torch tensor, or an object with
        ``__dlpack__``, with any strides. Read in C order and in place; an array that is not
        contiguous is copied in blocks of 4,096 numbers.
    reduction : {"exact", "fixed", "fast"}
        "exact": the true sum, rounded once to float64, as in `math.fsum`. It does not depend on the
        order of the numbers, the number of threads or the instruction set.
        "fixed": one order of additions on every machine. Each block of 4,096 numbers is summed in
        16 lanes, number i in lane i % 16, in ascending order, then lanes 8, 4, 2 and 1 apart, in
        float32 (float64 for float64). The sums of the blocks are added in float64 in ascending
        order.
        "fast": float32 (float64 for float64) in the order that is fastest here. The result may
        change with `n_threads`, with `isa` and with the next release.
    n_threads : int, optional
        The number of threads, at most one per processor and per block of 4,096 numbers. By default
        one for each 262,144 numbers.
    isa : str, optional
        An instruction set of ``info()["isa_usable"]``.

    Returns
    -------
    float
        0.0 for an empty array. Infinities and NaN add as in IEEE 754, and a NaN has the bits of
        `math.nan`; an exact sum beyond the largest float64 is an infinity.

    Raises
    ------
    TypeError
        `x` is not such an array.
    ValueError
        An unknown `reduction` or `isa`, or an `n_threads` out of range.
    RuntimeError
        An `isa` that this machine cannot run, or any `isa` without the compiled extension. NumPy
        computes the sum then, on one thread; "exact" and "fixed" have the same bits.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> x = np.array([1e8, 0.5, -1e8, 0.25], dtype=np.float32)
    >>> fastsample.reduce_sum(x), float(x.sum()), float(x[::-1].sum())
    (0.75, 0.25, 0.0)
    """
    reduction = check_reduction(reduction)
    values, _ = memory_of_floats(x, _X)
    threads = THREADS.optional(n_threads)
    if not is_installed("native"):
        if isa is not None:
            raise RuntimeError(
                "`isa` must be left out where the compiled extension is not installed, got "
                f"{isa!r} (leave it out: NumPy computes the sum then)"
            )
        return SUMS[reduction](values.reshape(-1))
    from fastsample import _native

    if reduction != "exact":
        return one_nan(_native.float_sum(values, reduction, isa, threads or 0))
    digits, special = _native.exact_sum(values, isa, threads or 0)
    if special != 0.0:
        return one_nan(special)
    return rounded(int.from_bytes(digits, "little", signed=True))
