"""`Latency`: percentiles, sums and histograms of recorded times."""

from __future__ import annotations

import copy
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest

from fastsample import Latency
from tests.support.case_loop import each
from tests.support.engines import latency_of

TIMES = [int(t) for t in np.random.default_rng(3).lognormal(9, 2, size=5_000)]
EDGES = [*range(200), *(2**n + d for n in range(7, 63) for d in (-1, 0, 1)), 2**63 - 1]


@each("q", [0, 0.1, 10, 50, 90.0, 99, 99.9, 100])
def test_percentiles_are_those_of_the_times(q: float) -> None:
    true = sorted(TIMES)[max(math.ceil(Fraction(str(q)) * len(TIMES) / 100), 1) - 1]
    assert latency_of(TIMES).percentile(q) == pytest.approx(true, rel=0.008, abs=0.5)


def test_count_mean_and_max_are_exact() -> None:
    latency = latency_of(TIMES)
    assert (latency.count, latency.tokens) == (5_000, 5_000)
    assert latency.mean == sum(TIMES) / 5_000
    assert latency.max == max(TIMES)
    assert (latency.p50, latency.p99) == (latency.percentile(50), latency.percentile(99))
    assert latency.p90 == latency.percentile(90)


@each("time", EDGES)
def test_every_time_has_a_narrow_bucket(time: int) -> None:
    counts, edges = latency_of([time]).histogram()
    assert counts.tolist() == [1]
    assert edges[0] <= time <= edges[1]
    assert edges[1] - edges[0] <= max(1, 0.016 * time)
    assert latency_of([time]).max == float(time)


def test_the_histogram_holds_every_call() -> None:
    counts, edges = latency_of(TIMES).histogram()
    assert counts.dtype == np.int64
    assert counts.tolist() == np.histogram(TIMES, edges)[0].tolist()
    assert counts[0] and counts[-1]
    assert edges[0] <= min(TIMES) and max(TIMES) < edges[-1]


def test_nothing_was_measured() -> None:
    latency = Latency()
    counts, edges = latency.histogram()
    assert (latency.count, latency.tokens, len(counts), len(edges)) == (0, 0, 0, 1)
    assert all(math.isnan(one) for one in (latency.mean, latency.max, latency.p50))
    assert repr(latency) == "Latency(0 calls)"


def test_tokens_of_a_batch() -> None:
    latency = Latency()
    latency.record(500, tokens=32)
    latency.record(700, tokens=0)
    assert (latency.count, latency.tokens, latency.mean) == (2, 32, 600.0)


def test_reset_forgets() -> None:
    latency = latency_of(TIMES)
    latency.reset()
    assert latency.count == 0
    latency.record(10)
    assert (latency.p99, latency.max) == (10.0, 10.0)


@pytest.mark.parametrize("duplicate", [copy.copy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_go_on_alone(duplicate: object) -> None:
    latency = latency_of(TIMES)
    twin = duplicate(latency)
    assert repr(twin) == repr(latency)
    twin.record(1)
    assert (latency.count, twin.count) == (5_000, 5_001)


@pytest.mark.parametrize("n", [7, 100, 1_000, 3_000])
def test_a_percentile_is_the_nearest_rank_of_the_decimal_that_was_written(n: int) -> None:
    """Below 128 ns each nanosecond has a bucket, so that a time is exact."""
    latency = Latency()
    for rank in range(1, n + 1):
        latency.record(rank * 100 // n)
    times = [rank * 100 // n for rank in range(1, n + 1)]
    for tenths in range(1001):
        rank = max(math.ceil(Fraction(tenths * n, 1000)), 1)
        assert latency.percentile(tenths / 10) == times[rank - 1], tenths


@pytest.mark.parametrize("last", [{"nanoseconds": 1}, {"nanoseconds": 0, "tokens": 1}])
def test_a_full_sum_is_an_error(last: dict[str, int]) -> None:
    latency = Latency()
    latency.record(2**63 - 1, tokens=2**63 - 1)
    before = repr(latency), [part.tolist() for part in latency.memory]
    with pytest.raises(ValueError, match="must add up to less than 2"):
        latency.record(**last)
    assert (repr(latency), [part.tolist() for part in latency.memory]) == before
