"""Rows and settings that are hard to select from: at most 3 times the setting's target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rivals import OURS
from rows import ADVERSARIAL, GENERATOR, RowSet
from settings import ADVERSARIAL_MARGIN, SETTINGS, Setting, edges

import fastsample

if TYPE_CHECKING:
    from conftest import Bench

ROWS = RowSet(GENERATOR, 151_936)


def compare(bench: Bench, setting: Setting, shape: str | None) -> None:
    """Time a setting on rows of a shape."""
    bench.compare(
        fastsample.Sampler(setting.sampling(), n_threads=1),
        bench.rows(ROWS, shape),
        table="adversarial",
        contender=OURS,
        setting=setting.name,
        source=shape or "generator",
        vocabulary=ROWS.vocabulary,
        limit=setting.limit * ADVERSARIAL_MARGIN,
    )


@pytest.mark.parametrize("shape", ADVERSARIAL)
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_shape(bench: Bench, shape: str, setting: Setting) -> None:
    """A row shape that no model produces."""
    compare(bench, setting, shape)


@pytest.mark.parametrize("shape", [None, "random normal"], ids=["generator", "random normal"])
@pytest.mark.parametrize("number", range(3))
def test_edge(bench: Bench, shape: str | None, number: int) -> None:
    """A setting at which the selection algorithm changes."""
    vocabulary = bench.rows(ROWS).shape[1]
    compare(bench, edges(vocabulary)[number], shape)
