"""The cost of determinism: exact and fixed against fast; and sums of plain arrays.

All draw by the inverse method, so that only the sums differ. The race has no fast mode.

python benches/publish.py --only reductions
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rivals import OURS, TORCH, is_installed
from rows import of_the_package
from settings import FIXED_LIMIT, SETTINGS, Setting, edges, exact_limit

import fastsample

if TYPE_CHECKING:
    from conftest import Bench

ROWS = of_the_package()[-1]
ABOUT = {"contender": OURS, "source": ROWS.source, "vocabulary": ROWS.vocabulary}
NUMBERS = 1_000_000
ARRAYS = 8

each_reduction = pytest.mark.parametrize("reduction", ["exact", "fixed"])
pytestmark = pytest.mark.usefixtures("one_torch_thread")


def limit_of(reduction: str, name: str) -> float | None:
    """Return the target: the time of the same call under fast, multiplied by this."""
    return FIXED_LIMIT if reduction == "fixed" else exact_limit(name)


@each_reduction
@pytest.mark.parametrize(
    "setting", (*SETTINGS, *edges(ROWS.vocabulary)), ids=lambda setting: setting.name
)
def test_draw(bench: Bench, setting: Setting, reduction: str) -> None:
    """One row, one thread, one token."""

    def sampler(reduction: str) -> Any:
        params = setting.sampling(draw="inverse")
        return fastsample.Sampler(params, n_threads=1, reduction=reduction)

    rows = bench.rows(ROWS)
    about = {"setting": setting.name, "limit": limit_of(reduction, setting.name), "partner": "fast"}
    about |= {"table": "reductions", "reduction": reduction}
    bench.compare(sampler(reduction), rows, sampler("fast"), **ABOUT, **about)


@each_reduction
def test_softmax(bench: Bench, reduction: str) -> None:
    """Softmax of a row into an array that is there."""
    rows = bench.rows(ROWS)
    out = np.empty_like(rows[0])

    def softmax(reduction: str) -> Callable[[np.ndarray], Any]:
        return lambda row: fastsample.softmax(row, out=out, n_threads=1, reduction=reduction)

    about = {"setting": "softmax", "limit": limit_of(reduction, "softmax"), "partner": "fast"}
    about |= {"table": "reductions", "reduction": reduction}
    bench.compare(softmax(reduction), rows, softmax("fast"), **ABOUT, **about)


def torch_sum(array: np.ndarray) -> Any:
    """Sum as torch does."""
    import torch

    return torch.from_numpy(array).sum()


SUMS: dict[str, Callable[[np.ndarray], Any]] = {
    **{
        f"reduce_sum, {reduction}": lambda x, reduction=reduction: fastsample.reduce_sum(
            x, reduction, n_threads=1
        )
        for reduction in ("exact", "fixed", "fast")
    },
    TORCH: torch_sum,
    "math.fsum": math.fsum,
}


@pytest.mark.parametrize("contender", SUMS)
def test_sum(bench: Bench, contender: str) -> None:
    """A million numbers, one thread, against `np.sum`."""
    if contender == TORCH and not is_installed(TORCH):
        pytest.skip("torch is not installed")
    arrays = [array[:NUMBERS] for array in bench.rows(ROWS).reshape(ARRAYS, -1)]
    about = {"contender": contender, "source": ROWS.source, "vocabulary": arrays[0].size}
    about |= {"table": "sums", "setting": "sum", "limit": None, "partner": "np.sum"}
    bench.compare(SUMS[contender], arrays, np.sum, **about)
