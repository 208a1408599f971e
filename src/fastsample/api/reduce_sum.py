"""The reductions of the rule's section 8 on any array of floats, to be put beside other sums."""

from __future__ import annotations

from typing import Any

from fastsample.engines import is_installed
from fastsample.engines.reference.sums import SUMS, one_nan, rounded
from fastsample.inputs.logits import Floats, memory_of_floats
from fastsample.params.parameters import check_threads
from fastsample.params.validation import check_reduction

_X = Floats("x", "float16, bfloat16, float32 or float64", "efd", ("np.float64", "double()"), "0")
_KINDS = {"e": "float16", "H": "bfloat16", "f": "float32", "d": "float64"}


def reduce_sum(
    x: Any, reduction: str = "exact", *, n_threads: int | None = None, isa: str | None = None
) -> float:
    """Sum all numbers of an array, in one of the rule's three ways to add.

    Parameters
    ----------
    x : array of any shape, float16, bfloat16, float32 or float64, on the CPU
        A NumPy array (bfloat16 as the ml_dtypes package has it), a torch tensor, or anything with
        ``__dlpack__``; any strides. It is read in C order, where it lies; only one that is not
        contiguous is copied, 4,096 numbers at a time.
    reduction : {"exact", "fixed", "fast"}
        "exact": the true sum, rounded once to float64, as `math.fsum` has it. Any order of the
        numbers gives it, so any number of threads and any instruction set does.
        "fixed": one order of additions whatever the machine: inside each block of 4,096 numbers 16
        lanes, number i in lane i % 16, ascending, then lanes 8 apart, 4, 2 and 1; in float32
        (float64 for float64). The blocks' sums are added in float64, ascending.
        "fast": float32 (float64 for float64) in whatever order is quickest here. It promises
        nothing: the answer may change with `n_threads`, with `isa` and with the next release.
    n_threads : int, optional
        How many threads share the work, at most one per processor and per block of 4,096 numbers.
        By default one for each 262,144 numbers.
    isa : str, optional
        The instruction set, one of ``fastsample.info()["isa_usable"]``.

    Returns
    -------
    float
        0.0 for an empty array. Infinities and NaN add up as IEEE 754 says, and every NaN is that of
        `math.nan`, to the last bit; an exact sum past the largest float64 is an infinity.

    Raises
    ------
    TypeError
        `x` is no such array.
    ValueError
        A `reduction`, `n_threads` or `isa` that is none.
    RuntimeError
        An `isa` that this machine cannot run, or where the compiled extension is not installed.
        Without it NumPy does the work on one thread: "exact" and "fixed" have the same bits.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> x = np.array([1e8, 0.5, -1e8, 0.25], dtype=np.float32)
    >>> fastsample.reduce_sum(x), float(x.sum()), float(x[::-1].sum())
    (0.75, 0.25, 0.0)
    """
    check_reduction(reduction)
    values, _ = memory_of_floats(x, _X)
    threads = check_threads(n_threads)
    if not is_installed("native"):
        if isa is not None:
            raise RuntimeError(
                "`isa` must be left out where the compiled extension is not installed, got "
                f"{isa!r} (NumPy does the work then)"
            )
        return SUMS[reduction](values.reshape(-1))
    from fastsample import _native

    how = _KINDS[values.dtype.char], isa, threads or 0
    if reduction == "fixed":
        return one_nan(_native.fixed_sum(values, *how))
    if reduction == "fast":
        return one_nan(_native.fast_sum(values, *how))
    digits, special = _native.exact_sum(values, *how)
    if special != 0.0:
        return one_nan(special)
    return rounded(int.from_bytes(digits, "little", signed=True))
