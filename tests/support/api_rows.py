"""The rows that the tests of functions look at, and how they look at what comes back."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.support.engines import Engine

try:
    import torch
except ModuleNotFoundError:
    torch = None
try:
    import ml_dtypes
except ModuleNotFoundError:
    ml_dtypes = None

RNG = np.random.default_rng(31)
ROWS = (RNG.normal(size=(5, 9000)) * 4).astype(np.float32)
ROWS[1, ::3] = -np.inf
ROWS[2, 10:30] = 9.5  # ties at the top
TEMPERATURES = [0.3, 1.0, 0.0, 2.5, 1e-20]
with_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")
with_ml_dtypes = pytest.mark.skipif(ml_dtypes is None, reason="ml_dtypes is not installed")


def on(engine: Engine) -> dict[str, Any]:
    """The keywords that ask for an engine."""
    return {"engine": engine.name, "isa": engine.isa}


def bits(array: Any) -> Any:
    """The bits of an array, so that nan, -0 and +0 are compared as they are."""
    array = np.asarray(array)
    return array.view(f"u{array.itemsize}").tolist()


def row_parts(found: Any, part: str = "tokens") -> list[list[Any]]:
    """One list per row, of a result with offsets."""
    flat = np.asarray(getattr(found, part)).reshape(-1)
    ends = np.asarray(found.offsets).tolist()
    return [flat[a:b].tolist() for a, b in pairwise(ends)]


def frozen(array: np.ndarray) -> np.ndarray:
    """The array, read-only from now on."""
    array.flags.writeable = False
    return array
