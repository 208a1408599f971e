"""What follows from drawing by race: narrower filters, padding, drafts, shards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastsample import kept_set, sample
from fastsample.engines import reference
from tests.support.case_loop import each
from tests.support.engines import Engine
from tests.support.race_cases import make_race_row, race_of
from tests.support.race_shards import first_arrival

ROW = make_race_row(np.random.default_rng(16), "normal", 1000)
DRAWS = 200


@pytest.fixture
def racer(engine: Engine) -> Engine:
    """Every engine that draws by race."""
    if not engine.has_race:
        pytest.skip(f"{engine} has no race")
    return engine


def drawn(racer: Engine, row: np.ndarray, **how: Any) -> np.ndarray:
    """Tokens of draws by race."""
    place = {"seed": 5, "position": 8, "stream": 0, "n": DRAWS}
    found: np.ndarray = sample(
        row, **{"draw": "race", **place, **how}, engine=racer.name, isa=racer.isa
    ).tokens
    return found


# ---------------------------------------------------------------- narrower filters

NARROWER: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({}, {"top_p": 0.7}),
    ({"top_p": 0.95}, {"top_p": 0.5}),
    ({"top_k": 500}, {"top_k": 130}),
    ({"top_k": 500, "top_p": 0.9}, {"top_k": 400, "top_p": 0.8}),
    ({"min_p": 1e-3}, {"min_p": 1e-3, "top_p": 0.6}),
    ({"top_k": 127}, {"top_k": 20}),  # both listed
)


@each(("wide", "narrow"), NARROWER)
def test_narrowing_keeps_a_kept_token(
    racer: Engine, wide: dict[str, Any], narrow: dict[str, Any]
) -> None:
    """Of two settings that are both listed, or neither, with equal thresholds."""
    kept = kept_set(ROW, temperature=1.5, **narrow).tokens
    before, after = (drawn(racer, ROW, temperature=1.5, **one) for one in (wide, narrow))
    stays = np.isin(before, kept)
    assert 20 < stays.sum() < DRAWS
    assert np.array_equal(before[stays], after[stays])
    inverse = [drawn(racer, ROW, temperature=1.5, **one, draw="inverse") for one in (wide, narrow)]
    assert not np.array_equal(inverse[0][stays], inverse[1][stays])


# ---------------------------------------------------------------- padding


@each("settings", [{}, {"temperature": 0.8, "top_p": 0.9}, {"min_p": 0.01}, {"top_k": 40}])
def test_padding_below_the_same_power_of_two(racer: Engine, settings: dict[str, Any]) -> None:
    row = ROW[:600]
    padded, wider = (np.append(row, np.full(n, -np.inf, np.float32)) for n in (424, 425))
    tokens = drawn(racer, row, **settings)
    assert np.array_equal(drawn(racer, padded, **settings), tokens)
    assert np.array_equal(drawn(racer, wider, **settings, valid_vocab=600), tokens)
    assert np.array_equal(drawn(racer, wider, **settings), tokens) == ("top_k" in settings)
    inverse = (drawn(racer, one, **settings, draw="inverse") for one in (row, wider))
    assert np.array_equal(*inverse)


# ---------------------------------------------------------------- drafts


@each("settings", [{}, {"temperature": 0.8}, {"top_p": 0.9}])
def test_a_draft_agrees_more_often_by_race(racer: Engine, settings: dict[str, Any]) -> None:
    """Its logits are the target's with normal noise of .5, its random numbers the same.

    By race some .65 of the tokens agree, by running sums some .32; at best .8 could.
    """
    rng = np.random.default_rng(0)
    target = (2 * rng.standard_normal((20, 1000))).astype(np.float32)
    draft = target + (rng.standard_normal(target.shape) / 2).astype(np.float32)
    agree = {}
    for draw in ("race", "inverse"):
        how = {**settings, "draw": draw, "seed": np.arange(20), "n": 40}
        agree[draw] = (drawn(racer, target, **how) == drawn(racer, draft, **how)).mean()
    assert agree["race"] > agree["inverse"] + 0.2


# ---------------------------------------------------------------- shards


@each("settings", [{}, {"temperature": 0.7}, {"temperature": 1.5, "min_p": 0.01}])
@each("kind", ["normal", "peaked", "40 heavy", "tied"])
def test_shards_merge_by_time_and_token(kind: str, settings: dict[str, Any]) -> None:
    row = make_race_row(np.random.default_rng(7), kind, 700)
    race = race_of(row, **settings)
    for stream, at in enumerate((1, 100, 350, 512, 699) * 4):
        place = reference.Place(4, 2, stream)
        assert first_arrival(row, at, place, **settings) == reference.decide(race, place)
