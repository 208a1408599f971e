"""The race of section 6: the reference against a second implementation, and its properties."""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import numpy as np
import pytest

from fastsample import Sampler, SamplingParams, sample
from fastsample.engines import reference
from fastsample.engines.reference import clocks, race
from fastsample.engines.reference.draw import words
from fastsample.engines.reference.margin import gap_of_top_two
from tests.support import race_by_hand
from tests.support.case_loop import each
from tests.support.engines import Engine, make_output, make_plan, make_request
from tests.support.race_cases import (
    KINDS,
    SIZES,
    make_race_row,
    race_of,
    random_place,
    random_race_settings,
    reference_race,
    same_race,
)
from tests.support.random_rows import pick

REFERENCE = Engine("reference")
RACE = 1
PLACE = reference.Place(7, 0, 0)


@pytest.mark.parametrize(
    "n_cases", [500, pytest.param(20_000, marks=pytest.mark.nightly)], ids=["500", "20k"]
)
def test_random_cases_by_hand(n_cases: int) -> None:
    rng = np.random.default_rng(n_cases)
    levels = set()
    for _ in range(n_cases):
        size = pick(rng, SIZES)
        row = make_race_row(rng, pick(rng, KINDS), size)
        settings, place = random_race_settings(rng, size), random_place(rng)
        expected = race_by_hand.race(row.tolist(), place, **settings)
        found = reference_race(row, place, **settings)
        assert same_race(expected, found), (settings, place, expected, found)
        levels.add(found.q)
    assert levels >= {None, *range(37, 47)}


def one_peak(v: int, size: int) -> np.ndarray:
    row = np.full(size, -30, dtype=np.float32)
    row[size // 3] = 0
    return row


@each("v", range(1, 15))
def test_least_level_of_a_vocabulary(v: int) -> None:
    """One token weighs nearly all, so q is 47 - v where that is above 40, or H above 0."""
    row = one_peak(v, 2**v)
    found = reference_race(row, PLACE)
    assert found.q == 47 - v
    assert same_race(race_by_hand.race(row.tolist(), PLACE), found)


@each("v", range(1, 23))
def test_levels_on_both_sides_of_a_power_of_two(v: int) -> None:
    """Every q from 25 to 46, and H heavy tokens against H + 1."""
    most = math.isqrt(2**v >> 5)
    heavy = np.full(most, 2**40, dtype=np.uint64)
    one_more = np.append(heavy, np.uint64(2**40))
    assert race.level(v, heavy) == 47 - v
    assert race.level(v, one_more) == max(41, 47 - v)
    assert v + race.level(v, one_more) <= 64
    assert most == math.floor(math.sqrt(2**v / 32))
    for size in (2**v - 1, 2**v, 2**v + 1):
        assert race.vocabulary_bits(size) == max(1, math.ceil(math.log2(max(1, size))))


def test_c_does_not_depend_on_counts_and_masses() -> None:
    """Only thresholds thin out what the level counts."""
    row = np.zeros(4096, dtype=np.float32)
    row[2000:] = -3
    assert race_of(row).q == 41
    assert race_of(row, top_k=130).q == 41
    assert race_of(row, top_p=0.6).q == 41
    row[5:2000] = -2.5
    assert race_of(row).q > 35
    assert race_of(row, min_p=0.5, min_keep=3000).q == 35


LISTED: tuple[tuple[bool, dict[str, Any]], ...] = (
    (False, {}),
    (False, {"temperature": 0.8}),
    (True, {"top_k": 127}),
    (False, {"top_k": 128}),
    (False, {"top_k": 1000}),
    (True, {"top_p": 0.5 - 2**-25}),
    (False, {"top_p": 0.5}),
    (False, {"top_p": 0.5 - 2**-27}),  # float32 rounds it to 1/2
    (False, {"min_p": 0.5, "epsilon_cutoff": 0.1, "min_keep": 5}),
    (True, {"top_n_sigma": 1.0, "temperature": 0.8}),
    (False, {"top_n_sigma": 1.0}),
    (True, {"typical_p": 0.9}),
    (True, {"min_p": 2.0**-59, "temperature": 0.5, "stages": ("min_p", "temperature")}),
    (False, {"min_p": 2.0**-60, "temperature": 0.5, "stages": ("min_p", "temperature")}),
    (
        False,
        {"epsilon_cutoff": 2.0**-60, "temperature": 2, "stages": ("epsilon_cutoff", "temperature")},
    ),
    (False, {"top_a": 0.2, "temperature": 2}),
    (True, {"top_a": 0.2, "temperature": 2, "stages": ("top_a", "temperature")}),
    (False, {"top_a": 2.0**-60, "temperature": 2, "stages": ("top_a", "temperature")}),
    (False, {"top_k": 1000, "temperature": 0.5, "stages": ("top_k", "temperature")}),
    (True, {"top_k": 999, "temperature": 0.5, "stages": ("top_k", "temperature")}),
)


@each("listed, settings", LISTED)
def test_listed_or_not(listed: bool, settings: dict[str, Any]) -> None:
    assert reference.is_listed(1000, **settings) == listed


def test_few_tokens_are_listed_by_top_k_only_where_it_acts() -> None:
    assert [reference.is_listed(size, top_k=50) for size in (49, 50, 51)] == [False, False, True]


# ---------------------------------------------------------------- words, clocks, times


def test_words_are_philox_at_purpose_and_index() -> None:
    for purpose, index in ((1, 2**22 - 1), (2, 0), (2, 32_767)):
        low, high = words(5, 6, 7, purpose, np.array([index], dtype=np.uint64))
        four = reference.philox4x32((5, 0), (6, 0, 7, purpose + 256 * index))
        assert int(low[0]) == four[0] + 2**32 * four[1]
        assert int(high[0]) == four[2] + 2**32 * four[3]


def test_clocks_at_their_ends() -> None:
    """The argument is exact, and no clock is 0; their steps of 2^-32 add up without rounding."""
    k = np.array([0, 2**12 - 1, 2**12, 2**64 - 1], dtype=np.uint64)
    found = clocks.clock(k)
    assert found[0] == found[1] == pytest.approx(53 * math.log(2))
    assert found[2] == pytest.approx(53 * math.log(2) - math.log(3))
    assert 0 < found[3] < 2.0**-52
    most = float(clocks.in_steps(found)[0]) * 2**32
    assert most.is_integer()
    assert most * race.LIMIT < 2**53


def test_equal_times_go_to_the_tail_then_to_the_lower_token() -> None:
    """Clocks of one value, so that times are equal where rates are."""
    always = mock.patch.object(race, "clock", lambda k: np.full(len(k), 0.5))
    masses = np.array([2**39, 2**40, 2**40], dtype=np.uint64)
    with always:
        found = reference.explain(reference.Race(np.array([2, 5, 9]), masses, 4, None), PLACE)
        assert [found.winner.token, found.runner_up.token, found.margin] == [5, 9, 0.0]
        # Both points always count, so the tail's first time is 1/2 / 2^39, and the head's too.
        for more, has_tie in ((0, True), (1, False)):
            masses = np.array([2**38 + 2**39 + more, 2**38], dtype=np.uint64)
            tied = reference.Race(np.array([0, 1]), masses, v=1, q=38)
            for place in (PLACE, PLACE._replace(stream=1), PLACE._replace(stream=2)):
                hit = int(race.tail(tied, place, 1).tokens[0])
                expected = (hit, True) if has_tie else (0, False)
                first = reference.decide(tied, place)
                assert (first.token, first.height >= 0) == expected


# ---------------------------------------------------------------- step 5's inverse


def test_the_inverse_method_decides_where_the_limit_is_reached() -> None:
    row = one_peak(12, 4096)
    rng = np.random.default_rng(3)
    with mock.patch.object(race, "LIMIT", 40):
        seen = 0
        for _ in range(200):
            place = random_place(rng)
            expected = race_by_hand.race(row.tolist(), place, limit=40, top_p=0.99999)
            found = reference_race(row, place, top_p=0.99999)
            assert same_race(expected, found)
            seen += math.isnan(found.margin)
        flat = np.zeros(4096, dtype=np.float32)
        for _ in range(200):
            place = random_place(rng)
            expected = race_by_hand.race(flat.tolist(), place, limit=40, top_k=128)
            found = reference_race(flat, place, top_k=128)
            assert same_race(expected, found)
            seen += math.isnan(found.margin)
    assert seen > 50


def test_a_real_row_reaches_the_inverse_method() -> None:
    """128 tokens of 2^20 equal ones: 2^14 arrivals are expected for one that counts."""
    row = np.zeros(2**20, dtype=np.float32)
    race_of_row = race_of(row, top_k=128)
    open_races = [
        stream
        for stream in range(40)
        if reference.decide(race_of_row, reference.Place(1, 0, stream)) is None
    ]
    assert 1 <= len(open_races) <= 14
    for stream in open_races[:2]:
        u = reference.uniform(1, 0, stream, 3)
        token = reference.draw_by_race(race_of_row, reference.Place(1, 0, stream))
        assert token == u * 128 >> 64


# ---------------------------------------------------------------- the engine


def draws(row: np.ndarray, n: int = 1, **settings: Any) -> list[int]:
    request = make_request(row[np.newaxis], make_plan(1, draw=RACE, **settings))
    return REFERENCE.run(request, make_output(1, draws=n)).tokens[0].tolist()


def test_the_engine_races_on_each_stream() -> None:
    row = np.float32([0.5, 1, -2, 0, 0.25])
    settings: dict[str, Any] = {"temperature": 0.7, "top_p": 0.95, "seed": 3, "position": 8}
    expected = [
        race_by_hand.race(row.tolist(), (3, 8, stream), temperature=0.7, top_p=0.95).token
        for stream in range(40, 60)
    ]
    assert draws(row, 20, stream=40, **settings) == expected
    assert len(set(expected)) > 2


def test_each_sequence_of_a_sampler_has_its_draw() -> None:
    row = np.float32([0.5, 1, -2, 0, 0.25])
    each_draw = [SamplingParams(seed=3, draw=draw) for draw in ("race", "inverse", "race")]
    sampler = Sampler(each_draw, engine="reference")
    steps = np.array([sampler(np.stack([row] * 3)) for _ in range(20)])
    for column, draw in zip(steps.T, ("race", "inverse", "race"), strict=True):
        found = [
            int(sample(row, seed=3, position=n, draw=draw, engine="reference").tokens)
            for n in range(20)
        ]
        assert column.tolist() == found
    assert steps[:, 0].tolist() == [
        race_by_hand.race(row.tolist(), (3, n, 0)).token for n in range(20)
    ]
    assert steps[:, 0].tolist() != steps[:, 1].tolist()


@each("settings", [{"temperature": 0.0}, {"top_k": 1}, {"min_p": 1.0}])
def test_one_kept_token_is_the_token(settings: dict[str, Any]) -> None:
    assert draws(np.float32([1, 3, 2]), 5, **settings) == [1] * 5


@each("settings", [{}, {"top_p": 0.9}, {"min_p": 0.01, "temperature": 1.4}, {"top_k": 40}])
def test_padding_below_the_same_power_of_two_changes_nothing(settings: dict[str, Any]) -> None:
    row = make_race_row(np.random.default_rng(6), "normal", 520)
    padded = np.concatenate([row, np.full(504, -np.inf, dtype=np.float32)])
    assert draws(row, 100, **settings) == draws(padded, 100, **settings)
    request = make_request(np.zeros((1, 1024), np.float32), make_plan(1, draw=RACE, **settings))
    request.values[0, :520] = row
    short = request._replace(vocabulary=520)
    assert REFERENCE.run(short, make_output(1, draws=100)).tokens[0].tolist() == draws(
        row, 100, **settings
    )


def test_padding_past_a_power_of_two_changes_tokens() -> None:
    row = make_race_row(np.random.default_rng(6), "normal", 520)
    padded = np.concatenate([row, np.full(505, -np.inf, dtype=np.float32)])
    assert draws(row, 100) != draws(padded, 100)


NARROWER: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({}, {"top_p": 0.7}),
    ({"top_p": 0.95}, {"top_p": 0.5}),
    ({"top_k": 500}, {"top_k": 130}),
    ({"min_p": 1e-3}, {"min_p": 1e-3, "top_p": 0.6}),
)


@each("wide, narrow", NARROWER)
def test_narrowing_keeps_a_kept_token(wide: dict[str, Any], narrow: dict[str, Any]) -> None:
    row = make_race_row(np.random.default_rng(16), "normal", 1000)
    kept = set(reference.trace(row, temperature=1.5, **narrow).tokens.tolist())
    before, after = (draws(row, 300, temperature=1.5, **one) for one in (wide, narrow))
    is_kept = [token in kept for token in before]
    assert 50 < sum(is_kept) < 300
    assert all(a == b for a, b, same in zip(before, after, is_kept, strict=True) if same)


# ---------------------------------------------------------------- margin


def moved(row: reference.Race, token: int, by: float) -> reference.Race:
    """The race with the log-mass of one token moved, towards what changes less."""
    mass = float(row.masses[row.tokens == token][0]) * math.exp(by)
    masses = row.masses.copy()
    masses[row.tokens == token] = math.ceil(mass) if by < 0 else math.floor(mass)
    return row._replace(masses=masses)


def winner_of(row: reference.Race, place: reference.Place) -> int | None:
    first = reference.decide(row, place)
    return None if first is None else first.token


@each("kind", KINDS)
@each("filters", [{}, {"top_p": 0.95}, {"top_k": 60}])
def test_masses_may_move_by_the_margin(kind: str, filters: dict[str, Any]) -> None:
    """By a bit less no token's move changes the draw; by a bit more one of them does, or may."""
    rng = np.random.default_rng(len(kind))
    row = race_of(make_race_row(rng, kind, 300), temperature=1.2, **filters)
    n_tight = 0
    for stream in range(8):
        place = reference.Place(11, 4, stream)
        found = reference.explain(row, place)
        if not 1e-6 < found.margin < 20:
            continue
        tight = False
        for token in row.tokens.tolist():
            sign = -1 if token == found.winner.token else 1
            less, more = (moved(row, token, sign * found.margin * by) for by in (0.999, 1.001))
            before, after = [one.masses[row.tokens == token][0] > row.floor for one in (row, less)]
            if before == after:
                assert winner_of(less, place) == found.winner.token
            tight |= winner_of(more, place) != found.winner.token
        n_tight += tight
    assert n_tight > 0


def margin_of(row: np.ndarray, by_race: bool = True, **filters: Any) -> float:
    seen = reference.trace(row, **filters)
    race_of_row = race_of(row, **filters) if by_race else None
    return reference.margin(row, seen, race_of_row, PLACE, filters.get("temperature", 1.0))


def test_margin_of_every_kind_of_draw() -> None:
    row = np.float32([1, 3, 2.5])
    assert margin_of(row, temperature=0.0) == margin_of(row, False, temperature=0.0) == 0.5
    assert margin_of(row, top_k=1) == margin_of(row, False, top_k=1) == math.inf
    assert math.isnan(margin_of(row, False))
    assert margin_of(row) == race_by_hand.race(row.tolist(), PLACE).margin
    with mock.patch.object(race, "LIMIT", 1):
        assert math.isnan(margin_of(row))


def test_shards_merge_by_time_and_token() -> None:
    """The first of each shard's first arrivals is that of the row; at equal times the tail's."""
    row = race_of(make_race_row(np.random.default_rng(12), "normal", 1000), temperature=0.7)
    for stream in range(50):
        place = reference.Place(5, 1, stream)
        firsts = []
        for shard in range(4):
            own = row.tokens // 250 == shard
            part = row._replace(tokens=row.tokens[own], masses=row.masses[own])
            firsts.append(reference.decide(part, place))
        arrived = [one for one in firsts if one is not None]
        merged = min(arrived, key=lambda one: (one.time, one.height < 0, one.token))
        assert merged == reference.decide(row, place)


def test_margins_at_their_ends() -> None:
    only = reference.Race(np.array([3]), np.array([2**40], dtype=np.uint64), 4, None)
    assert reference.explain(only, PLACE) == ((3, mock.ANY, -1), None, math.inf)
    assert gap_of_top_two(np.float32([1, 3, 2.5])) == 0.5
    assert gap_of_top_two(np.float32([1, 3, 3])) == 0
    assert gap_of_top_two(np.float32([-np.inf, 3])) == math.inf
    assert gap_of_top_two(np.float32([3])) == math.inf
