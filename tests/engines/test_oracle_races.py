"""Oracle tests of races: every engine that has the race == reference, listed and not.

Half of the requests are those of `test_oracle_requests`, each row by race or by the inverse method;
the other half has rows and settings at the borders of the race. A case is one draw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.engines import (
    Engine,
    SampleRequest,
    differing,
    make_plan,
    make_request,
)
from tests.support.oracle import RACERS, REFERENCE, answer, some_racers
from tests.support.race_cases import KINDS, SIZES, make_race_row, random_place, random_race_settings
from tests.support.random_requests import random_request
from tests.support.random_rows import Rng, pick

LARGE = (128_256, 131_072, 131_073, 151_936, 262_144)

needs_racing_engine = pytest.mark.skipif(not RACERS, reason="the reference alone has the race")


def at_the_borders(rng: Rng, n_rows: int, size: int) -> SampleRequest:
    """Rows of the kinds of `race_cases`; some end before the last column."""
    rows = np.stack([make_race_row(rng, pick(rng, KINDS), size) for _ in range(n_rows)])
    vocabulary = size if rng.random() < 0.7 else int(rng.integers(1, size + 1))
    rows[:, 0] = np.maximum(rows[:, 0], -5)  # no row is empty
    plans = [
        make_plan(1, draw="race", **random_race_settings(rng, vocabulary)) for _ in range(n_rows)
    ]
    plan = np.concatenate(plans)
    for row in plan:
        row["seed"], row["position"], row["stream"] = random_place(rng)
    plan["stream"] = np.minimum(plan["stream"], 2**32 - 64)
    return make_request(rows, plan, vocabulary)


def anything(rng: Rng, n_rows: int, size: int) -> SampleRequest:
    request = random_request(rng, n_rows, size)
    request.plan["draw"] = rng.integers(0, 2, n_rows)
    return request


Racers = Callable[[Rng], list[Engine]]
"""Which engines a batch is compared on."""


def all_racers(_: Rng) -> list[Engine]:
    return RACERS


def compare_races(racers: Racers, seed: Any, sizes: tuple[int, ...], cases: int) -> None:
    """Compare engines with the reference on random requests, until there were so many draws."""
    done, number = 0, 0
    while done < cases:
        rng = np.random.default_rng((seed, number))
        n_rows, draws = int(rng.integers(1, 5)), pick(rng, (1, 1, 2, 7))
        make = pick(rng, (at_the_borders, anything))
        request = make(rng, n_rows, pick(rng, sizes))
        status = np.zeros(n_rows, dtype=np.uint8)
        expected = answer(REFERENCE, request, status, draws=draws)
        for engine in racers(rng):
            found = answer(engine, request, status, int(rng.integers(1, 4)), draws=draws)
            assert differing(expected, found) == [], (engine, seed, number)
        done, number = done + n_rows * draws, number + 1


@pytest.mark.smoke
@needs_racing_engine
def test_a_slice_of_races() -> None:
    compare_races(all_racers, 1, SIZES, 300)


@needs_racing_engine
@pytest.mark.parametrize(
    "seed", [2, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(100, 200))]
)
def test_random_races(seed: int) -> None:
    compare_races(some_racers, seed, SIZES, 10_000)


@needs_racing_engine
@pytest.mark.parametrize(
    "seed", [4, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(300, 320))]
)
def test_random_races_of_large_rows(seed: int) -> None:
    compare_races(all_racers, seed, LARGE, 100)


def test_the_comparison_finds_another_token() -> None:
    """The reference equals itself; drawn by the inverse method it does not."""

    class Inverse(Engine):
        def run(self, request: Any, out: Any, n_threads: int = 1) -> Any:
            plan = request.plan.copy()
            plan["draw"] = 0
            return super().run(request._replace(plan=plan), out, n_threads)

    compare_races(lambda _: [REFERENCE], 5, SIZES, 200)
    with pytest.raises(AssertionError):
        compare_races(lambda _: [Inverse("reference")], 5, SIZES, 200)
