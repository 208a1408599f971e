"""Rows and settings that are hard to draw from: the race against the inverse method.

On any row the mean of the race is to be at most 1.5 times the median of the inverse method, or 1 us
above it. `np.argmax`, interleaved with `np.max`, gives the scale for each shape of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from rivals import ARGMAX, OURS
from rows import ADVERSARIAL, of_the_package
from settings import SETTINGS, Setting, edges

import fastsample

if TYPE_CHECKING:
    from conftest import Bench

ROWS = of_the_package()[-1]


def compare(bench: Bench, setting: Setting, shape: str | None) -> None:
    """Time a setting on rows of a shape."""
    bench.compare(
        fastsample.Sampler(setting.sampling(), n_threads=1),
        bench.rows(ROWS, shape),
        fastsample.Sampler(setting.sampling(draw="inverse"), n_threads=1),
        table="adversarial",
        contender=OURS,
        setting=setting.name,
        source=shape or "generator",
        vocabulary=ROWS.vocabulary,
        partner="inverse",
        limit=None,
    )


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
@pytest.mark.parametrize("shape", ADVERSARIAL)
def test_shape(bench: Bench, shape: str, setting: Setting) -> None:
    """A row shape that no model produces."""
    compare(bench, setting, shape)


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("shape", ["random normal", None], ids=["random normal", "generator"])
def test_edge(bench: Bench, shape: str | None, number: int) -> None:
    """A setting at which the selection algorithm changes, or a flat distribution."""
    vocabulary = bench.rows(ROWS).shape[1]
    compare(bench, edges(vocabulary)[number], shape)


@pytest.mark.parametrize("shape", [*ADVERSARIAL, None])
def test_argmax(bench: Bench, shape: str | None) -> None:
    """NumPy's argmax on the same rows."""
    about = {"source": shape or "generator", "vocabulary": ROWS.vocabulary, "limit": None}
    about |= {"table": "adversarial", "contender": ARGMAX, "setting": ARGMAX}
    bench.compare(np.argmax, bench.rows(ROWS, shape), **about)
