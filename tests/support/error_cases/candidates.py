"""Errors in asking for a table of candidates."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastsample import candidates
from tests.support.error_cases import ROW, ROWS, ErrorCase, call_error


def of(error: type[Exception], part: str, *args: Any, **kwargs: Any) -> ErrorCase:
    return call_error(candidates, error, part, *args, **kwargs)


DRAW: dict[str, Any] = {"draw": True, "seed": 1}
FLOAT: dict[str, Any] = {"draw": True, "seed": 1.0}

ERROR_CASES = [
    of(ValueError, "`n` must be at least 1, got 0 (how", ROW, 0, to=("such as 10", 10)),
    of(TypeError, "`n` must be an integer, got float 2.0 (pass", ROW, 2.0, means=2),
    of(TypeError, "`n` must be an integer, got bool True (how", ROW, True, to=("such as 10", 10)),
    of(
        ValueError,
        "`logits` must be one row of shape (V,), got (4, 3) (pass `logits[0]`)",
        ROWS,
        means=ROW,
    ),
    of(
        ValueError,
        "`logits` is -inf at every token (leave at least",
        np.full_like(ROW, -np.inf),
        to=("leave at least one token to draw", ROW),
    ),
    of(
        ValueError,
        "`logits` holds nan at token 1 (a logit must",
        np.float32([1, np.nan]),
        to=("-inf to ban its token", np.float32([1, -np.inf])),
    ),
    of(ValueError, "`top_p` must be in [0, 1], got 1.3 (a share of", ROW, top_p=1.3),
    of(
        ValueError,
        "`seed` must be given with `draw`, got None (the seed of",
        ROW,
        draw=True,
        to=("the seed of the draw", 1),
    ),
    of(
        TypeError,
        "`draw` must be True or False, got str 'race' (True also returns how a race draws a token",
        ROW,
        draw="race",
        seed=1,
        to=("True also returns how a race draws a token", True),
    ),
    of(
        ValueError,
        "`draw` must be True with a seed, position or stream, got False and 3",
        ROW,
        seed=3,
        to=("or pass draw=True", True),
    ),
    of(ValueError, "`stream` must be in [0, 2**32), got -1 (", ROW, draw=True, seed=1, stream=-1),
    of(
        TypeError,
        "`stream` must be an integer, got str 'row' (which continuation of the seed, 0",
        ROW,
        draw=True,
        seed=1,
        stream="row",
    ),
    of(TypeError, "`position` must be an integer, got str '' (", ROW, **DRAW, position=""),
    of(TypeError, "`stream` must be an integer, got bool False (", ROW, **DRAW, stream=False),
    of(
        TypeError,
        "`seed` must be an integer, got float 1.0 (pass `int(seed)`; a",
        ROW,
        **FLOAT,
        means=1,
    ),
]
