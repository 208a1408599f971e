"""Errors in asking for a table of candidates."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastsample import candidates
from tests.support.error_cases import ROW, ROWS, ErrorCase


def of(error: type[Exception], part: str, *args: Any, **kwargs: Any) -> ErrorCase:
    return ErrorCase(lambda: candidates(*args, **kwargs), error, part)


DRAW: dict[str, Any] = {"draw": True, "seed": 1}
FLOAT: dict[str, Any] = {"draw": True, "seed": 1.0}

ERROR_CASES = [
    of(ValueError, "`n` must be at least 1, got 0 (tokens to list)", ROW, 0),
    of(TypeError, "`n` must be an integer, got float 2.0 (tokens to list)", ROW, 2.0),
    of(TypeError, "`n` must be an integer, got bool True (tokens to list)", ROW, True),
    of(ValueError, "`logits` must be one row of shape (V,), got (4, 3) (pass `logits[0]`)", ROWS),
    of(ValueError, "`logits` is -inf at every token (leave at least", np.full_like(ROW, -np.inf)),
    of(ValueError, "`logits` holds nan at token 1 (a logit must", np.float32([1, np.nan])),
    of(ValueError, "`top_p` must be in [0, 1], got 1.3 (a share of", ROW, top_p=1.3),
    of(ValueError, "`seed` must be given with `draw`, got None (the seed of", ROW, draw=True),
    of(
        TypeError,
        "`draw` must be True or False, got str 'race' (True also returns how a race draws a token",
        ROW,
        draw="race",
        seed=1,
    ),
    of(
        ValueError,
        "`draw` must be True with a seed, position or stream, got False and 3",
        ROW,
        seed=3,
    ),
    of(ValueError, "`stream` must be in [0, 2**32), got -1 (", ROW, draw=True, seed=1, stream=-1),
    of(
        TypeError,
        "`stream` must be an integer, got str 'row' (which continuation of the seed)",
        ROW,
        draw=True,
        seed=1,
        stream="row",
    ),
    of(TypeError, "`position` must be an integer, got str '' (", ROW, **DRAW, position=""),
    of(TypeError, "`stream` must be an integer, got bool False (", ROW, **DRAW, stream=False),
    of(TypeError, "`seed` must be an integer, got float 1.0 (take it modulo 2**64)", ROW, **FLOAT),
]
