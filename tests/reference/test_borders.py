"""Borders that random cases do not hit: one unit of mass, one ulp, one value of U.

The rule says on which side each of them falls; every engine is held to it by cases made for the
purpose.
"""

from __future__ import annotations

import numpy as np
import pytest

from fastsample.engines import reference
from tests.support.engines import Engine
from tests.support.random_rows import SCALE_ONE, TEMPERATURES

F32 = np.float32


def next_after(x: float, towards: float) -> float:
    return float(np.nextafter(F32(x), F32(towards)))


# ---------------------------------------------------------------- draws at exact shares of W

# Philox is a bijection of the counter, so it can be run backwards from the U that is wanted.
EXACT_DRAWS = {
    0: (1, 5771886026982873665, 744770889),
    2**63 - 1: (1, 13370436444570793406, 3151207307),
    2**63: (3, 7878406519541971034, 4007559135),
    2**64 - 1: (1, 16314314711947355528, 2734673436),
}


@pytest.mark.parametrize("u", EXACT_DRAWS)
def test_the_draws_are_what_they_claim(u):
    assert reference.uniform(*EXACT_DRAWS[u]) == u


def draw_at(engine: Engine, u: int, row: np.ndarray, **filters: float) -> int:
    seed, position, stream = EXACT_DRAWS[u]
    return engine.token(row, seed=seed, position=position, stream=stream, **filters)


@pytest.mark.parametrize("size", [2, 4, 16, 34, 128, 256, 1000, 4096, 10_002])
def test_a_running_mass_that_only_equals_r_is_passed_over(engine: Engine, size):
    """Equal masses: at U = 2^63, r is the running mass of the lower half, to the unit."""
    row = np.zeros(size, dtype=F32)
    found = [draw_at(engine, u, row) for u in EXACT_DRAWS]
    assert found == [0, size // 2 - 1, size // 2, size - 1]


@pytest.mark.parametrize("size", [5, 40, 4097])
def test_the_ends_of_u_skip_tokens_without_mass(engine: Engine, size):
    row = np.full(size, -100, dtype=F32)
    row[1], row[size - 3] = 0, 0
    row[size - 1] = -np.inf
    found = [draw_at(engine, u, row) for u in EXACT_DRAWS]
    assert found == [1, 1, size - 3, size - 3]


@pytest.mark.parametrize("size", [2, 40, 4097])
def test_every_bit_of_u_counts(engine: Engine, size):
    """A tail of one unit of mass is reached by the last U and no other of these: a U of 24 or of 53
    bits, low ones missing, never comes so close to 1."""
    row = np.full(size, -100, dtype=F32)
    row[0], row[size - 1] = 0, np.nextafter(F32(-41), F32(0))
    found = [draw_at(engine, u, row, temperature=SCALE_ONE) for u in EXACT_DRAWS]
    assert found == [0, 0, 0, size - 1]


# ---------------------------------------------------------------- top_p

# Equal tops, a tail of one logit, top_p, tokens kept. P * W / 2^31 lies less than one unit of mass
# above a running mass, so the next token is needed too: rounding down would leave it out.
ROUNDED_UP = [
    (1, 200, "-0x1.9452800000000p-3", "0x1.759f840000000p-8", 2),
    (1, 200, "-0x1.a9cf800000000p-2", "0x1.b248120000000p-8", 2),
    (1, 200, "-0x1.07c8a00000000p-1", "0x1.d106e60000000p-8", 2),
    (1, 300, "-0x1.4278c00000000p-2", "0x1.e833e20000000p-8", 3),
]


@pytest.mark.parametrize(("tops", "tail", "logit", "top_p", "kept"), ROUNDED_UP)
def test_need_is_rounded_up(engine: Engine, tops, tail, logit, top_p, kept):
    row = np.array([0.0] * tops + [float.fromhex(logit)] * tail, dtype=F32)
    filters = {"temperature": SCALE_ONE, "top_p": float.fromhex(top_p)}
    assert engine.kept_set(row, **filters)[0].tolist() == list(range(kept))


@pytest.mark.parametrize("spread", [0.0, 0.5, 2.0, 6.0])
def test_top_p_at_each_step_of_the_running_mass(engine: Engine, spread):
    row = (np.random.default_rng(1).standard_normal(97) * spread).astype(F32)
    seen = reference.trace(row)
    running = np.cumsum(seen.mass).tolist()
    for mass in running:
        border = F32(min(1.0, mass / seen.total + 2.0**-21))
        for top_p in (next_after(border, 0), float(border), min(1.0, next_after(border, 2))):
            expected = reference.trace(row, top_p=top_p).kept
            assert len(engine.kept_set(row, top_p=top_p)[0]) == expected


# ---------------------------------------------------------------- min_p


def some_min_ps() -> list[float]:
    rng = np.random.default_rng(2)
    edges = [next_after(2.0**-60, 1), 1e-12, 1e-6, 0.01, 0.05, 0.1, 0.2, 0.5, next_after(1, 0), 1.0]
    return [*edges, *rng.random(200).tolist(), *(2.0 ** rng.uniform(-60, 0, 300)).tolist()]


def test_min_p_cuts_at_its_threshold_to_the_ulp(engine: Engine):
    """With a scale of 1 a logit below a top of 0 is its own y: put some around the threshold."""
    for min_p in some_min_ps():
        threshold = reference.min_p_threshold(min_p)
        assert threshold is not None
        below, above = next_after(threshold, -99), next_after(threshold, 0)
        row = np.array([below, threshold, 0, above, below], dtype=F32)
        kept = engine.kept_set(row, temperature=SCALE_ONE, min_p=min_p)[0].tolist()
        assert kept == [1, 2, 3], min_p


def test_min_p_threshold_is_the_logarithm_less_its_slack():
    for min_p in some_min_ps():
        exact = np.log2(np.float64(F32(min_p)))
        threshold = reference.min_p_threshold(min_p)
        assert threshold is not None
        half_ulp = np.spacing(F32(abs(threshold))) / 2
        assert abs(exact - 2.0**-19 - threshold) <= half_ulp * (1 + 1e-6)


# ---------------------------------------------------------------- temperature


def test_the_scale_is_clamped_at_both_ends():
    assert reference.scale(1e-45) == F32(2.0**64)
    assert reference.scale(reference.LOG2_E * 2.0**-63) == F32(2.0**63)
    assert reference.scale(3.4e38) == F32(2.0**-126)


@pytest.mark.parametrize("exponent", [-126, -70, -64, -62, -40, 0, 40, 100, 123, 126])
def test_masses_at_extreme_temperatures_and_magnitudes(engine: Engine, exponent):
    row = np.ldexp((np.arange(25, dtype=F32) - 12) / 8, exponent)
    for temperature in TEMPERATURES[1:]:
        expected = reference.kept_set(row, temperature=temperature)
        tokens, masses = engine.kept_set(row, temperature=temperature)
        assert tokens.tolist() == expected[0].tolist(), temperature
        assert masses.tolist() == expected[1].tolist(), temperature
