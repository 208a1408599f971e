"""Errors in the functions that look at whole rows, and at what filters leave of them."""

from __future__ import annotations

from typing import Any
from unittest import mock

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
from fastsample.verification import run
from tests.support.error_cases import ROW, ROWS, call_error, frozen, rows_with
from tests.support.error_cases.following import Arguments

SHARED = np.zeros(1, np.int64)
REDUCTIONS = '"exact", "fixed" or "fast"'
FINITE = ("a logit must be finite, or -inf to ban its token", rows_with(3, 2, -np.inf))


def arguments_of_verify(logits: Any = None, **arguments: Any) -> list[Any]:
    """What `verify` would check with these arguments; the check takes seconds and is left out."""
    with mock.patch.object(run, "Verification") as verification:
        verify(logits, **arguments)
    seconds, seed, quick, _, valid_rows, progress = verification.call_args.args
    return [seconds, seed if "seed" in arguments else None, quick, valid_rows, progress]


NAN = "`logits` row 3 holds nan at token 2 (a logit must be finite"


ERROR_CASES = [
    call_error(
        arguments_of_verify,
        ValueError,
        "`minutes` must be above 0 and finite, got 0.0 (1 is one",
        minutes=0,
    ),
    call_error(
        arguments_of_verify,
        TypeError,
        "`minutes` must be a number, got str '1' (pass",
        minutes="1",
        means=1,
    ),
    call_error(
        arguments_of_verify, TypeError, "`minutes` must be a number, got bool True (", minutes=True
    ),
    call_error(
        arguments_of_verify,
        TypeError,
        "`quick` must be True or False, got str 'no' (True takes",
        quick="no",
        to=("True takes about 5 seconds", True),
    ),
    call_error(
        arguments_of_verify,
        TypeError,
        "`progress` must be callable, got int 3 (it is",
        progress=3,
        to=("None calls nothing", None),
    ),
    call_error(
        arguments_of_verify,
        ValueError,
        "`minutes` must be above 0 and finite, got inf (",
        minutes=np.inf,
    ),
    call_error(
        arguments_of_verify,
        ValueError,
        "`minutes` must be left out with `quick`, got 2",
        minutes=2,
        quick=True,
        to=("one of both", None),
    ),
    call_error(
        arguments_of_verify,
        ValueError,
        "a row from which a token can be drawn, got none (",
        ROW * np.nan,
        to=("a valid row holds a logit above -inf", ROW),
    ),
    call_error(
        arguments_of_verify,
        ValueError,
        "`seed` must be in [0, 2**64), got -1 (",
        seed=-1,
        means=2**64 - 1,
    ),
    *(
        call_error(function, ValueError, NAN, rows_with(3, 2, np.nan), to=FINITE)
        for function in (softmax, log_softmax, logsumexp, kept_set, filter_logits)
    ),
    *(
        call_error(function, ValueError, NAN, rows_with(3, 2, np.nan), limit, to=FINITE)
        for function, limit in ((top_k, 2), (top_p, 0.5))
    ),
    call_error(
        softmax, ValueError, "`temperature` must be 0 or a finite number > 0, got -1.0 (", ROW, -1
    ),
    call_error(
        logsumexp, ValueError, "`temperature` must be a finite number > 0, got 0.0 (1", ROW, 0
    ),
    call_error(
        logsumexp,
        ValueError,
        "`temperature` must be a finite number > 0, got 0.0 at row 1 (1 changes nothing; at 0",
        ROWS,
        [1, 0, 1, 1],
    ),
    *(
        call_error(
            function, ValueError, f"`reduction` must be {REDUCTIONS}, got 1 (", ROW, reduction=1
        )
        for function in (softmax, log_softmax, logsumexp)
    ),
    call_error(
        softmax, TypeError, "`out` must be float32 on the CPU, got float64", ROW, out=np.ones(3)
    ),
    call_error(
        softmax,
        ValueError,
        "`out` must be writable, got",
        ROW,
        out=frozen(np.ones(3, np.float32)),
        to=("pass a copy", np.ones(3, np.float32)),
    ),
    call_error(
        logsumexp,
        ValueError,
        "`out` must have the shape of the result, (4,), got (3,) (",
        ROWS,
        out=np.ones(3),
    ),
    call_error(
        filter_logits,
        TypeError,
        "`out` must be float32 on the CPU, got float16",
        ROW,
        out=np.ones(3, np.float16),
    ),
    call_error(
        filter_logits,
        ValueError,
        "`logits` must have a dtype that holds them adjusted, got 70000.0 for token 1 of row 0 (",
        np.zeros(3, np.float16),
        bias={1: 7e4},
        to=("pass them in float32", np.zeros(3, np.float32)),
    ),
    call_error(
        kept_set,
        ValueError,
        "`bias` must hold tokens in [0, 3), got 3 (tokens are",
        ROW,
        bias={3: 1},
        to=("leave others out", {}),
    ),
    call_error(
        kept_set, ValueError, "`n_threads` must be in [1, 2**31), got 0 (None", ROW, n_threads=0
    ),
    call_error(
        top_k,
        TypeError,
        "`out` must be a pair (values, tokens), got ndarray (",
        ROW,
        2,
        out=np.ones(2, np.float32),
    ),
    call_error(
        top_k,
        ValueError,
        "`out` must be left out with one `k` per row, got tuple (",
        ROWS,
        [1, 2, 1, 1],
        out=(np.ones(5, np.float32), np.ones(5, np.int64)),
        to=(
            "pass one `k`",
            Arguments(k=2, out=(np.ones((4, 2), np.float32), np.ones((4, 2), np.int64))),
        ),
    ),
    call_error(
        top_k,
        ValueError,
        "`out` must be two arrays, got values and tokens that share memory (",
        ROW,
        1,
        out=(SHARED.view(np.float32)[:1], SHARED),
    ),
    call_error(
        kept_set, ValueError, "`engine` must be 'native', 'numba', 'reference'", ROW, engine="cuda"
    ),
]
