"""Errors in the functions that look at whole rows, and at what filters leave of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastsample import (
    filter_logits,
    kept_set,
    log_softmax,
    logsumexp,
    softmax,
    top_k,
    top_p,
    verify,
)
from tests.support.error_cases import ROW, ROWS, ErrorCase, frozen, rows_with

SHARED = np.zeros(1, np.int64)
REDUCTIONS = '"exact", "fixed" or "fast"'
NAN = "`logits` row 3 holds nan at token 2 (a logit must be finite"


def of(function: Any, error: type[Exception], part: str, *args: Any, **kwargs: Any) -> ErrorCase:
    return ErrorCase(lambda: function(*args, **kwargs), error, part)


ERROR_CASES = [
    of(verify, ValueError, "`minutes` must be above 0 and finite, got 0.0 (1 is one", minutes=0),
    of(verify, TypeError, "`minutes` must be a number, got str '1' (1 is one minute", minutes="1"),
    of(verify, TypeError, "`minutes` must be a number, got bool True (", minutes=True),
    of(verify, TypeError, "`quick` must be True or False, got str 'no' (True takes", quick="no"),
    of(verify, TypeError, "`progress` must be callable, got int 3 (it is", progress=3),
    of(verify, ValueError, "`minutes` must be above 0 and finite, got inf (", minutes=np.inf),
    of(verify, ValueError, "`minutes` must be left out with `quick`, got 2", minutes=2, quick=True),
    of(verify, ValueError, "a row from which a token can be drawn, got none (", ROW * np.nan),
    of(verify, ValueError, "`seed` must be in [0, 2**64), got -1 (", seed=-1),
    *(
        of(function, ValueError, NAN, rows_with(3, 2, np.nan))
        for function in (softmax, log_softmax, logsumexp, kept_set, filter_logits)
    ),
    *(
        of(function, ValueError, NAN, rows_with(3, 2, np.nan), limit)
        for function, limit in ((top_k, 2), (top_p, 0.5))
    ),
    of(softmax, ValueError, "`temperature` must be 0 or a finite number > 0, got -1.0 (", ROW, -1),
    of(logsumexp, ValueError, "`temperature` must be a finite number > 0, got 0.0 (at 0", ROW, 0),
    of(
        logsumexp,
        ValueError,
        "`temperature` must be a finite number > 0, got 0.0 at row 1 (at 0 the sum has no log",
        ROWS,
        [1, 0, 1, 1],
    ),
    *(
        of(function, ValueError, f"`reduction` must be {REDUCTIONS}, got 1 (", ROW, reduction=1)
        for function in (softmax, log_softmax, logsumexp)
    ),
    of(softmax, TypeError, "`out` must be float32 on the CPU, got float64", ROW, out=np.ones(3)),
    of(softmax, ValueError, "`out` must be writable, got", ROW, out=frozen(np.ones(3, np.float32))),
    of(
        logsumexp,
        ValueError,
        "`out` must have the shape of the result, (4,), got (3,) (",
        ROWS,
        out=np.ones(3),
    ),
    of(
        filter_logits,
        TypeError,
        "`out` must be float32 on the CPU, got float16",
        ROW,
        out=np.ones(3, np.float16),
    ),
    of(
        filter_logits,
        ValueError,
        "`logits` must have a dtype that holds them adjusted, got 70000.0 for token 1 of row 0 (",
        np.zeros(3, np.float16),
        bias={1: 7e4},
    ),
    of(
        kept_set,
        ValueError,
        "`bias` must hold tokens in [0, 3), got 3 (tokens are",
        ROW,
        bias={3: 1},
    ),
    of(kept_set, ValueError, "`n_threads` must be in [1, 2**31), got 0 (None", ROW, n_threads=0),
    of(
        top_k,
        TypeError,
        "`out` must be a pair (values, tokens), got ndarray (",
        ROW,
        2,
        out=np.ones(2, np.float32),
    ),
    of(
        top_k,
        ValueError,
        "`out` must be left out with one `k` per row, got tuple (",
        ROWS,
        [1, 2, 1, 1],
        out=(np.ones(5, np.float32), np.ones(5, np.int64)),
    ),
    of(
        top_k,
        ValueError,
        "`out` must be two arrays, got values and tokens that share memory (",
        ROW,
        1,
        out=(SHARED.view(np.float32)[:1], SHARED),
    ),
    of(kept_set, ValueError, "`engine` must be 'native', 'numba', 'reference'", ROW, engine="cuda"),
]
