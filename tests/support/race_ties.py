"""Races whose times are equal, or nearly 0, for engines whose clocks a test can replace."""

from __future__ import annotations

from types import ModuleType
from unittest import mock

import numpy as np

from fastsample.engines import reference
from fastsample.engines.reference import race as reference_race
from tests.support.engines import Engine
from tests.support.race_cases import compare_races, race_of

CLOCKS = (2.0**-60, 2.0**-9, 1.0, 1.0)
"""The clocks of words by their two upper bits."""

DRAWS, SEEDS = 12, (29, 29)


def clock(k: np.ndarray) -> np.ndarray:
    """The clocks of some words, in the place of the reference's `clock`."""
    return np.array(CLOCKS)[(k >> np.uint64(62)).astype(np.int64)]


def rows_of_a_head() -> np.ndarray:
    """Two rows of 512 tokens with q = 39, and one token of mass 2^40 in the head.

    So its rate is 2^39, and with a clock of 2^-9 it comes at 2^-48, as the first arrival of the
    tail does with a clock of 1. In the second row three tokens have a mass of 2^39: no clock.
    """
    rows = np.full((2, 512), -1.04, dtype=np.float32)
    rows[1, [3, 100, 300]] = -0.6931472
    rows[:, 77] = 0
    return rows


def rows_of_three() -> np.ndarray:
    """A row of 512 tokens of which three weigh nearly all."""
    row = np.full((1, 512), -20, dtype=np.float32)
    row[0, [70, 140, 250]] = 0
    return row


def compare_equal_times(engine: Engine, engine_race: ModuleType) -> None:
    """Compare an engine with the reference, both with CLOCKS; the engine's module has the LIMIT.

    At a limit of 1 the last time of the tail may be that of the head. A clock of 2^-60 at the rate
    1 would be before all times of kept tokens: one that has no clock must not get it.
    """
    with mock.patch.object(reference_race, "clock", clock):
        rows = rows_of_a_head()
        for row, seed, n_half in zip(rows, SEEDS, (0, 3), strict=True):
            check_ties(row, seed, n_half)
        for limit in (1, reference_race.LIMIT):
            ours = mock.patch.object(engine_race, "LIMIT", limit)
            with ours, mock.patch.object(reference_race, "LIMIT", limit):
                compare_races(engine, rows, DRAWS, seed=list(SEEDS))
        for settings in ({"top_k": 2}, {"top_p": 0.4}):
            compare_races(engine, rows_of_three(), DRAWS, seed=3, **settings)


def check_ties(row: np.ndarray, seed: int, n_half: int) -> None:
    """The head comes with the first arrival of the tail, whether that counts or not."""
    race = race_of(row)
    assert race.q == 39
    assert np.count_nonzero(race.masses == 2**39) == n_half
    ties = set()
    for stream in range(DRAWS):
        place = reference.Place(seed, 0, stream)
        first = reference_race.tail(race, place, 1)
        if reference_race.head(race, place).times.tolist() == first.times.tolist():
            ties.add(len(first.counting))
    assert ties == {0, 1}
