"""The law of the race: its words enumerated at fewer bits, and frequencies of the reference."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from fastsample.engines import reference
from fastsample.engines.reference import race
from tests.support.case_loop import each
from tests.support.engines import Engine, make_output, make_plan, make_request
from tests.support.goodness_of_fit import ALPHA, chi_square_tail, g_statistic, total_variation
from tests.support.random_rows import normal

REFERENCE = Engine("reference")

# ---------------------------------------------------------------- enumeration


def clock_values(bits: int) -> np.ndarray:
    """The clocks of words of so many bits, which are equally likely: 52 in the rule."""
    return -reference.ln((np.arange(2**bits) + 0.5) * 2.0**-bits)


def share_later(times: np.ndarray, than: np.ndarray, or_equal: bool) -> np.ndarray:
    """Probability that a time is later than each of some others; all of `times` equally likely."""
    at = np.searchsorted(np.sort(times), than, side="left" if or_equal else "right")
    return 1 - at / len(times)


def law_of_clocks(rates: list[int], bits: int, unmatched: np.ndarray | None = None) -> np.ndarray:
    """Probability of each token to come first by its clock; of equal times the lower one."""
    times = [clock_values(bits) / rate for rate in rates]
    law = []
    for i, own in enumerate(times):
        first = np.ones(len(own))
        for j, other in enumerate(times):
            if j != i:
                first *= share_later(other, own, or_equal=j > i)
        law.append(float(first.mean()) if unmatched is None else first)
    return np.array(law)


MASSES = ([5, 5], [2**40, 3], [2**40, 2**39], [7, 1, 1], [2**40, 2**38 + 1, 2**30, 1], [3, 3, 3, 2])


@each("bits", [8, 12, 16, 20])
@each("masses", MASSES)
def test_law_of_listed_tokens(bits: int, masses: list[int]) -> None:
    """Well within section 6's bound, N * 2^-(bits - 5), where it has 52 bits."""
    shares = np.array(masses) / sum(masses)
    off = total_variation(law_of_clocks(masses, bits), shares)
    assert off <= len(masses) * 2.0 ** -(bits + 2) * 1.001


def law_of_first_hit(share: float, bits: int, steps: int) -> np.ndarray:
    """Probabilities of the time of the tail's first hit, in steps of 2^-steps; each hits alike."""
    g = np.bincount(np.rint(clock_values(bits) * 2.0**steps).astype(np.int64)) / 2.0**bits
    length = 1 << int(np.ceil(np.log2(2**steps * (bits + 40 / share))))
    one = np.fft.rfft(g, length)
    return np.fft.irfft(share * one / (1 - (1 - share) * one), length)


def law_of_head_and_tail(masses: list[int], v: int, q: int, bits: int, steps: int) -> np.ndarray:
    """Probability of each token where the head's clocks and the tail's sums are enumerated."""
    tail = np.minimum(masses, 2**q) / 2.0 ** (v + q)
    rates = {i: mass - 2**q for i, mass in enumerate(masses) if mass > 2**q}
    hit = law_of_first_hit(float(tail.sum()), bits, steps)
    ends = np.arange(len(hit)) * 2.0**-steps * 2.0 ** -(v + q)
    times = {i: clock_values(bits) / rate for i, rate in rates.items()}
    later = np.ones(len(hit))
    for own in times.values():
        later *= share_later(own, ends, or_equal=True)
    law = float((hit * later).sum()) * tail / tail.sum()
    after = np.append(np.cumsum(hit[::-1])[::-1], 0)  # from each step on
    for i, own in times.items():
        first = after[np.searchsorted(ends, own, side="right")]
        for j, other in times.items():
            if j != i:
                first = first * share_later(other, own, or_equal=j > i)
        law[i] += float(first.mean())
    return law


HEADS = (
    ([2**40, 2**38], 1, 39),
    ([2**40, 2**40], 1, 38),
    ([2**40, 2**37, 2**37 + 1, 3], 2, 37),
    ([2**38, 2**40, 2**36, 2**39], 2, 36),
)


@each("steps", [6, 8, 10])
@each("masses, v, q", HEADS)
def test_law_of_head_and_tail(steps: int, masses: list[int], v: int, q: int) -> None:
    """Well within section 6's bound, of steps of 2^-32: 10 * 2^-(steps + 1) and that above."""
    bits = 18
    shares = np.array(masses) / sum(masses)
    law = law_of_head_and_tail(masses, v, q, bits, steps)
    assert law.sum() == pytest.approx(1, abs=1e-9)
    assert total_variation(law, shares) <= 2.0 ** -(steps + 8)


# ---------------------------------------------------------------- frequencies
# Nightly: `tests/engines/test_race_frequencies.py` has many more draws of the native engine.

WIDE = np.full(1024, -np.inf, dtype=np.float32)
WIDE[:992:31] = normal(np.random.default_rng(9), 32, 1.2)
FIT = {
    "tail alone": (normal(np.random.default_rng(8), 32, 1.2), {}),
    "head and tail": (WIDE, {"temperature": 0.7, "top_p": 0.97}),
    "listed": (normal(np.random.default_rng(7), 32, 1.2), {"temperature": 1.7, "top_k": 20}),
}


def fit(name: str, n_draws: int) -> float:
    """Tail of the G-test of so many draws; nothing outside of the kept set is drawn."""
    row, settings = FIT[name]
    request = make_request(row[np.newaxis], make_plan(1, seed=9, draw=1, **settings))
    tokens = REFERENCE.run(request, make_output(1, draws=n_draws)).tokens[0]
    shares = REFERENCE.shares(row, **settings)
    counts = np.bincount(tokens, minlength=len(row))
    assert counts[shares == 0].sum() == 0
    return chi_square_tail(g_statistic(counts, shares), int(np.count_nonzero(shares)) - 1)


@pytest.mark.nightly
@pytest.mark.parametrize("name", FIT)
def test_frequencies(name: str) -> None:
    assert fit(name, 25_000) > ALPHA


@pytest.mark.nightly
def test_a_head_that_is_not_shaved_is_found() -> None:
    """The control: heavy tokens that arrive by the tail and by a clock of all their mass."""

    def whole(row: reference.Race, place: reference.Place) -> race.Head:
        found = shaved(row, place)
        return found._replace(times=found.clocks / found.masses.astype(np.float64))

    shaved = race.head
    with mock.patch.object(race, "head", whole):
        assert fit("head and tail", 20_000) < ALPHA
