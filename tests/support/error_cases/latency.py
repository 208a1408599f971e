"""Errors in telling and asking how long calls took."""

from __future__ import annotations

import time

from fastsample import Latency
from tests.support.error_cases import ErrorCase, call_error
from tests.support.error_cases.following import Mended


def recorded(nanoseconds: int, tokens: int = 1) -> list[int]:
    """The numbers of calls and tokens after one call."""
    latency = Latency()
    latency.record(nanoseconds, tokens=tokens)
    return [latency.count, latency.tokens]


def recorded_twice(is_reset: bool) -> list[int]:
    """Likewise after two calls of 2**62 nanoseconds."""
    latency = Latency()
    latency.record(2**62)
    if is_reset:
        latency.reset()
    latency.record(2**62)
    return [latency.count, latency.tokens]


ERROR_CASES = [
    call_error(
        recorded,
        ValueError,
        "`nanoseconds` must be in [0, 2**63), got -1 (the time of a call",
        nanoseconds=-1,
        to=("by a clock such as time.perf_counter_ns", time.perf_counter_ns()),
    ),
    call_error(
        recorded,
        TypeError,
        "`nanoseconds` must be an integer, got float 0.5",
        nanoseconds=0.5,
        to=("by a clock such as time.perf_counter_ns", time.perf_counter_ns()),
    ),
    call_error(
        recorded,
        ValueError,
        "`tokens` must be in [0, 2**63), got -1 (the number of tokens of a call, 0 or more)",
        nanoseconds=1,
        tokens=-1,
        to=("0 or more", 3),
    ),
    ErrorCase(
        lambda: recorded_twice(is_reset=False),
        ValueError,
        "`nanoseconds` must add up to less than 2**63, got 9223372036854775808 (reset() removes",
        Mended("reset() removes all calls", lambda: recorded_twice(is_reset=True), [1, 1]),
    ),
    call_error(
        lambda q: Latency().percentile(q),
        ValueError,
        "`q` must be in [0, 100], got 101.0 (a percentage: 50 for the median)",
        q=101,
    ),
]
