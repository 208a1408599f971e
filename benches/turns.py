"""The way to time: a call and its partner take turns, row by row, in one process.

A slow moment of the machine meets both, so their ratio stands where microseconds do not. It fits
into pytest-benchmark's rounds: the partner runs, under a clock of its own, in the set-up of each
round of the call, which is not part of the round. pytest-benchmark keeps the call's times; the
partner's median and the ratio go into its extra_info. `fastsample.cli.interleave`, which users
have, takes turns by itself and keeps a histogram; here pytest-benchmark calls, and its JSON has
every time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from fastsample.cli.interleave import Call

BUDGET = 0.25
"""Seconds for a bench and its partner; slow ones see every row once, whatever that takes."""

MOST_ROUNDS = 512
SLOW = 1e-3
"""A call of more seconds than this needs no pass to warm up: a few of its turns will do."""


@dataclass(frozen=True)
class Outcome:
    """Seconds a token: the call's median and 99th percentile, and its partner's median."""

    median: float
    p99: float
    partner: float


class Turns:
    """Rounds of a call and its partner over rows.

    Parameters
    ----------
    call, partner : callables of one item each
    items, partner_items : what they are called with, equally many
        Rows, or batches of them. The partner sees the item that is half the way round, so that
        neither finds in a cache what the other has just read.
    """

    def __init__(
        self, call: Call, items: Sequence[Any], partner: Call, partner_items: Sequence[Any]
    ) -> None:
        self._call, self._items = call, items
        self._partner, self._partner_items = partner, partner_items
        self._round = 0
        self.partner_seconds: list[float] = []

    def next(self) -> tuple[tuple[Any], dict[str, Any]]:
        """Time the partner on its item, and return the arguments of the call's next round."""
        count, clock = len(self._items), time.perf_counter
        i, self._round = self._round % count, self._round + 1
        other = self._partner_items[(i + count // 2) % count]
        start = clock()
        self._partner(other)
        self.partner_seconds.append(clock() - start)
        return (self._items[i],), {}

    def warm_up(self) -> int:
        """Take turns that do not count; return how many rounds the budget has room for."""
        count, taken = len(self._items), min(4, len(self._items))
        seconds = self._take(taken)
        if seconds < SLOW and count > taken:
            seconds = self._take(count)
        self._round = 0
        self.partner_seconds.clear()
        passes = min(MOST_ROUNDS // count, int(BUDGET / (count * seconds)))
        return count * max(1, passes)

    def _take(self, turns: int) -> float:
        start = time.perf_counter()
        for _ in range(turns):
            arguments, _ = self.next()
            self._call(*arguments)
        return (time.perf_counter() - start) / turns

    def run(self, benchmark: Any, tokens: int) -> Outcome | None:
        """Let pytest-benchmark run the rounds; None where it only tries whether they run."""
        rounds = self.warm_up() if benchmark.enabled else 1
        benchmark.pedantic(self._call, setup=self.next, rounds=rounds)
        if not benchmark.enabled:
            return None
        seconds = benchmark.stats.stats.data
        return Outcome(
            median(seconds) / tokens,
            float(np.percentile(seconds, 99)) / tokens,
            median(self.partner_seconds) / tokens,
        )
