"""The Triton engine races as the reference, on both paths: random rows and settings, borders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastsample.params.ops import DrawMethod
from tests.support.engines import Engine, differing, make_output, make_plan, make_request
from tests.support.race_cases import random_race_batch

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = pytest.mark.triton

import tests.support.fast_interpreter  # noqa: E402, F401

REFERENCE, TRITON = Engine("reference"), Engine("triton")
RACE = int(DrawMethod.RACE)


def compare(
    values: np.ndarray, draws: int = 2, modes: tuple[str, ...] = (), **settings: Any
) -> Any:
    """Compare a batch on the engine with the reference, and return the tokens."""
    request = make_request(values, make_plan(len(values), **{"draw": RACE, **settings}))
    count = min(3, values.shape[1]) if modes else 0
    expected, found = (
        engine.run(request, make_output(len(values), draws, modes, count))
        for engine in (REFERENCE, TRITON)
    )
    assert differing(expected, found) == [], settings
    return expected.tokens


@pytest.mark.parametrize(
    "n_batches", [20, pytest.param(500, marks=pytest.mark.nightly)], ids=["80", "2k"]
)
def test_random_cases(n_batches: int) -> None:
    rng = np.random.default_rng(n_batches)
    for _ in range(n_batches):
        rows, settings = random_race_batch(rng, 4)
        compare(rows, **settings)
