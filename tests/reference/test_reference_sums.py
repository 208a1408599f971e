"""The reference's sums of plain numbers against oracles: fractions, `math.fsum` and a loop."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from fastsample.engines.reference import sums as reference_sums
from tests.support.number_arrays import DTYPES, bits, by_fractions, kinds, spread


def number_by_number(values: np.ndarray) -> float:
    """Section 8's fixed order, as its sentence says it."""
    kind = np.float64 if values.dtype == np.float64 else np.float32
    total = 0.0
    for first in range(0, values.size, 4096):
        lanes = [kind(0)] * 16
        for i, value in enumerate(values[first : first + 4096]):
            lanes[i % 16] = lanes[i % 16] + kind(value)
        for half in (8, 4, 2, 1):
            lanes = [lanes[lane] + lanes[lane + half] for lane in range(half)]
        total += float(lanes[0])
    return total


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [0, 1, 2, 17, 300])
def test_exact_is_the_true_sum(size: int, dtype: Any) -> None:
    for values in kinds(size, dtype):
        assert bits(reference_sums.exact(values)) == bits(by_fractions(values))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [4097, 300_000])
def test_exact_is_fsum(size: int, dtype: Any) -> None:
    rng = np.random.default_rng(size)
    for exponents in (0, 20, 100):
        values = spread(rng, size, dtype, exponents)
        assert bits(reference_sums.exact(values)) == bits(math.fsum(values.tolist()))


def test_exact_adds_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_sums, "_AT_ONCE", 100)
    values = spread(np.random.default_rng(0), 1001, np.float32, 30)
    assert reference_sums.exact(values) == math.fsum(values.tolist())
    values[[5, 900]] = np.inf, -np.inf
    assert bits(reference_sums.exact(values)) == bits(math.nan)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", reference_sums.SUMS)
def test_every_nan_is_the_same(name: str, dtype: Any) -> None:
    for first, second in itertools.product((np.inf, -np.inf, np.nan, -np.nan), repeat=2):
        for size in (2, 9000):
            values = np.zeros(size, dtype)
            values[[0, -1]] = first, second
            expected = first if first == second else math.nan
            assert bits(reference_sums.SUMS[name](values)) == bits(expected)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 4095, 4096, 4097, 9000])
def test_fixed_adds_in_the_order_of_the_rule(size: int, dtype: Any) -> None:
    for values in itertools.islice(kinds(size, dtype), 1, 4):
        assert bits(reference_sums.fixed(values)) == bits(number_by_number(values))
