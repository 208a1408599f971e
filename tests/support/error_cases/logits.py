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
    call_error,
    frozen,
    logits_error,
    rows_error,
    rows_with,
)
from tests.support.error_cases.following import Arguments, Mended

POSITION: dict[str, Any] = {"seed": 1, "position": 0, "stream": "row"}
FINITE = "a logit must be finite, or -inf to ban its token"


def call_while_written(name: str, call: Callable[[Any], Any], row: list[float]) -> None:
    """Call a function with a row that becomes 0 when the engine has read it."""
    logits, read = np.array(row, np.float32), getattr(Execution, name)

    def read_and_write(*args: Any) -> Any:
        result = read(*args)
        logits[:] = 0
        return result

    with mock.patch.object(Execution, name, read_and_write):
        call(logits)


KEEP_OTHERS = "keep other threads from writing the logits until the call returns"
WRITTEN = [
    ErrorCase(
        lambda: call_while_written("sample", lambda row: sample(row, n=1), [1, np.nan]),
        ValueError,
        "`logits` changed while the call was reading it (keep other threads from writing the",
        Mended(KEEP_OTHERS, lambda: sample(np.float32([1, 9]), temperature=0).tokens.tolist(), 1),
    ),
    ErrorCase(
        lambda: call_while_written("kept_sets", lambda row: top_k(row, 2), [1, -np.inf]),
        ValueError,
        "`logits` changed while the call was reading it (keep other threads from writing the",
        Mended(KEEP_OTHERS, lambda: top_k(np.float32([1, -np.inf]), 2).tokens.tolist(), [0, 1]),
    ),
]

STEPS_WANTED = "select from `logits` of shape (B, T, V), got shape (4, 3) (leave it out for"
STEPS = np.stack([ROWS[:, ::-1], ROWS], axis=1)
"""Two steps of four sequences."""
LAST: dict[str, Any] = {"to": ("-1 is the last", -1)}
BAD_STEPS: list[tuple[Any, type[Exception], str, dict[str, Any]]] = [
    (2, ValueError, "in [-T, T) = [-2, 2), got 2 (a step of `logits` of shape (B, T, V): -1", LAST),
    ([0, -1, -3, 0], ValueError, "in [-T, T) = [-2, 2), got -3 at row 2 (a step of `logits`", LAST),
    (
        [0, 1],
        ValueError,
        "a scalar or have shape (B,) = (4,), got (2,) (one value per row of",
        {"to": ("one value per row of `logits`", [0, 1, -1, -2])},
    ),
    (True, TypeError, "an integer, got bool True (a step of `logits` of shape (B, T, V)", LAST),
    (np.zeros(4), TypeError, "an integer, got an array of float64 (pass `at.", {"means": 0}),
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
        np.ones(3, np.uint16),
        TypeError,
        "must be float32, float16 or bfloat16, got uint16 (pass",
        means=np.ones(3, np.float32),
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
        to=("pass a copy on the host, an array of NumPy", ROW),
    ),
    logits_error(
        Foreign(),
        TypeError,
        "must be an array that NumPy reads through DLPack, or bfloat16, got",
        to=("pass an array of NumPy", ROW),
    ),
    logits_error(
        Foreign(source=np.ones(3, complex)),
        TypeError,
        "must be float32, float16 or bfloat16, got complex128 (pass",
        means=np.ones(3, np.float32),
    ),
    logits_error(
        ROWS[None],
        ValueError,
        "must have shape (V,) or (B, V), got (1, 4, 3) (pass `logits[:, -",
        "logits[:, -1]",
        [2],
    ),
    logits_error(
        np.zeros((), np.float32),
        ValueError,
        "must have shape (V,) or (B, V), got () (pass",
        to=("pass all logits of a row", ROW),
    ),
    rows_error("at", -1, ValueError, STEPS_WANTED, to=("leave it out for rows", None)),
    *(
        rows_error("at", at, error, f"be {part}", logits=STEPS, **ways)
        for at, error, part, ways in BAD_STEPS
    ),
    logits_error(
        ROW[:0],
        ValueError,
        "must have 1 to 2**22 tokens per row, got shape (0,) (the last axis",
        to=("the last axis is the vocabulary", ROW),
    ),
    logits_error(
        np.zeros(2**22 + 1, np.float32),
        ValueError,
        "must have 1 to 2**22 tokens per row, got",
        to=("valid_vocab ends a longer one", Arguments(valid_vocab=3)),
    ),
    rows_error("valid_vocab", 0, ValueError, "be in [1, V] = [1, 3], got 0 (how many columns of"),
    rows_error("valid_vocab", 4, ValueError, "be in [1, V] = [1, 3], got 4 (how many columns of"),
    rows_error(
        "valid_vocab",
        2.0,
        TypeError,
        "be an integer, got float 2.0 (pass `int(valid_vocab)`",
        means=2,
    ),
    logits_error(
        rows_with(3, 2, np.nan),
        ValueError,
        "row 3 holds nan at token 2 (a logit must be finite",
        to=(FINITE, rows_with(3, 2, -np.inf)),
    ),
    logits_error(
        rows_with(1, 0, np.inf),
        ValueError,
        "row 1 holds inf at token 0 (a logit must be finite",
        to=(FINITE, rows_with(1, 0, -np.inf)),
    ),
    logits_error(
        rows_with(1, 0, np.inf).astype(np.float16),
        ValueError,
        "row 1 holds inf at token 0 (a logit",
        to=(FINITE, rows_with(1, 0, -np.inf).astype(np.float16)),
    ),
    logits_error(
        rows_with(3, 2, np.nan)[3],
        ValueError,
        "holds nan at token 2 (a logit must be finite",
        to=(FINITE, rows_with(3, 2, -np.inf)[3]),
    ),
    logits_error(
        np.full_like(ROWS, -np.inf),
        ValueError,
        "row 0 is -inf at every token (leave at least",
        to=("leave at least one token to draw", ROWS),
    ),
    call_error(
        sample,
        ValueError,
        "`logits` row 2 holds inf at token 2 after mask, bias and penalties (a logit must",
        ROWS,
        bias=[None, None, {1: -3e38, 2: 3e38}, None],
        output=[[2]] * 4,
        presence_penalty=-3e38,
        temperature=0,
        to=("a logit must be finite", Arguments(presence_penalty=-3e37)),
    ),
    call_error(
        sample,
        ValueError,
        "`logits` row 0 is -inf at every token after mask, bias and penalties (leave",
        ROWS,
        mask=np.zeros(3, bool),
        temperature=0,
        to=("leave at least one token to draw", Arguments(mask=np.array([True, False, False]))),
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
    call_error(
        sample,
        ValueError,
        "`out` must have the shape of the result, (4, 2), got (4,) (leave",
        ROWS,
        **POSITION,
        n=2,
        out=np.zeros(4, int),
    ),
    rows_error(
        "out",
        frozen(np.zeros(4, int)),
        ValueError,
        "be writable, got a read-only array (pass a",
        to=("pass a copy", np.zeros(4, int)),
    ),
    rows_error(
        "out",
        as_strided(np.zeros(1, int), (4,), (0,)),
        ValueError,
        "have memory of its own for each element, got strides of (0,) bytes for the shape (4,) (le",
    ),
    call_error(
        sample,
        ValueError,
        "`out` must have memory of its own for each element, got strides of (8, 8) bytes",
        ROWS,
        **POSITION,
        n=3,
        out=as_strided(np.zeros(6, int), (4, 3), (8, 8)),
    ),
]

ERROR_CASES = [*WRITTEN, *LOGITS, *OUT]
