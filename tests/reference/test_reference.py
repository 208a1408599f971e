"""The reference against independent arithmetic: fractions, decimals, and the rule's claims."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from fastsample.engines import reference
from tests.support import reference_rows
from tests.support.case_loop import each
from tests.support.exact_arithmetic import round_to_float32
from tests.support.goodness_of_fit import softmax64, total_variation

# At this temperature the scale s is exactly 1, so a logit below a top of 0 is its own y.
T_OF_SCALE_ONE = float(np.float32(reference.LOG2_E))
F32 = np.float32


def float32_of_bits(bits):
    return np.array(bits, dtype=np.uint32).view(np.float32)


# ---------------------------------------------------------------- the row is read on its bits


def test_zero_exponents_read_as_plus_zero():
    bits = [0x80000000, 1, 0x807FFFFF, 0x00800000, 0x80800000, 0x3F800000]
    read = reference.read(float32_of_bits(bits))
    assert read.view(np.uint32).tolist() == [0, 0, 0, 0x00800000, 0x80800000, 0x3F800000]


def test_read_does_not_touch_the_row():
    row = float32_of_bits([0x80000000, 1])
    reference.read(row)
    assert row.view(np.uint32).tolist() == [0x80000000, 1]


@pytest.mark.parametrize(
    ("bits", "status"),
    [
        ([0xFF800000, 0xFF800000], 2),
        ([0xFF800000], 2),
        ([0xFF800000, 0xFF7FFFFF], 0),
        ([0xFF800000, 0x00000001], 0),
        ([0xFF800000, 0x7F800000], 1),
        ([0x7F800001, 0x3F800000], 1),
        ([0xFFC00000, 0xFF800000], 1),
        ([0x3F800000, 0xFFFFFFFF], 1),
    ],
)
def test_status(bits, status):
    row = float32_of_bits(bits)
    assert reference.status(row) == status
    token, found = reference_rows.sample_row(
        row, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0, position=0, stream=0
    )
    assert found == status
    assert (token == -1) == (status != 0)
    if status:
        with pytest.raises(ValueError, match="`row` must hold a logit above -inf"):
            reference.trace(row)


def test_order_is_by_logit_then_by_token():
    row = np.array([0.0, -1e-40, -np.inf, 3e38, -3e38, 5.0, 5.0, -0.0, 1e-40], dtype=F32)
    assert reference.order(row).tolist() == [3, 5, 6, 0, 1, 7, 8, 4, 2]


def test_order_equals_a_sort_of_pairs():
    rng = np.random.default_rng(3)
    for _ in range(50):
        row = rng.integers(-5, 5, rng.integers(1, 300)).astype(F32)
        expected = sorted(range(len(row)), key=lambda token: (-row[token], token))
        assert reference.order(row).tolist() == expected


# ---------------------------------------------------------------- parameters are float32


def test_parameters_round_to_float32():
    rng = np.random.default_rng(4)
    values = np.concatenate(
        [10.0 ** rng.uniform(-46, 38, 2000), 2.0**-126 * rng.uniform(0, 2, 500), [0, 0.8, 1 + 1e-9]]
    )
    for value in values.tolist():
        assert Fraction(reference.to_float32(value)) == round_to_float32(Fraction(value))


# ---------------------------------------------------------------- masses, step by step in fractions

ROUNDER = Fraction(12582912)
COEFFICIENTS = [
    Fraction(float.fromhex(c))
    for c in ("0x1.5bda40p-10", "0x1.3ce8acp-7", "0x1.c6b6e4p-5", "0x1.ebf9c2p-3", "0x1.62e42ap-1")
]


def mass_in_fractions(x: float, m: float, temperature: float) -> tuple[Fraction, int]:
    """y and the mass by section 4, every operation rounded to float32 from an exact fraction."""
    add = mul = round_to_float32
    quotient = 1.4426950408889634 / temperature
    s = round_to_float32(Fraction(min(max(quotient, 2.0**-126), 2.0**64)))
    y = max(mul(add(Fraction(x) - Fraction(m)) * s), Fraction(-64))
    k = add(add(y + ROUNDER) - ROUNDER)
    f = add(y - k)
    assert f == y - k
    assert abs(f) <= Fraction(1, 2)
    p = COEFFICIENTS[0]
    for coefficient in [*COEFFICIENTS[1:], Fraction(1)]:
        p = add(mul(p * f) + coefficient)
    return y, round(p * Fraction(2) ** (k + 40))


def border_ys() -> list[float]:
    """Half integers and integers from 0 to -64, with their neighbours."""
    ys = []
    for twice in range(-130, 1):
        y = F32(twice / 2)
        below, above = np.nextafter(y, F32(-99)), np.nextafter(y, F32(0))
        ys += [float(below), float(y), float(above)]
    tiny = [-(2.0**-e) for e in (1, 2, 23, 24, 25, 26, 80, 126)]
    return [y for y in [*ys, *tiny] if y == 0 or abs(y) >= 2.0**-126]


def assert_masses(xs: np.ndarray, m: float, temperature: float) -> None:
    y, mass = reference.masses(xs.astype(F32), F32(m), temperature)
    expected = [mass_in_fractions(float(x), m, temperature) for x in xs]
    assert [Fraction(float(v)) for v in y] == [e[0] for e in expected]
    assert mass.tolist() == [e[1] for e in expected]


def test_masses_at_every_border():
    assert reference.scale(T_OF_SCALE_ONE) == 1
    assert_masses(np.array(border_ys(), dtype=F32), 0.0, T_OF_SCALE_ONE)


@each("temperature", [2.0**-100, 0.01, 0.25, 0.75, 1.0, 1.5, 2.0**20, 2.0**127])
@each("spread", [2.0**-100, 1e-3, 1.0, 30.0, 1e30])
def test_masses_of_random_logits(temperature, spread):
    rng = np.random.default_rng(5)
    xs = reference.read((rng.standard_normal(40) * spread).astype(F32))
    assert_masses(xs, float(xs.max()), temperature)


def test_masses_at_the_far_end_of_float32():
    largest = np.finfo(F32).max
    row = np.array([largest, -largest, 0, -np.inf], dtype=F32)
    y, mass = reference.masses(row, largest, 1.0)
    assert y.tolist() == [0, -64, -64, -64]
    assert mass.tolist() == [2**40, 0, 0, 0]


def dense_ys() -> np.ndarray:
    rng = np.random.default_rng(6)
    uniform = rng.uniform(-64, 0, 400_000)
    near_zero = -(10.0 ** rng.uniform(-30, 0, 100_000))
    return np.concatenate([uniform, near_zero, border_ys()]).astype(F32)


def test_two_adds_on_float32_bits_give_the_same_mass():
    """Section 4's formula for kernels, from v = p * 2^k."""
    y, mass = reference.masses(dense_ys(), F32(0), T_OF_SCALE_ONE)
    k = (y + F32(12582912)) - F32(12582912)
    f = y - k
    p = F32(COEFFICIENTS[0])
    for coefficient in [*COEFFICIENTS[1:], 1]:
        p = p * f + F32(coefficient)
    v = np.ldexp(p, k.astype(np.int32))

    def bits(x):
        return np.asarray(x, dtype=F32).view(np.uint32).astype(np.int64)

    twelve, small = F32(12), F32(1.5 * 2.0**-17)
    rest = v - ((v + twelve) - twelve)
    trick = (bits(v + twelve) - bits(twelve)) * 2**20 + bits(rest + small) - bits(small)
    assert np.array_equal(trick, mass.astype(np.int64))


def test_mass_is_within_its_error_of_the_exact_power():
    y, mass = reference.masses(dense_ys(), F32(0), T_OF_SCALE_ONE)
    exact = np.exp2(y.astype(np.float64) + 40)
    allowed = 2.2 * 2.0**-23 * exact + 0.5
    assert np.all(np.abs(mass - exact) <= allowed)


def test_top_mass_and_vanishing_mass():
    edge = [0, np.nextafter(F32(-41), F32(0)), -41, np.nextafter(F32(-41), F32(-50)), -60, -1e30]
    _, mass = reference.masses(np.array(edge, dtype=F32), F32(0), T_OF_SCALE_ONE)
    assert mass.tolist() == [2**40, 1, 0, 0, 0, 0]


def test_total_of_the_widest_row_fits():
    seen = reference.trace(np.zeros(2**22, dtype=F32))
    assert seen.total == 2**62


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0, 10.0])
def test_total_variation_from_softmax(spread):
    row = (np.random.default_rng(7).standard_normal(262_144) * spread).astype(F32)
    seen = reference.trace(row)
    assert total_variation(seen.mass / seen.total, softmax64(row[seen.order])) < 4e-7


# ---------------------------------------------------------------- the logarithm


def errors_in_ulps(inputs: list[float]) -> list[float]:
    with localcontext() as context:
        context.prec = 60
        errors = []
        for z in inputs:
            exact = Decimal(z).ln()
            ulp = Decimal(math.ulp(float(exact)))
            errors.append(float(abs(Decimal(reference.ln(z)) - exact) / ulp))
        return errors


def test_ln_is_within_0_80_ulp():
    rng = np.random.default_rng(8)
    inputs = [
        *(2.0 ** rng.uniform(-1022, 1023, 1500)).tolist(),
        *rng.uniform(0.5, 2.0, 1500).tolist(),
        *(1 + rng.uniform(-1, 1, 1500) * 10.0 ** rng.uniform(-15, -1, 1500)).tolist(),
        *rng.integers(2, 2**62, 1000).astype(np.float64).tolist(),
        *(2.0 ** rng.integers(-60, 62, 200)).tolist(),
    ]
    assert max(errors_in_ulps([z for z in inputs if z != 1.0])) <= 0.80


def test_ln_of_one_is_zero():
    assert reference.ln(1.0) == 0.0


# ---------------------------------------------------------------- filters and their edges

ROW = np.array([1.0, 3.0, -np.inf, 3.0, 2.0, 0.0], dtype=F32)


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ({}, [0, 1, 3, 4, 5]),
        ({"top_k": 1}, [1]),
        ({"top_k": 2}, [1, 3]),
        ({"top_k": 5}, [0, 1, 3, 4, 5]),
        ({"top_k": 99}, [0, 1, 3, 4, 5]),
        ({"top_p": 0.0}, [1]),
        ({"top_p": 1e-9}, [1]),
        ({"top_p": 1.0 - 1e-9}, [0, 1, 3, 4, 5]),
        ({"min_p": 1.0}, [1, 3]),
        ({"min_p": 0.3}, [1, 3, 4]),
        ({"min_p": 1e-30}, [0, 1, 3, 4, 5]),
        ({"top_k": 3, "top_p": 0.5}, [1, 3]),
        ({"temperature": 0.0, "top_k": 3}, [1]),
    ],
)
def test_filters_at_their_edges(filters, kept):
    tokens, masses = reference_rows.kept_set(ROW, **filters)
    assert tokens.tolist() == kept
    assert masses.shape == tokens.shape


def test_min_p_keeps_all_up_to_two_to_the_minus_60():
    row = np.array([0.0, -1e30], dtype=F32)
    assert reference_rows.threshold(2.0**-60) is None
    assert reference_rows.kept_set(row, min_p=2.0**-60)[0].tolist() == [0, 1]
    above = float(np.nextafter(F32(2.0**-60), F32(1)))
    assert reference_rows.kept_set(row, min_p=above)[0].tolist() == [0]


def test_min_p_border_is_kept():
    row = np.log(np.array([0.5, 0.25, 0.2], dtype=F32))
    assert reference_rows.kept_set(row, min_p=0.5)[0].tolist() == [0, 1]


def test_top_p_need_is_exact_and_rounded_up():
    """Four equal masses: need is a quarter of the total, less the slack, for each kept token."""
    row = np.zeros(4, dtype=F32)
    for kept, share in enumerate((0.25, 0.5, 0.75), start=1):
        border = share + 2.0**-21
        above = float(np.nextafter(F32(border), F32(1)))
        assert reference.trace(row, top_p=share).kept == kept
        assert reference.trace(row, top_p=border).kept == kept
        assert reference.trace(row, top_p=above).kept == kept + 1


def test_trace_counts_what_each_stage_kept():
    stages = ("temperature", "top_k", "top_p", "min_p")
    seen = reference.trace(ROW, top_k=4, top_p=0.85, min_p=0.9, stages=stages)
    assert seen.order.tolist() == [1, 3, 4, 0, 5, 2]
    ends = zip(("mask", *stages), [5, 5, 4, 3, 2], strict=True)
    assert seen.stages == tuple((name, 0, end) for name, end in ends)
    assert seen.kept == 2
    assert seen.total == 2 * 2**40 == int(seen.mass[: seen.kept].sum())


def test_trace_at_temperature_0():
    seen = reference.trace(ROW, temperature=0.0, top_p=0.1)
    assert seen.stages == (("mask", 0, 5), ("temperature", 0, 1))
    assert (seen.kept, seen.total) == (1, 2**40)
    assert seen.mass.tolist() == [2**40, 0, 0, 0, 0, 0]


def test_draw_takes_the_first_running_mass_that_exceeds():
    tokens = np.array([2, 5, 9, 11])
    mass = np.array([0, 3, 0, 1], dtype=np.uint64)
    quarter = 2**62
    draws = [reference.draw(tokens, mass, u) for u in (0, 3 * quarter - 1, 3 * quarter, 2**64 - 1)]
    assert draws == [5, 5, 11, 11]
