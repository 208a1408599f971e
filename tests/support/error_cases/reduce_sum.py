"""Errors in sums of any array."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastsample import reduce_sum
from tests.support.engines import NATIVE, without_modules
from tests.support.error_cases import ROW, ErrorCase, call_error


def sum_without_native(isa: str | None) -> Any:
    """The sum of a row as if the extension were not installed."""
    with without_modules(NATIVE):
        return reduce_sum(ROW, isa=isa)


def of(error: type[Exception], part: str, *args: Any, **kwargs: Any) -> ErrorCase:
    return call_error(reduce_sum, error, part, *args, **kwargs)


ERROR_CASES = [
    of(ValueError, '`reduction` must be "exact", "fixed" or "fast", got \'kahan\' (', ROW, "kahan"),
    of(
        TypeError,
        "`x` must be float16, bfloat16, float32 or float64, got int64 (pass `x.astype(np.flo",
        np.ones(3, np.int64),
        means=np.ones(3),
    ),
    of(
        TypeError,
        "`x` must be in this machine's byte order, got '>f8' (pass `x.a",
        np.ones(3, ">f8"),
        means=np.ones(3),
    ),
    of(
        TypeError,
        "`x` must be a NumPy array, a torch CPU tensor or an array with __dlpack__, got list (pass "
        "`np.asarray(x, dtype=np.float64)`)",
        [1.0, 2.0],
        means=np.array([1.0, 2.0]),
    ),
    of(
        TypeError,
        "`x` must be a plain array, got a masked one (pass `x.filled(0)`)",
        np.ma.array(ROW),
        means=ROW,
    ),
    of(ValueError, "`n_threads` must be in [1, 2**31), got 0 (None", ROW, n_threads=0),
    call_error(
        sum_without_native,
        RuntimeError,
        "`isa` must be left out where the compiled extension is not installed, got",
        isa="baseline",
        to=("leave it out", None),
    ),
]
