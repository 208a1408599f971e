"""The filters of section 5 by hand, at their bounds, and against other packages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastsample.engines import reference
from fastsample.engines.reference.filters import center, deviation
from fastsample.verification.flush import flushing
from tests.support import reference_rows
from tests.support.goodness_of_fit import softmax64

F32 = np.float32
TOP = 2**40


def kept(row: Any, **values: Any) -> list[int]:
    """Tokens that one chain keeps, ascending."""
    found = reference_rows.kept_set(np.asarray(row, F32), stages=tuple(values), **values)[0]
    return found.tolist()


def of(*probabilities: float) -> np.ndarray:
    """Logits of probabilities."""
    return np.log(np.array(probabilities, F32))


# ---------------------------------------------------------------- top_n_sigma


@pytest.mark.parametrize(
    ("sigmas", "tokens"),
    [(0, [0, 1, 2, 3]), (1, [1]), (1.22, [1]), (1.23, [0, 1]), (2.44, [0, 1]), (2.45, [0, 1, 2])],
)
def test_top_n_sigma_by_hand(sigmas: float, tokens: list[int]) -> None:
    """Of 1, 3 and -1 the deviation is sqrt(8 / 3), which is 2 / 1.2247 and 4 / 2.4495."""
    expected = [token for token in tokens if token < 3]
    assert kept([1, 3, -1, -np.inf], top_n_sigma=sigmas) == expected


def test_top_n_sigma_keeps_its_border() -> None:
    """Of 3 and 1 the deviation is exactly 1."""
    assert deviation(np.array([3, 1], F32)) == 1.0
    assert kept([1, 3], top_n_sigma=2.0) == [0, 1]
    assert kept([1, 3], top_n_sigma=float(np.nextafter(F32(2), F32(0)))) == [1]


def test_the_deviation_is_that_of_the_tokens_kept_so_far() -> None:
    row = np.array([3, 1, -50], F32)
    assert kept(row, top_k=2, top_n_sigma=1.99) == [0]
    assert kept(row, top_n_sigma=1.99, top_k=2) == [0, 1]


@pytest.mark.parametrize("temperature", [0.3, 1.0, 30.0])
def test_the_temperature_does_not_change_top_n_sigma(temperature: float) -> None:
    row = np.random.default_rng(1).normal(0, 2, 500).astype(F32)
    before = kept(row, top_n_sigma=1.5, temperature=temperature)
    assert before == kept(row, temperature=temperature, top_n_sigma=1.5)
    assert 1 < len(before) < 500


def test_logits_further_than_512_count_as_512() -> None:
    row = np.array([0, -600], F32)
    assert deviation(row) == (2**20 - 1) / 2**12
    assert kept(row, temperature=100.0, top_n_sigma=2.0) == [0]
    assert kept(row, temperature=100.0, top_n_sigma=2.4) == [0, 1]


def test_the_widest_deviation_has_no_overflow() -> None:
    row = np.full(2**22, -np.finfo(F32).max)
    row[0] = np.finfo(F32).max
    d, n = 2**20 - 1, 2**22
    mean, square = (n - 1) * d / n, (n - 1) * d * d
    assert (n - 1) * d <= 2**42
    assert square < 2**62
    assert deviation(row) == np.sqrt(float(square) / n - mean * mean) * 2.0**-11


# ---------------------------------------------------------------- epsilon_cutoff and its kin


@pytest.mark.parametrize(
    ("cutoff", "tokens"),
    [(0.0, [0, 1, 2]), (0.2, [0, 1, 2]), (0.201, [0, 1]), (0.3, [0, 1]), (0.31, [1]), (1.0, [1])],
)
def test_epsilon_cutoff_by_hand(cutoff: float, tokens: list[int]) -> None:
    assert kept(of(0.3, 0.5, 0.2), epsilon_cutoff=cutoff) == tokens


def test_epsilon_cutoff_keeps_the_top_tokens_and_min_keep() -> None:
    row = of(0.2, 0.4, 0.4)
    assert kept(row, epsilon_cutoff=0.5) == [1, 2]
    found = reference_rows.kept_set(row, epsilon_cutoff=0.5, min_keep=3)[0]
    assert found.tolist() == [0, 1, 2]


def test_epsilon_cutoff_looks_at_the_tokens_kept_so_far() -> None:
    row = of(0.5, 0.3, 0.2)
    assert kept(row, top_k=2, epsilon_cutoff=0.35) == [0, 1]
    assert kept(row, epsilon_cutoff=0.35, top_k=2) == [0]


def test_a_share_up_to_two_to_the_minus_60_keeps_all() -> None:
    row = np.array([0.0, -1e30], F32)
    above = float(np.nextafter(F32(2.0**-60), F32(1)))
    for name in ("min_p", "epsilon_cutoff", "top_a"):
        assert kept(row, **{name: 2.0**-60}) == [0, 1]
        assert kept(row, **{name: above}) == [0]


# ---------------------------------------------------------------- top_a


@pytest.mark.parametrize(
    ("a", "tokens"),
    [(0.0, [0, 1, 2]), (0.078, [0, 1, 2]), (0.079, [0, 1]), (0.234, [0, 1]), (0.235, [1])],
)
def test_top_a_by_hand(a: float, tokens: list[int]) -> None:
    """0.8 squared is 0.64: 0.05 is 0.0781 times that, and 0.15 is 0.2344 times."""
    assert kept(of(0.15, 0.8, 0.05), top_a=a) == tokens


def test_top_a_keeps_its_border_and_ties() -> None:
    """0.125 is half of 0.5 squared, and 0.2 is 0.8 times that."""
    row = of(0.125, 0.5, 0.125, 0.25)
    assert kept(row, top_a=0.5) == [0, 1, 2, 3]
    assert kept(row, top_a=0.501) == [1, 3]
    assert kept(of(0.5, 0.3, 0.2), top_a=0.8) == [0, 1, 2]
    assert kept(of(0.5, 0.3, 0.2), top_a=0.81) == [0, 1]


def test_top_a_keeps_the_top_tokens_and_min_keep() -> None:
    assert kept(of(0.01, 0.495, 0.495), top_a=1.0) == [1, 2]
    found = reference_rows.kept_set(of(0.15, 0.8, 0.05), top_a=1.0, min_keep=2)[0]
    assert found.tolist() == [0, 1]


def test_top_a_keeps_all_of_a_flat_row() -> None:
    """No probability is below the square of the largest one there."""
    assert kept(np.zeros(1000), top_a=1.0) == [*range(1000)]


def test_top_a_looks_at_the_tokens_kept_so_far_at_the_temperature() -> None:
    """Of 0.5 and 0.3 alone 0.3 has 0.375, 0.96 times 0.625 squared."""
    row = of(0.5, 0.3, 0.2)
    assert kept(row, top_k=2, top_a=0.97) == [0]
    assert kept(row, top_a=0.97, top_k=2) == [0, 1]
    hot = of(0.81, 0.18, 0.01)  # at temperature 2: 0.9, 0.424 and 0.1 of 1.424
    assert kept(hot, top_a=0.2) == [0, 1]
    assert kept(hot, temperature=2.0, top_a=0.17) == [0, 1, 2]
    assert kept(hot, temperature=2.0, top_a=0.18) == [0, 1]


# ---------------------------------------------------------------- typical_p

FLAT = of(*[0.7 / 7] * 3, 0.3, *[0.7 / 7] * 4)
"""Entropy 2.85 bits; the top token's information is 1.74, that of the others 3.32."""
ROW = of(0.5, 0.2, 0.1, 0.08, 0.04, 0.01, 0.07)
"""Entropy 2.11 bits: nearest are 0.2 (0.21 away), 0.5 (1.11), 0.1 (1.21), 0.08 (1.54)."""


@pytest.mark.parametrize(
    ("share", "tokens"),
    [
        (0.0, [1]),
        (0.2, [1]),
        (0.21, [0, 1]),
        (0.7, [0, 1]),
        (0.71, [0, 1, 2]),
        (0.81, [0, 1, 2, 3]),
        (1.0, [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_typical_p_by_hand(share: float, tokens: list[int]) -> None:
    assert kept(ROW, typical_p=share) == tokens


def test_typical_p_may_drop_the_top_token() -> None:
    """Then the first of the others has the largest mass, and all have what they would alone."""
    others = [0, 1, 2, 4, 5, 6, 7]
    seen = reference.trace(FLAT, typical_p=0.5, stages=("typical_p",))
    assert seen.stages == (("mask", 0, 8), ("typical_p", 1, 8))
    assert (seen.first, seen.end, seen.total) == (1, 8, 7 * TOP)
    assert seen.tokens.tolist() == others
    assert seen.mass.tolist() == [0] + 7 * [TOP]
    banned = FLAT.copy()
    banned[3] = -np.inf
    assert [a.tolist() for a in reference_rows.kept_set(FLAT, typical_p=0.5)] == [
        a.tolist() for a in reference_rows.kept_set(banned)
    ]


def test_stages_after_typical_p_see_a_row_without_what_it_dropped() -> None:
    row = np.random.default_rng(2).normal(0, 1, 300).astype(F32)
    row[7] = 6.0
    seen = reference.trace(row, typical_p=0.3, stages=("typical_p",))
    assert seen.first > 0
    left = np.full_like(row, -np.inf)
    left[seen.tokens] = row[seen.tokens]
    for after in (
        {"temperature": 0.7},
        {"top_k": 5},
        {"top_p": 0.4},
        {"min_p": 0.98},
        {"epsilon_cutoff": 0.02},
        {"temperature": 0.05, "top_a": 0.9},
        {"top_n_sigma": 1.0},
        {"temperature": 2.0, "top_p": 0.4, "min_p": 0.98},
    ):
        both = {"typical_p": 0.3, **after}
        for reduction in ("exact", "fixed"):
            found = reference_rows.kept_set(row, **both, stages=tuple(both), reduction=reduction)
            alone = reference_rows.kept_set(left, **after, stages=tuple(after), reduction=reduction)
            assert [a.tolist() for a in found] == [a.tolist() for a in alone]


def test_typical_p_keeps_min_keep_of_the_nearest() -> None:
    found = reference_rows.kept_set(ROW, typical_p=0.1, min_keep=3)[0]
    assert found.tolist() == [0, 1, 2]
    assert reference_rows.kept_set(ROW, typical_p=0.1, min_keep=99)[0].tolist() == [*range(7)]
    assert reference_rows.kept_set(FLAT, typical_p=0.1, min_keep=2)[0].size == 7


def test_tokens_at_one_distance_are_kept_together() -> None:
    """Two tokens of one probability, on either side of the border of 0.3."""
    assert kept(of(0.4, 0.2, 0.2, 0.2), typical_p=0.2) == [1, 2, 3]


def test_the_mean_of_y_is_that_of_exact_sums() -> None:
    rng = np.random.default_rng(3)
    row = np.sort(rng.normal(0, 3, 4_000).astype(F32))[::-1]
    y, mass = reference.masses(row, row[0], 1.0)
    k = [round(float(-number) * 2**16) for number in y]
    total, weighted = sum(mass.tolist()), sum(m * n for m, n in zip(mass.tolist(), k, strict=True))
    assert abs(float(center(y, mass)) + weighted / total / 2**16) < 1e-6
    shares = softmax64(row)
    assert abs(float(center(y, mass)) - float((shares * y).sum())) < 2.0**-16


@pytest.mark.parametrize(("y", "mass"), [(-40.9, 2**19 - 1), (-1.4427, int(2**40 / np.e))])
def test_the_largest_sums_of_a_mean_fit_64_bits(y: float, mass: int) -> None:
    """The widest row, at the most that a token can add to the low and to the high sum."""
    n, k = 2**22, round(float(F32(y)) * -(2**16))
    assert n * (mass >> 19) * k < 2**59
    assert n * (mass % 2**19) * k < 2**63
    found = center(np.full(n, y, F32), np.full(n, mass, np.uint64))
    assert abs(float(found) + k / 2**16) < 2.0**-18


# ---------------------------------------------------------------- all of them


@pytest.mark.parametrize(
    "values", [{"top_n_sigma": 1.0}, {"epsilon_cutoff": 1.0}, {"top_a": 1.0}, {"typical_p": 0.5}]
)
def test_a_denormal_gap_is_no_gap(values: dict[str, float]) -> None:
    """Logits that differ by 2**-127 are one apart in no mode of the processor, or in both."""
    row = np.array([2.0**-126 * 1.5, 2.0**-126], F32)
    plain = kept(row, **values)
    with flushing():
        assert kept(row, **values) == plain == [0, 1]


def test_filters_are_skipped_at_temperature_0() -> None:
    seen = reference.trace(FLAT, temperature=0.0, typical_p=0.1, top_n_sigma=1.0)
    assert seen.stages == (("mask", 0, 8), ("temperature", 0, 1))
    assert seen.tokens.tolist() == [3]


@pytest.mark.parametrize("name", ["top_n_sigma", "epsilon_cutoff", "top_a", "typical_p"])
def test_the_reduction_does_not_change_what_a_filter_keeps(name: str) -> None:
    rng = np.random.default_rng(4)
    for share in (0.001, 0.2, 0.9):
        row = rng.normal(0, 2, 5_000).astype(F32)
        value = {"top_n_sigma": 3 * share}.get(name, share)
        one, other = (
            reference.trace(row, **{name: value}, reduction=mode) for mode in ("exact", "fixed")
        )
        assert (one.first, one.end) == (other.first, other.end)
        assert one.kept < 5_000


# ---------------------------------------------------------------- other packages


def random_rows(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [
        rng.normal(0, rng.uniform(0.3, 4), rng.integers(2, 400)).astype(F32) for _ in range(count)
    ]


def by_transformers(name: str, row: np.ndarray, value: float) -> list[int]:
    """What a logits warper of transformers keeps, in float64."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    warper = getattr(transformers, name)(value)
    scores = warper(None, torch.tensor(row[None].astype(np.float64)))
    return torch.isfinite(scores[0]).nonzero()[:, 0].tolist()


def at_a_border(name: str, row: np.ndarray, value: float, tokens: set[int]) -> bool:
    """Whether float64 has all of some tokens within rounding of the border."""
    shares = softmax64(row)
    if name == "epsilon_cutoff":
        return all(abs(shares[token] / value - 1) < 1e-5 for token in tokens)
    distance = np.abs(np.log(shares) + (shares * np.log(shares)).sum())
    order = np.argsort(distance)
    reached = np.cumsum(shares[order])
    ranks = np.array([order.tolist().index(token) for token in tokens])
    gaps = np.abs(distance[order][ranks] - distance[order][np.maximum(ranks - 1, 0)])
    return bool(np.all((np.abs(reached[ranks - 1] - value) < 1e-5) | (gaps < 1e-4)))


@pytest.mark.parametrize(
    ("name", "warper"),
    [("typical_p", "TypicalLogitsWarper"), ("epsilon_cutoff", "EpsilonLogitsWarper")],
)
def test_kept_sets_are_those_of_transformers(name: str, warper: str) -> None:
    """But for tokens at a border, which the rule's slack or its steps of 2**-16 decide."""
    rng = np.random.default_rng(6)
    differing = 0
    for row in random_rows(300):
        value = float(F32(rng.uniform(0.02, 0.98) if name == "typical_p" else rng.uniform(0, 0.1)))
        other = set(kept(row, **{name: value})) ^ set(by_transformers(warper, row, value))
        if other:
            differing += 1
            assert at_a_border(name, row, value, other)
    assert differing <= 3


def test_kept_sets_are_those_of_top_a_in_float64() -> None:
    """No package of the tests has this filter."""
    rng = np.random.default_rng(8)
    differing = removed = 0
    for row in random_rows(300):
        value = float(F32(rng.uniform(0, 1)))
        shares = softmax64(row)
        border = value * shares.max() ** 2
        found = set(kept(row, top_a=value))
        other = found ^ set(np.flatnonzero(shares >= border).tolist())
        differing += bool(other)
        removed += len(found) < len(row)
        assert all(abs(shares[token] / border - 1) < 1e-5 for token in other)
    assert differing <= 3
    assert removed > 100


def test_kept_sets_are_those_of_top_n_sigma_in_float64() -> None:
    rng = np.random.default_rng(7)
    differing = 0
    for row in random_rows(300):
        value = float(F32(rng.uniform(0.05, 3)))
        wide = row.astype(np.float64)
        border = wide.max() - value * wide.std()
        other = set(kept(row, top_n_sigma=value)) ^ set(np.flatnonzero(wide >= border).tolist())
        differing += bool(other)
        assert all(abs(wide[token] - border) < 1e-3 for token in other)
    assert differing <= 3
