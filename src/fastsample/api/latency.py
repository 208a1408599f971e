"""`Latency`: a histogram of call times, in constant memory."""

from __future__ import annotations

from array import array
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.params.validation import FloatParameter, IntParameter

_BITS = 6
"""Below 2**6 ns each nanosecond has a bucket; above, each doubling has 2**6 buckets."""

_BUCKETS = (63 - _BITS + 1) << _BITS
_MOST = 2**63 - 1
_CALLS, _TOKENS, _TOTAL, _LONGEST = range(4)

_count = partial(IntParameter, rule="in [0, 2**63)")
_NANOSECONDS = _count(
    name="nanoseconds", way_out="the time of a call, by a clock such as time.perf_counter_ns"
)
_TOKEN_COUNT = _count(name="tokens", way_out="the number of tokens of a call, 0 or more")
_PERCENT = FloatParameter(
    name="q", rule="in [0, 100]", way_out="a percentage: 50 for the median", low=0.0, high=100.0
)


class Latency:
    """The times of calls, in a histogram of constant size.

    A bucket is at most 1.6 % wide, so that a percentile has an error of at most 0.8 %; count, mean
    and max are exact. All times are in nanoseconds.

    Attributes
    ----------
    count : int
        The number of calls, each with any number of rows.
    tokens : int
        The number of tokens they returned.
    mean, p50, p90, p99, max : float
        Of the times; nan without calls.

    Examples
    --------
    >>> from fastsample import Latency
    >>> latency = Latency()
    >>> for nanoseconds in (1_000, 1_200, 1_100, 9_000):
    ...     latency.record(nanoseconds)
    >>> latency.count, latency.mean, latency.max
    (4, 3075.0, 9000.0)
    >>> latency
    Latency(4 calls, 4 tokens: p50 1.1 us, p90 9.0 us, p99 9.0 us, max 9.0 us, mean 3.1 us)
    """

    __slots__ = ("_counts", "_sums")

    def __init__(self) -> None:
        self._counts = array("q", bytes(8 * _BUCKETS))
        self._sums = array("q", bytes(8 * 4))

    @property
    def memory(self) -> tuple[array[int], array[int]]:
        """The counts of buckets, and (calls, tokens, time, longest time); engines write both."""
        return self._counts, self._sums

    def record(self, nanoseconds: int, tokens: int = 1) -> None:
        """Add a call.

        Parameters
        ----------
        nanoseconds : int
            Its time. The sum over all calls must be below 2**63, which is 292 years.
        tokens : int
            The number of tokens it returned. The sum over all calls must be below 2**63.
        """
        took, drawn = _NANOSECONDS.one(nanoseconds), _TOKEN_COUNT.one(tokens)
        shift = max(took.bit_length() - 1 - _BITS, 0)
        sums = self._sums
        total, tokens = sums[_TOTAL] + took, sums[_TOKENS] + drawn
        if total > _MOST or tokens > _MOST:
            name, added = ("nanoseconds", total) if total > _MOST else ("tokens", tokens)
            raise ValueError(
                f"`{name}` must add up to less than 2**63, got {added} (reset() removes all calls)"
            )
        longest = max(sums[_LONGEST], took)
        self._counts[(shift << _BITS) + (took >> shift)] += 1
        sums[_CALLS] += 1
        sums[_TOKENS], sums[_TOTAL], sums[_LONGEST] = tokens, total, longest

    def reset(self) -> None:
        """Remove all calls."""
        for memory in (self._counts, self._sums):
            np.frombuffer(memory, np.int64)[...] = 0

    @property
    def count(self) -> int:
        """The number of calls."""
        return self._sums[_CALLS]

    @property
    def tokens(self) -> int:
        """The number of tokens of all calls."""
        return self._sums[_TOKENS]

    @property
    def mean(self) -> float:
        """The mean time of a call."""
        return self._sums[_TOTAL] / self.count if self.count else float("nan")

    @property
    def max(self) -> float:
        """The time of the slowest call."""
        return float(self._sums[_LONGEST]) if self.count else float("nan")

    p50 = property(lambda self: self.percentile(50), doc="The median.")
    p90 = property(lambda self: self.percentile(90), doc="90 % of the calls did not exceed it.")
    p99 = property(lambda self: self.percentile(99), doc="99 % of the calls did not exceed it.")

    def percentile(self, q: float) -> float:
        """Return the time that q percent of the calls did not exceed, by nearest rank.

        It is the middle of a bucket, in nanoseconds; nan without calls. `q` is in [0, 100]; else
        TypeError or ValueError.
        """
        # As a decimal: a float times a count can round past an integer rank.
        percent, whole = Decimal(str(_PERCENT.one(q))).as_integer_ratio()
        counts = np.frombuffer(self._counts, np.int64)
        up_to = np.cumsum(counts)
        if not up_to[-1]:
            return float("nan")
        rank = max(-(-percent * int(up_to[-1]) // (100 * whole)), 1)
        bucket = int(np.searchsorted(up_to, rank))
        low, high = _edge(bucket), _edge(bucket + 1)
        return min((low + high - 1) / 2, self.max)

    def histogram(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return counts and edges, as `numpy.histogram` does.

        Returns
        -------
        counts : int64 array of shape (N,)
            Calls per bucket, from the first bucket with a call to the last; N is 0 without calls.
        edges : float64 array of shape (N + 1,)
            In nanoseconds. Bucket i includes ``edges[i]`` and excludes ``edges[i + 1]``.

        Examples
        --------
        >>> from fastsample import Latency
        >>> latency = Latency()
        >>> for nanoseconds in (40, 41, 41, 43):
        ...     latency.record(nanoseconds)
        >>> latency.histogram()
        (array([1, 2, 0, 1]), array([40., 41., 42., 43., 44.]))
        """
        counts = np.frombuffer(self._counts, np.int64)
        filled = np.flatnonzero(counts)
        first, last = (filled[0], filled[-1] + 1) if len(filled) else (0, 0)
        edges = [_edge(bucket) for bucket in range(first, last + 1)]
        return counts[first:last].copy(), np.array(edges, np.float64)

    def __repr__(self) -> str:
        if not self.count:
            return "Latency(0 calls)"
        names = ("p50", "p90", "p99", "max", "mean")
        times = ", ".join(f"{name} {getattr(self, name) / 1e3:.1f} us" for name in names)
        return f"Latency({self.count} calls, {self.tokens} tokens: {times})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._counts.tobytes(), self._sums.tobytes())


def _edge(bucket: int) -> int:
    """The lower edge of a bucket."""
    shift = max((bucket >> _BITS) - 1, 0)
    return (int(bucket) - (shift << _BITS)) << shift


def _restored(counts: bytes, sums: bytes) -> Latency:
    latency = Latency()
    latency._counts = array("q", counts)
    latency._sums = array("q", sums)
    return latency
