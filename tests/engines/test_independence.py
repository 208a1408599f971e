"""Random words and what is drawn with them: uniform, independent over position, stream and seed.

A word is U of the rule, 64 bits. Words that the reference computes are tested, many at a time;
`test_philox` tests that engines draw with these words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastsample.engines import reference
from tests.support.engines import Engine, make_plan, native
from tests.support.goodness_of_fit import (
    ALPHA,
    chi_square,
    chi_square_tail,
    kolmogorov,
    kolmogorov_limit,
    z_limit,
)

LOW = np.uint64(2**32 - 1)
HALF = np.uint64(32)
# Seeds and positions start where their low half is about to overflow.
START = {"seed": 2**33 - 1000, "position": 2**32 - 1000, "stream": 2**31 - 1000}
COUNTED = {"seed": ("seed",), "position": ("position",), "stream": ("stream",), "all": tuple(START)}
LAGS = range(1, 65)


def places(counted: str, n: int, first: int = 0) -> dict[str, Any]:
    """Seed, position and stream of n draws, of which some count up while the others rest."""
    steps = np.arange(first, first + n, dtype=np.uint64)
    return {
        name: np.uint64(start) + (steps if name in COUNTED[counted] else np.zeros_like(steps))
        for name, start in START.items()
    }


def words(place: dict[str, Any]) -> np.ndarray:
    """U at each place, by the reference's generator."""
    seed, position, stream = place["seed"], place["position"], place["stream"]
    key, zero = (seed & LOW, seed >> HALF), np.zeros_like(stream)
    drawn = reference.philox4x32(key, (position & LOW, position >> HALF, stream, zero))
    return drawn[0] + (drawn[1] << HALF)


def many_words(counted: str, n: int, chunk: int = 2**18) -> np.ndarray:
    """The first n words, in chunks that stay in the cache."""
    parts = [words(places(counted, min(chunk, n - i), i)) for i in range(0, n, chunk)]
    return np.concatenate(parts)


def test_many_words_are_those_of_the_reference():
    for counted in COUNTED:
        found = many_words(counted, 1500, 400).tolist()
        for i in (0, 399, 400, 999, 1000, 1001, 1499):
            place = {name: int(value[i]) for name, value in places(counted, 1500).items()}
            assert found[i] == reference.uniform(**place)


@pytest.mark.parametrize(
    "n", [500_000, pytest.param(25_000_000, marks=pytest.mark.nightly)], ids=["1M", "50M"]
)
@pytest.mark.parametrize("counted", COUNTED)
def test_words(counted, n):
    """Twice n words of 32 bits: uniform, byte by byte too, and without memory of those before.

    Each of the three has a third of ALPHA.
    """
    found = many_words(counted, n)
    numbers = (found >> np.uint64(11)) * 2.0**-53
    assert kolmogorov(numbers) < kolmogorov_limit(3)
    for byte in found.view(np.uint8).reshape(n, 8).T:
        counts = np.bincount(byte, minlength=256)
        assert chi_square_tail(chi_square(counts, 1 / 256), 255) > ALPHA / (3 * 8)
    numbers -= 0.5
    for lag in LAGS:
        # The product of two independent numbers has variance (1/12)^2.
        z = 12 * float(numbers[lag:] @ numbers[:-lag]) / np.sqrt(n - lag)
        assert abs(z) < z_limit(3 * len(LAGS)), lag


@pytest.mark.skipif(native is None, reason="fastsample._native is not built")
@pytest.mark.parametrize("counted", COUNTED)
def test_tokens_do_not_follow_one_another(counted):
    """A token says nothing of the next, of how far off it is, or of the one 64 places on."""
    n, size = 2**20, 128
    engine = Engine("native", native.default_isa())
    rows = np.broadcast_to(np.zeros(size, dtype=np.float32), (n, size))
    tokens, _ = engine.sample(rows, make_plan(n, **places(counted, n)))
    for lag in (1, 64):
        shifts = np.bincount((tokens[lag:] - tokens[:-lag]) % size, minlength=size)
        assert chi_square_tail(chi_square(shifts, 1 / size), size - 1) > ALPHA / 4
        pairs = np.bincount(tokens[lag:] * size + tokens[:-lag], minlength=size**2)
        assert chi_square_tail(chi_square(pairs, size**-2), size**2 - 1) > ALPHA / 4
