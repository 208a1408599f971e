"""Errors in telling and asking how long calls took."""

from __future__ import annotations

from fastsample import Latency
from tests.support.error_cases import ErrorCase

ERROR_CASES = [
    ErrorCase(
        lambda: Latency().record(-1),
        ValueError,
        "`nanoseconds` must be in [0, 2**63), got -1 (the time of a call",
    ),
    ErrorCase(
        lambda: Latency().record(0.5), TypeError, "`nanoseconds` must be an integer, got float 0.5"
    ),
    ErrorCase(
        lambda: Latency().record(1, tokens=-1),
        ValueError,
        "`tokens` must be in [0, 2**63), got -1 (the number of tokens of a call)",
    ),
    ErrorCase(
        lambda: [Latency.record(one, 2**62) for one in [Latency()] * 2],
        ValueError,
        "`nanoseconds` must add up to less than 2**63, got 9223372036854775808 (reset() removes",
    ),
    ErrorCase(
        lambda: Latency().percentile(101),
        ValueError,
        "`q` must be in [0, 100], got 101.0 (a percentage: 50 for the median)",
    ),
]
