"""Draws without replacement: the reference against a second implementation, and its properties."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest

from fastsample.engines import reference
from fastsample.engines.reference import distinct, race
from tests.support import distinct_by_hand
from tests.support.case_loop import each
from tests.support.race_cases import (
    KINDS,
    SIZES,
    make_race_row,
    race_of,
    random_place,
    random_race_settings,
)
from tests.support.random_rows import pick

PLACE = reference.Place(7, 0, 0)


def found_by_reference(
    row: np.ndarray, place: reference.Place, n: int, **settings: Any
) -> list[int]:
    return reference.draw_distinct(race_of(row, **settings), place, n)


@pytest.mark.parametrize(
    "n_cases", [40, pytest.param(4_000, marks=pytest.mark.nightly)], ids=["40", "4k"]
)
@pytest.mark.parametrize("limit", [32_768, 40])
def test_random_cases_by_hand(n_cases: int, limit: int) -> None:
    """With a low limit of arrivals the inverse method draws many of the tokens."""
    rng = np.random.default_rng(n_cases)
    arrived, drawn, short = 0, 0, 0
    for _ in range(n_cases):
        size = pick(rng, SIZES if limit < 100 else SIZES[:20])
        row = make_race_row(rng, pick(rng, KINDS), size)
        settings, place = random_race_settings(rng, size), random_place(rng)
        n = int(pick(rng, (1, 2, 3, 10, size)))
        by_hand, count = distinct_by_hand.distinct(row.tolist(), place, n, limit=limit, **settings)
        with mock.patch.multiple(race, LIMIT=limit), mock.patch.multiple(distinct, LIMIT=limit):
            assert found_by_reference(row, place, n, **settings) == by_hand, (settings, place, n)
        arrived, drawn = arrived + count, drawn + len(by_hand)
        short += len(by_hand) < n
    assert 0 < arrived < drawn and short > n_cases / 20


@each("settings", [{}, {"top_k": 100}, {"top_p": 0.9}, {"temperature": 3.0, "min_p": 0.01}])
def test_the_first_tokens_are_those_of_fewer(settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    row = make_race_row(rng, "normal", 300)
    for stream in range(20):
        place = reference.Place(5, 1, stream)
        tokens = found_by_reference(row, place, 30, **settings)
        assert len(set(tokens)) == len(tokens) == min(30, len(race_of(row, **settings).tokens))
        assert tokens[0] == reference.draw_by_race(race_of(row, **settings), place)
        for n in (1, 2, 7, 29):
            assert found_by_reference(row, place, n, **settings) == tokens[:n]


def test_a_token_of_the_head_comes_by_the_tail_or_by_its_clock() -> None:
    """Each way is the first one now and then, and the other one means nothing."""
    row = np.full(1024, -12, dtype=np.float32)
    row[[3, 700]] = 0
    found = race_of(row)
    assert len(race.head(found, PLACE).tokens) == 2
    by_tail = by_clock = 0
    for stream in range(80):
        place = reference.Place(2, 0, stream)
        first = reference.decide(found, place)
        assert first is not None
        by_tail, by_clock = by_tail + (first.height >= 0), by_clock + (first.height < 0)
        tokens = reference.draw_distinct(found, place, 4)
        assert tokens[0] == first.token
        assert len(set(tokens)) == 4
    assert min(by_tail, by_clock) > 5


def test_tokens_without_mass_are_not_drawn() -> None:
    row = np.float32([0, -50, 1, -np.inf, -2])
    for settings in ({}, {"top_k": 4}, {"top_p": 0.99}):
        assert sorted(found_by_reference(row, PLACE, 5, **settings)) == [0, 2, 4]


def test_the_rest_is_drawn_by_inverse_over_what_is_left() -> None:
    row = np.float32([0, 0.5, 1, -1])
    masses = reference.masses(row, row.max(), 1.0)[1]
    with mock.patch.multiple(race, LIMIT=1), mock.patch.multiple(distinct, LIMIT=1):
        found = race_of(row)
        place = next(
            place
            for place in (reference.Place(1, 0, stream) for stream in range(100))
            if reference.decide(found, place) is None
        )
        tokens = reference.draw_distinct(found, place, 4)
    assert sorted(tokens) == [0, 1, 2, 3]
    left = [0, 1, 2, 3]
    for i, token in enumerate(tokens):
        u = reference.uniform(*place, 3 + 256 * i)
        assert token == reference.draw(np.array(left), masses[left], u)
        left.remove(token)
