"""The Numba engine's race: its clocks, its levels by cuts, and races that are left open.

That its tokens are the reference's on random requests is in `test_oracle_races`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastsample import engines
from fastsample.engines import reference
from fastsample.engines.reference.clocks import clock, in_steps
from fastsample.engines.reference.draw import ARRIVAL, words
from fastsample.params.ops import DrawMethod
from tests.support.case_loop import each
from tests.support.engines import Engine, differing, make_output, make_plan, make_request
from tests.support.race_cases import race_of

pytest.importorskip("numba")
if not engines.is_installed("numba"):
    pytest.skip("the engine does not know this processor's float mode", allow_module_level=True)

# Numba is there: what is imported here needs it.
from fastsample.engines.numba import clocks, race
from fastsample.engines.numba.filters import filter_row
from fastsample.engines.numba.ordinal import logit_of
from fastsample.engines.numba.row import Row

NUMBA, REFERENCE = Engine("numba"), Engine("reference")


def compare(rows: np.ndarray, draws: int = 16, **settings: Any) -> None:
    plan = make_plan(len(rows), **settings, draw=DrawMethod.RACE)
    request = make_request(rows, plan)
    expected, found = (
        one.run(request, make_output(len(rows), draws)) for one in (REFERENCE, NUMBA)
    )
    assert differing(expected, found) == []


# ---------------------------------------------------------------- clocks and levels


def test_arrivals_have_the_bits_of_the_reference() -> None:
    place = (2**64 - 3, 2**63 + 5, 2**32 - 1)
    low, points = words(*place, ARRIVAL, np.arange(100, 3100, dtype=np.uint64))
    found = np.empty(3000), np.empty(3000, np.uint64)
    clocks.write_arrivals(tuple(map(np.uint64, place)), 100, *found)
    assert found[0].tobytes() == in_steps(clock(low)).tobytes()
    assert found[1].tobytes() == points.tobytes()


def test_clocks_have_the_bits_of_the_reference() -> None:
    ends = np.array([0, 2**12 - 1, 2**12, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    found = [clocks.clock_of(word) for word in ends]
    assert np.array(found).tobytes() == clock(ends).tobytes()


@each("q", range(24, 42))
def test_masses_reach_a_level_from_an_ordinal_on(q: int) -> None:
    scaling = np.float32(0), np.float32(1)
    least = int(race._least_ordinal(q, 0, scaling))
    if q == 41:
        assert least > 0
        return
    ordinals = range(least - 5000, min(least + 5000, 1))
    y = np.array([logit_of(np.int32(ordinal)) for ordinal in ordinals], np.float32)
    _, masses = reference.masses(y, np.float32(0), reference.LOG2_E)
    assert (masses >= np.uint64(2**q)).tolist() == [ordinal >= least for ordinal in ordinals]


def test_masses_at_every_level() -> None:
    """Rows of two logits, of which one has a mass next to a power of two."""
    rng = np.random.default_rng(4)
    for octaves in range(1, 16):
        low = np.float32(-octaves * np.log(2))
        rows = np.zeros((8, 4096), np.float32)
        for step, row in enumerate(rows):
            row[rng.random(4096) < 0.9] = low + np.float32(2 * step - 8) * np.spacing(low)
        compare(rows, seed=np.arange(8))


@pytest.mark.parametrize("spread", [0.0, 1e-9, 1e-7, 1e-3, 0.69])
@pytest.mark.parametrize("size", [1, 15, 16, 63, 64, 65, 2048, 2049])
def test_levels_above_every_mass_but_a_few(spread: float, size: int) -> None:
    """Most masses are 2^39 or more: q is 40 or 41, or what few tokens need."""
    rng = np.random.default_rng(size)
    for settings in ({}, {"top_p": 0.6}, {"min_p": 0.5, "min_keep": 40}, {"typical_p": 0.5}):
        rows = (-spread * rng.random((4, size))).astype(np.float32)
        compare(rows, **settings, seed=7)


# ---------------------------------------------------------------- races without a winner


def test_the_inverse_method_decides_a_race_that_is_left_open() -> None:
    """128 tokens of a flat row: one arrival in 8,192 hits one of them, and half of those count."""
    row, draws = np.zeros(2**20, np.float32), 24
    places = [reference.Place(3, 0, stream) for stream in range(draws)]
    race_of_row = race_of(row, top_k=128)
    n_open = sum(reference.decide(race_of_row, place) is None for place in places)
    assert 1 <= n_open < draws
    compare(row[np.newaxis], draws, top_k=128, seed=3)


OTHER_LOGITS = {
    "nothing": (-np.inf, -np.inf),
    "nan": (np.nan, np.nan),
    "infinities": (np.inf, np.inf),
    "one value": (0.5, 0.5),
    "deeper": (-60, -50),
    "higher": (20, 60),
}
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.0},
    {"top_k": 50},
    {"top_p": 0.9, "temperature": 2.0},
    {"min_p": 0.5, "min_keep": 4000},
    {"typical_p": 0.5},
)


@pytest.mark.parametrize("name", OTHER_LOGITS)
def test_a_row_written_before_its_race_gets_one_of_its_tokens(name: str) -> None:
    low, high = OTHER_LOGITS[name]
    for settings in SETTINGS:
        memory = np.random.default_rng(5).normal(0, 3, 5000).astype(np.float32)
        params = make_plan(1, **settings)[0]
        kept = filter_row(Row(memory.view()), params)
        memory[:] = low if low == high or name == "nan" else np.linspace(low, high, 5000)
        tokens = np.full(20, -7)
        race.draw_by_race(kept, params, (np.uint64(1), np.uint64(2), np.uint64(3)), tokens)
        assert np.all((tokens >= 0) & (tokens < 5000)), settings
