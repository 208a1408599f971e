"""Frequencies of many draws by race against the masses of section 4; wrong distributions fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.engines import Engine, make_plan, make_request, native
from tests.support.frequencies import count_draws, tails
from tests.support.goodness_of_fit import ALPHA
from tests.support.oracle import REFERENCE
from tests.support.race_cases import race_of
from tests.support.random_rows import normal

pytestmark = pytest.mark.skipif(native is None, reason="fastsample._native is not built")

SMALL, LARGE = 32, 151_936
SETTINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.8},
    {"top_p": 0.9},
    {"temperature": 1.5, "top_p": 0.95},
)
LISTED: dict[str, Any] = {"temperature": 1.7, "top_k": 20}


def row_of(size: int) -> np.ndarray:
    return normal(np.random.default_rng(size), size, 1.2 if size == SMALL else 2.5)


def counts_of(size: int, settings: dict[str, Any], n_draws: int) -> np.ndarray:
    plan = make_plan(1, seed=2026, position=11, draw="race", **settings)
    request = make_request(row_of(size)[np.newaxis], plan)
    return count_draws(Engine("native", native.default_isa()), request, n_draws)


def flatter(shares: np.ndarray, by: float) -> np.ndarray:
    """The distribution at a temperature that is higher by a share, over the same tokens."""
    moved: np.ndarray = shares ** (1 / (1 + by))
    return moved / moved.sum()


@pytest.mark.parametrize("settings", [*SETTINGS, LISTED], ids=str)
@pytest.mark.parametrize(
    "n_draws", [1_000_000, pytest.param(10_000_000, marks=pytest.mark.nightly)], ids=["1M", "10M"]
)
def test_small_rows(n_draws: int, settings: dict[str, Any]) -> None:
    """A temperature that is higher by 2 % is refuted, by 10 million draws one of half a percent."""
    shares = REFERENCE.shares(row_of(SMALL), **settings)
    counts = counts_of(SMALL, settings, n_draws)
    assert counts.sum() == n_draws
    assert min(tails(counts, shares)) > ALPHA / 2
    moved = flatter(shares, 0.02 if n_draws == 1_000_000 else 0.005)
    assert min(tails(counts, moved)) < ALPHA / 2


def unshaved(settings: dict[str, Any]) -> np.ndarray:
    """The distribution of races whose heavy tokens have clocks of all their mass, and the tail."""
    race, shares = race_of(row_of(LARGE), **settings), np.zeros(LARGE)
    assert np.count_nonzero(race.masses > race.floor) > 10
    tail = np.where(race.masses > race.floor, race.floor, 0)
    shares[race.tokens] = race.masses.astype(np.float64) + tail
    return shares / shares.sum()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_large_rows(settings: dict[str, Any]) -> None:
    """Temperatures that are 2 % off are refuted, and a head that is not shaved."""
    shares = REFERENCE.shares(row_of(LARGE), **settings)
    counts = counts_of(LARGE, settings, 1_000_000)
    assert min(tails(counts, shares)) > ALPHA / 2
    for wrong in (flatter(shares, 0.02), flatter(shares, -0.02), unshaved(settings)):
        assert min(tails(counts, wrong)) < ALPHA / 2
