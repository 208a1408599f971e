"""Errors in logits and in what they are written to."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.lib.stride_tricks import as_strided

from fastsample import sample, top_k
from fastsample.engines.execution import Execution
from tests.support.error_cases import (
    ROW,
    ROWS,
    ErrorCase,
    Foreign,
    frozen,
    logits_error,
    rows_error,
    rows_with,
)


def call_while_written(name: str, call: Callable[[Any], Any], row: list[float]) -> None:
    """Call a function with a row that becomes 0 when the engine has read it."""
    logits, read = np.array(row, np.float32), getattr(Execution, name)

    def read_and_write(*args: Any) -> Any:
        result = read(*args)
        logits[:] = 0
        return result

    with mock.patch.object(Execution, name, read_and_write):
        call(logits)


WRITTEN = [
    ErrorCase(
        lambda: call_while_written("sample", lambda row: sample(row, n=1), [1, np.nan]),
        ValueError,
        "`logits` changed while the call was reading it (keep other threads from writing the",
    ),
    ErrorCase(
        lambda: call_while_written("kept_sets", lambda row: top_k(row, 2), [1, -np.inf]),
        ValueError,
        "`logits` changed while the call was reading it (keep other threads from writing the",
    ),
]

STEPS_WANTED = "select from `logits` of shape (B, T, V), got shape (4, 3) (leave it out for"
BAD_STEPS: list[tuple[Any, type[Exception], str]] = [
    (1, ValueError, "in [-T, T) = [-1, 1), got 1 (a step of `logits` of shape (B, T, V): -1 is"),
    ([0, -1, -2, 0], ValueError, "in [-T, T) = [-1, 1), got -2 at row 2 (a step of `logits` of"),
    ([0, 0], ValueError, "a scalar or have shape (B,) = (4,), got (2,) (one value per row of"),
    (True, TypeError, "an integer, got bool True (a step of `logits` of shape (B, T, V)"),
    (np.zeros(4), TypeError, "an integer, got an array of float64 (a step of `logits` of"),
]

LOGITS = [
    logits_error(
        SimpleNamespace(logits=ROWS[:, None]),
        TypeError,
        "must be a NumPy array, a torch CPU tensor or an array with __dlpack__, got "
        "SimpleNamespace (pass `output.logits[:, -1]`)",
        "output.logits[:, -1]",
        [2] * 4,
    ),
    logits_error(
        [1.0, 2.0],
        TypeError,
        "must be a NumPy array, a torch CPU tensor or an array with __dlpack__",
        "np.asarray(logits, dtype=np.float32)",
        1,
    ),
    logits_error(
        ROW.astype(float),
        TypeError,
        "must be float32, float16 or bfloat16, got float64 (pass `log",
        "logits.astype(np.float32)",
        2,
    ),
    logits_error(
        np.ones(3, np.uint16), TypeError, "must be float32, float16 or bfloat16, got uint16 (pass"
    ),
    logits_error(
        ROW.astype(">f4"),
        TypeError,
        "must be in this machine's byte order, got '>f4' (pass",
        "logits.astype(logits.dtype.newbyteorder('='))",
        2,
    ),
    logits_error(
        ROW.astype(">f2"),
        TypeError,
        "must be in this machine's byte order, got '>f2' (pass",
        "logits.astype(logits.dtype.newbyteorder('='))",
        2,
    ),
    logits_error(
        np.ma.array(ROW, mask=[0, 0, 1]),
        TypeError,
        "must be a plain array, got a masked one (pass `logits.fil",
        "logits.filled(-np.inf)",
        1,
    ),
    logits_error(
        Foreign(device=2),
        TypeError,
        "must be on the CPU, got a tests.support.error_cases.Foreign on a device of D",
    ),
    logits_error(
        Foreign(), TypeError, "must be an array that NumPy reads through DLPack, or bfloat16, got"
    ),
    logits_error(
        Foreign(source=np.ones(3, complex)),
        TypeError,
        "must be float32, float16 or bfloat16, got complex128 (pass",
    ),
    logits_error(
        ROWS[None],
        ValueError,
        "must have shape (V,) or (B, V), got (1, 4, 3) (pass `logits[:, -",
        "logits[:, -1]",
        [2],
    ),
    logits_error(
        np.zeros((), np.float32), ValueError, "must have shape (V,) or (B, V), got () (one row"
    ),
    rows_error("at", -1, ValueError, STEPS_WANTED),
    *(
        ErrorCase(lambda at=at: sample(ROWS[:, None], at=at), error, f"`at` must be {part}")
        for at, error, part in BAD_STEPS
    ),
    logits_error(
        ROW[:0], ValueError, "must have 1 to 2**22 tokens per row, got shape (0,) (the last axis"
    ),
    logits_error(
        np.zeros(2**22 + 1, np.float32), ValueError, "must have 1 to 2**22 tokens per row, got"
    ),
    rows_error("valid_vocab", 0, ValueError, "be in [1, V] = [1, 3], got 0 (how many columns of"),
    rows_error("valid_vocab", 4, ValueError, "be in [1, V] = [1, 3], got 4 (how many columns of"),
    rows_error("valid_vocab", 2.0, TypeError, "be an integer, got float 2.0 (how many columns of"),
    logits_error(
        rows_with(3, 2, np.nan), ValueError, "row 3 holds nan at token 2 (a logit must be finite"
    ),
    logits_error(
        rows_with(1, 0, np.inf), ValueError, "row 1 holds inf at token 0 (a logit must be finite"
    ),
    logits_error(
        rows_with(1, 0, np.inf).astype(np.float16),
        ValueError,
        "row 1 holds inf at token 0 (a logit",
    ),
    logits_error(
        rows_with(3, 2, np.nan)[3], ValueError, "holds nan at token 2 (a logit must be finite"
    ),
    logits_error(
        np.full_like(ROWS, -np.inf), ValueError, "row 0 is -inf at every token (leave at least"
    ),
    ErrorCase(
        lambda: sample(
            ROWS,
            bias=[None, None, {1: -3e38, 2: 3e38}, None],
            output=[[2]] * 4,
            presence_penalty=-3e38,
        ),
        ValueError,
        "`logits` row 2 holds inf at token 2 after mask, bias and penalties (a logit must",
    ),
    ErrorCase(
        lambda: sample(ROWS, mask=np.zeros(3, bool)),
        ValueError,
        "`logits` row 0 is -inf at every token after mask, bias and penalties (leave",
    ),
]

OUT = [
    rows_error(
        "out", [0] * 4, TypeError, "be a numpy.ndarray as `logits` is, got list (leave it out"
    ),
    rows_error(
        "out", np.zeros(4), TypeError, "be int64 on the CPU, got float64 on cpu (leave it out"
    ),
    rows_error(
        "out", np.zeros(3, int), ValueError, "have the shape of the result, (4,), got (3,) ("
    ),
    ErrorCase(
        lambda: sample(ROWS, n=2, out=np.zeros(4, int)),
        ValueError,
        "`out` must have the shape of the result, (4, 2), got (4,) (leave",
    ),
    rows_error(
        "out", frozen(np.zeros(4, int)), ValueError, "be writable, got a read-only array (pass a"
    ),
    rows_error(
        "out",
        as_strided(np.zeros(1, int), (4,), (0,)),
        ValueError,
        "have memory of its own for each element, got strides of (0,) bytes for the shape (4,) (le",
    ),
    ErrorCase(
        lambda: sample(ROWS, n=3, out=as_strided(np.zeros(6, int), (4, 3), (8, 8))),
        ValueError,
        "`out` must have memory of its own for each element, got strides of (8, 8) bytes",
    ),
]

ERROR_CASES = [*WRITTEN, *LOGITS, *OUT]
