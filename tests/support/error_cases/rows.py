"""Mistakes in logits and in what they are written to."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from numpy.lib.stride_tricks import as_strided

from fastsample import sample
from tests.support.error_cases import ROW, ROWS, Foreign, Mistake, frozen, given, logits, rows_with

LOGITS = [
    logits(
        SimpleNamespace(logits=ROWS),
        TypeError,
        "must be a NumPy array, a torch CPU tensor or an array with __dlpack__, got "
        "SimpleNamespace (pass `output.logits[:, -1]`)",
    ),
    logits(
        [1.0, 2.0],
        TypeError,
        "must be a NumPy array, a torch CPU tensor or an array with __dlpack__",
    ),
    logits(
        ROW.astype(float), TypeError, "must be float32, float16 or bfloat16, got float64 (pass `log"
    ),
    logits(
        np.ones(3, np.uint16), TypeError, "must be float32, float16 or bfloat16, got uint16 (pass"
    ),
    logits(ROW.astype(">f4"), TypeError, "must be in this machine's byte order, got '>f4' (pass"),
    logits(ROW.astype(">f2"), TypeError, "must be in this machine's byte order, got '>f2' (pass"),
    logits(
        np.ma.array(ROW), TypeError, "must be a plain array, got a masked one (pass `logits.fil"
    ),
    logits(
        Foreign(device=2),
        TypeError,
        "must be on the CPU, got a tests.support.error_cases.Foreign on a device of D",
    ),
    logits(
        Foreign(), TypeError, "must be an array that NumPy reads through DLPack, or bfloat16, got"
    ),
    logits(
        Foreign(source=np.ones(3, complex)),
        TypeError,
        "must be float32, float16 or bfloat16, got complex128 (pass",
    ),
    logits(
        ROWS[None], ValueError, "must have shape (V,) or (B, V), got (1, 4, 3) (pass `logits[:, -"
    ),
    logits(np.zeros((), np.float32), ValueError, "must have shape (V,) or (B, V), got () (one row"),
    logits(
        ROW[:0], ValueError, "must have 1 to 2**22 tokens per row, got shape (0,) (the last axis"
    ),
    logits(np.zeros(2**22 + 1, np.float32), ValueError, "must have 1 to 2**22 tokens per row, got"),
    given("valid_vocab", 0, ValueError, "be in [1, V] = [1, 3], got 0 (how many columns of"),
    given("valid_vocab", 4, ValueError, "be in [1, V] = [1, 3], got 4 (how many columns of"),
    given("valid_vocab", 2.0, TypeError, "be an integer, got float 2.0 (how many columns of"),
    logits(
        rows_with(3, 2, np.nan), ValueError, "row 3 holds nan at token 2 (a logit must be finite"
    ),
    logits(
        rows_with(1, 0, np.inf), ValueError, "row 1 holds inf at token 0 (a logit must be finite"
    ),
    logits(
        rows_with(1, 0, np.inf).astype(np.float16),
        ValueError,
        "row 1 holds inf at token 0 (a logit",
    ),
    logits(rows_with(3, 2, np.nan)[3], ValueError, "holds nan at token 2 (a logit must be finite"),
    logits(np.full_like(ROWS, -np.inf), ValueError, "row 0 is -inf at every token (leave at least"),
    Mistake(
        lambda: sample(
            ROWS,
            bias=[None, None, {1: -3e38, 2: 3e38}, None],
            output=[[2]] * 4,
            presence_penalty=-3e38,
        ),
        ValueError,
        "`logits` row 2 holds inf at token 2 after mask, bias and penalties (a logit must",
    ),
    Mistake(
        lambda: sample(ROWS, mask=np.zeros(3, bool)),
        ValueError,
        "`logits` row 0 is -inf at every token after mask, bias and penalties (leave",
    ),
]

OUT = [
    given("out", [0] * 4, TypeError, "be a numpy.ndarray as `logits` is, got list (leave it out"),
    given("out", np.zeros(4), TypeError, "be int64 on the CPU, got float64 on cpu (leave it out"),
    given("out", np.zeros(3, int), ValueError, "have the shape of the answer, (4,), got (3,) ("),
    Mistake(
        lambda: sample(ROWS, n=2, out=np.zeros(4, int)),
        ValueError,
        "`out` must have the shape of the answer, (4, 2), got (4,) (leave",
    ),
    given(
        "out", frozen(np.zeros(4, int)), ValueError, "be writable, got a read-only array (pass a"
    ),
    given(
        "out",
        as_strided(np.zeros(1, int), (4,), (0,)),
        ValueError,
        "have memory of its own for each element, got strides of (0,) bytes for the shape (4,) (le",
    ),
    Mistake(
        lambda: sample(ROWS, n=3, out=as_strided(np.zeros(6, int), (4, 3), (8, 8))),
        ValueError,
        "`out` must have memory of its own for each element, got strides of (8, 8) bytes",
    ),
]

MISTAKES = [*LOGITS, *OUT]
