"""Borders that random cases do not hit: one unit of mass, one ulp, one value of U.

The rule says on which side each of them falls; these cases are made for every engine to show it.
"""

from __future__ import annotations

import numpy as np

from fastsample.engines import reference
from tests.support import reference_rows
from tests.support.border_checks import (
    EXACT_DRAWS,
    ROUNDED_UP,
    check_equal_running_mass,
    check_every_bit_of_u,
    check_min_p_threshold,
    check_need_is_rounded_up,
    check_top_p_steps,
    draw_at,
    some_min_ps,
)
from tests.support.case_loop import each
from tests.support.engines import Engine
from tests.support.random_rows import TEMPERATURES

F32 = np.float32


# ---------------------------------------------------------------- draws at exact shares of W


@each("u", EXACT_DRAWS)
def test_the_draws_are_what_they_claim(u):
    assert reference.uniform(*EXACT_DRAWS[u]) == u


@each("size", [2, 4, 16, 34, 128, 256, 1000, 4096, 10_002])
def test_a_running_mass_that_only_equals_r_is_passed_over(engine: Engine, size):
    check_equal_running_mass(engine, size)


@each("size", [5, 40, 4097])
def test_the_ends_of_u_skip_tokens_without_mass(engine: Engine, size):
    row = np.full(size, -100, dtype=F32)
    row[1], row[size - 3] = 0, 0
    row[size - 1] = -np.inf
    found = [draw_at(engine, u, row) for u in EXACT_DRAWS]
    assert found == [1, 1, size - 3, size - 3]


@each("size", [2, 40, 4097])
def test_every_bit_of_u_counts(engine: Engine, size):
    check_every_bit_of_u(engine, size)


# ---------------------------------------------------------------- top_p


@each(("tops", "tail", "logit", "top_p", "kept"), ROUNDED_UP)
def test_need_is_rounded_up(engine: Engine, tops, tail, logit, top_p, kept):
    check_need_is_rounded_up(engine, tops, tail, logit, top_p, kept)


@each("spread", [0.0, 0.5, 2.0, 6.0])
def test_top_p_at_each_step_of_the_running_mass(engine: Engine, spread):
    check_top_p_steps(engine, spread)


# ---------------------------------------------------------------- min_p


def test_min_p_cuts_at_its_threshold_to_the_ulp(engine: Engine):
    check_min_p_threshold(engine)


def test_min_p_threshold_is_the_logarithm_less_its_slack():
    for min_p in some_min_ps():
        exact = np.log2(np.float64(F32(min_p)))
        threshold = reference_rows.threshold(min_p)
        assert threshold is not None
        half_ulp = np.spacing(F32(abs(threshold))) / 2
        assert abs(exact - 2.0**-19 - threshold) <= half_ulp * (1 + 1e-6)


# ---------------------------------------------------------------- temperature


def test_the_scale_is_clamped_at_both_ends():
    assert reference.scale(1e-45) == F32(2.0**64)
    assert reference.scale(reference.LOG2_E * 2.0**-63) == F32(2.0**63)
    assert reference.scale(3.4e38) == F32(2.0**-126)


@each("exponent", [-126, -70, -64, -62, -40, 0, 40, 100, 123, 126])
def test_masses_at_extreme_temperatures_and_magnitudes(engine: Engine, exponent):
    row = np.ldexp((np.arange(25, dtype=F32) - 12) / 8, exponent)
    for temperature in TEMPERATURES[1:]:
        expected = reference_rows.kept_set(row, temperature=temperature)
        tokens, masses = engine.kept_set(row, temperature=temperature)
        assert tokens.tolist() == expected[0].tolist(), temperature
        assert masses.tolist() == expected[1].tolist(), temperature
