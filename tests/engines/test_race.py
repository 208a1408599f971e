"""Draws by race: every engine that has it == reference, listed or not, on every instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastsample.engines import reference
from fastsample.engines.contract import SampleRequest
from fastsample.engines.reference.race import decide, prepare
from fastsample.params.ops import DrawMethod
from tests.support.case_loop import each
from tests.support.engines import (
    Engine,
    differing,
    make_output,
    make_plan,
    make_request,
    same_bits,
)
from tests.support.golden_races import DRAWS as GOLDEN_DRAWS
from tests.support.golden_races import races
from tests.support.golden_requests import make_golden_request
from tests.support.oracle import RACERS, REFERENCE, some_racers
from tests.support.race_rows import KINDS, SIZES, random_race
from tests.support.random_requests import random_request
from tests.support.random_rows import pick

pytestmark = pytest.mark.skipif(not RACERS, reason="no engine but the reference has the race")

DRAWS = 4


def compare(
    request: SampleRequest, name: Any, draws: int = DRAWS, racers: list[Engine] = RACERS
) -> int:
    """Hold engines to the reference; returns the number of cases.

    Without kept counts an engine need not find the kept set.
    """
    n_rows = len(request.values)
    expected = REFERENCE.run(request, make_output(n_rows, draws))
    for engine in racers:
        found = engine.run(request, make_output(n_rows, draws))
        assert differing(expected, found) == [], (name, engine, request)
        found = engine.run(request, make_output(n_rows, draws, has_count=False))
        assert same_bits(expected.tokens, found.tokens), (name, engine, request)
    return n_rows * draws


def chunks(every_run: int, nightly: int) -> Any:
    """A test for each chunk of cases, more of them in `make nightly`."""
    later = range(every_run, every_run + nightly)
    nights = [pytest.param(n, marks=pytest.mark.nightly) for n in later]
    return pytest.mark.parametrize("chunk", [*range(every_run), *nights])


@chunks(4, 196)
def test_random_rows(chunk: int) -> None:
    rng, cases = np.random.default_rng((1, chunk)), 0
    while cases < 5000:
        request = random_race(rng, int(pick(rng, SIZES)), n_rows=4)
        cases += compare(request, chunk, racers=some_racers(rng))


@chunks(2, 18)
def test_random_requests(chunk: int) -> None:
    """Every dtype, stride and logits processor, and stages in any order."""
    rng, cases = np.random.default_rng((2, chunk)), 0
    while cases < 2000:
        request = random_request(rng, int(rng.integers(1, 9)), int(pick(rng, SIZES)))
        request.plan["draw"] = DrawMethod.RACE
        cases += compare(request, chunk, racers=some_racers(rng))


WIDE = (128_000, 131_071, 131_072, 131_073, 151_936, 262_144)
WIDE_SETTINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.8},
    {"top_p": 0.9},
    {"top_p": 0.95, "temperature": 1.5},
    {"top_k": 1000, "temperature": 0.8},
    {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05},
    {"min_p": 0.001},
    {"top_p": 0.7, "min_p": 0.01, "min_keep": 7},
)


@each("size", WIDE)
def test_wide_rows(size: int) -> None:
    rng = np.random.default_rng((3, size))
    for kind in KINDS:
        row = kind(rng, size).astype(np.float32)
        settings = [pick(rng, WIDE_SETTINGS) for _ in range(2)]
        for one in settings:
            plan = make_plan(1, **one, seed=rng.integers(2**63), draw=DrawMethod.RACE)
            compare(make_request(row[None], plan), (kind.__name__, size, one))


@pytest.mark.parametrize("engine", RACERS, ids=str)
def test_golden_races_where_no_kept_set_is_asked_for(engine: Engine) -> None:
    for case in races():
        if case["row"]["size"] > 2**17:
            continue
        out = make_output(1, draws=GOLDEN_DRAWS, has_count=False)
        assert engine.run(make_golden_request(case), out).tokens[0].tolist() == case["tokens"], case


def test_a_race_without_a_winner() -> None:
    """128 tokens of a flat row: one arrival in 8,192 hits one of them, and half of those count."""
    row, settings, draws = np.zeros(2**20, np.float32), {"top_k": 128}, 24
    plan = make_plan(1, **settings, seed=3, draw=DrawMethod.RACE)
    places = [reference.Place(3, 0, stream) for stream in range(draws)]
    seen = reference.trace(row, **settings)
    race = prepare(row, seen, listed=False)
    assert 1 <= sum(decide(race, place) is None for place in places) < draws
    compare(make_request(row[None], plan), "open", draws)


def test_masses_at_every_level_border() -> None:
    """Rows of two logits, of which one has a mass next to a power of two."""
    rng = np.random.default_rng(4)
    for octaves in range(1, 16):
        rows = np.zeros((8, 4096), np.float32)
        low = np.float32(-octaves * np.log(2))
        for step, row in enumerate(rows):
            row[rng.random(4096) < 0.9] = low + np.float32(step - 4) * np.spacing(low) * 2
        plan = make_plan(8, seed=np.arange(8), draw=DrawMethod.RACE)
        compare(make_request(rows, plan), octaves, 16)


@pytest.mark.parametrize("engine", RACERS, ids=str)
def test_draws_of_a_row_are_those_of_its_streams(engine: Engine) -> None:
    row = np.random.default_rng(5).standard_normal(3000).astype(np.float32)
    together = engine.run(
        make_request(row[None], make_plan(1, seed=9, stream=4, draw=DrawMethod.RACE)),
        make_output(1, 20),
    )
    alone = [engine.token(row, seed=9, stream=4 + n, draw=DrawMethod.RACE) for n in range(20)]
    assert together.tokens[0].tolist() == alone


@pytest.mark.parametrize("engine", RACERS, ids=str)
def test_padding_below_the_same_power_of_two_changes_no_token(engine: Engine) -> None:
    row = np.random.default_rng(6).standard_normal(1500).astype(np.float32)
    padded = np.append(row, np.full(500, -np.inf, np.float32))
    for top_p in (1.0, 0.9):
        settings = {"top_p": top_p, "draw": DrawMethod.RACE}
        for seed in range(50):
            assert engine.token(row, **settings, seed=seed) == engine.token(
                padded, **settings, seed=seed
            )
