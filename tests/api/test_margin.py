"""`margin`: what a draw survives, the same on every engine, and how tight it is."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from fastsample import Sampler, sample
from fastsample.engines import reference
from fastsample.engines.reference import race as reference_race
from tests.support.case_loop import each
from tests.support.engines import Engine
from tests.support.race_cases import make_race_row, race_of
from tests.support.sample_calls import LOGITS, kept_count_on, sample_on

SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.8},
    {"top_p": 0.9},
    {"temperature": 1.5, "min_p": 0.05},
    {"top_k": 50},  # this and the next one are listed
    {"temperature": 0.7, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
)


def margins(engine: Engine, logits: np.ndarray, **arguments: Any) -> list[float]:
    found = sample_on(engine, logits, **arguments, margin=True).margin
    assert (found.dtype, found.shape) == (np.float64, np.shape(logits)[:-1])
    listed: list[float] = found.tolist()
    return listed


@pytest.fixture
def racer(engine: Engine) -> Engine:
    """Every engine that draws by race."""
    if not engine.has_race:
        pytest.skip(f"{engine} has no race")
    return engine


# ---------------------------------------------------------------- values


def test_the_margin_of_a_greedy_draw_is_the_gap(engine: Engine) -> None:
    top = np.sort(LOGITS.astype(np.float64))[:, -2:]
    assert margins(engine, LOGITS, temperature=0) == (top[:, 1] - top[:, 0]).tolist()
    biased = margins(engine, LOGITS, temperature=0, bias={7: 100.0})
    assert biased == ((np.float32(100) + LOGITS[:, 7]).astype(np.float64) - top[:, 1]).tolist()
    mixed = margins(engine, LOGITS, temperature=[0, 1, 0, 1], draw="inverse")
    assert np.isnan(mixed).tolist() == [False, True, False, True]
    assert margins(engine, LOGITS, temperature=0, mask=np.arange(300) == 4) == [math.inf] * 4


def test_nothing_moves_the_only_token(engine: Engine) -> None:
    assert margins(engine, LOGITS, top_k=1) == [math.inf] * 4
    assert margins(engine, LOGITS, top_k=[1, 2, 1, 2], draw="inverse")[::2] == [math.inf] * 2


def test_the_inverse_method_has_no_margin(engine: Engine) -> None:
    assert np.isnan(margins(engine, LOGITS, draw="inverse")).all()
    for reduction in engine.reductions[1:]:
        assert np.isnan(margins(engine, LOGITS, reduction=reduction)).all()


def test_invalid_rows_have_no_margin(racer: Engine) -> None:
    rows = LOGITS.copy()
    rows[1, 3], rows[2] = np.nan, -np.inf
    how: dict[str, Any] = {"on_invalid": "mark", "draw": "race"}
    found = margins(racer, rows, temperature=[0.5, 1, 1, -1], **how)
    assert np.isnan(found).tolist() == [False, True, True, True]
    assert found[0] == margins(racer, LOGITS, draw="race", temperature=0.5)[0]


def test_one_row_no_rows_and_none_by_default(racer: Engine) -> None:
    one = sample_on(racer, LOGITS[0], stream=0, draw="race", margin=np.True_)
    assert one.margin.shape == ()
    assert margins(racer, LOGITS[:0], draw="race") == []
    assert sample_on(racer, LOGITS, draw="race").margin is None


@each("settings", SETTINGS)
def test_margins_are_those_of_the_rule(racer: Engine, settings: dict[str, Any]) -> None:
    """The same on every engine, whatever else is asked for; the token is that without it."""
    found = sample_on(racer, LOGITS, **settings, draw="race", margin=True)
    for b, row in enumerate(LOGITS):
        decision = reference.explain(race_of(row, **settings), reference.Place(3, 9, b))
        assert (found.margin[b], found.tokens[b]) == (decision.margin, decision.winner.token)
    more = sample_on(
        racer, LOGITS, **settings, draw="race", margin=True, logprobs=2, kept_count=True
    )
    assert more.margin.tolist() == found.margin.tolist()
    assert more.kept_count.tolist() == kept_count_on(racer, LOGITS, **settings).tolist()
    plain = sample_on(racer, LOGITS, **settings, draw="race")
    assert plain.tokens.tolist() == found.tokens.tolist()


def test_margins_of_a_sampler(racer: Engine) -> None:
    how: dict[str, Any] = {"engine": racer.name, "isa": racer.isa}
    sampler = Sampler(temperature=0.8, presence_penalty=0.5, seed=3, draw="race", **how)
    token = sampler(LOGITS[0])
    found = sampler.sample(LOGITS[0], margin=True)
    place: dict[str, Any] = {"seed": 3, "position": 1, "output": [token]}
    expected = sample(
        LOGITS[0],
        temperature=0.8,
        presence_penalty=0.5,
        draw="race",
        margin=True,
        **place,
        **how,
    )
    assert float(found.margin) == float(expected.margin)
    assert sampler.position == 2


# ---------------------------------------------------------------- what it promises


def fixed(race: reference.Race, place: reference.Place) -> tuple[Any, ...]:
    """What a margin takes as given: the kept set, the level, and the head's members."""
    return race.tokens.tolist(), race.q, reference_race.head(race, place).tokens.tolist()


def moved(row: np.ndarray, token: int, by: float, **settings: Any) -> np.ndarray:
    """The row with the log-mass of a token moved."""
    logits = row.copy()
    logits[token] += by * settings.get("temperature", 1.0)
    return logits


def log_moves(before: reference.Race, after: reference.Race) -> np.ndarray:
    """How far the log-masses of the same tokens moved."""
    moves: np.ndarray = np.log(after.masses / before.masses)
    return moves


@each("settings", SETTINGS)
def test_a_logit_may_move_by_the_margin(settings: dict[str, Any]) -> None:
    """By less, none changes the token; just beyond it one of them does, in most cases."""
    n_moves = n_cases = n_tight = 0
    for number in range(30):
        row = make_race_row(np.random.default_rng(number), ("normal", "40 heavy")[number % 2], 100)
        place = reference.Place(number, 5, 2)
        drawn = sample(
            row, **settings, **place._asdict(), draw="race", margin=True, engine="reference"
        )
        token, margin = int(drawn.tokens), float(drawn.margin)
        if not 1e-3 < margin < 20:
            continue
        race, changed = race_of(row, **settings), False
        for other, by in product(race.tokens.tolist(), (0.98, 1.02)):
            far = margin * by * (-1 if other == token else 1)
            after = race_of(moved(row, other, far, **settings), **settings)
            if fixed(after, place) != fixed(race, place):
                continue
            distances = np.abs(log_moves(race, after))
            if np.count_nonzero(distances) != 1:
                continue  # another m
            is_same = reference.draw_by_race(after, place) == token
            assert is_same or distances.max() > margin, (number, other)
            n_moves += is_same
            changed |= not is_same
        n_cases, n_tight = n_cases + 1, n_tight + changed
    assert n_cases >= 25
    assert n_moves > 500
    assert n_tight > 0.4 * n_cases
