"""Interleaved timing: a call alternates with its partner, row by row, in one process.

A slow moment of the machine affects both, so their ratio is stable where microseconds are not.
pytest-benchmark times the call; the partner runs, under a clock of its own, in the set-up of each
round, which pytest-benchmark does not time. The partner's times and the ratio go into its
extra_info. `fastsample.cli.interleave` is the version for users: it needs no pytest-benchmark and
keeps a histogram instead of every time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastsample.cli.interleave import Call

BUDGET = 0.25
"""Seconds for a bench and its partner; a slow bench still runs once on every row."""

MOST_ROUNDS = 4_096
SLOW = 1e-3
"""A call that takes more seconds than this is warmed up on a few rows instead of all."""


@dataclass(frozen=True)
class Times:
    """Seconds per token: median, mean and 99th percentile."""

    median: float
    mean: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float], tokens: int) -> Times:
        """Summarize the seconds of calls that give `tokens` tokens each."""
        per_token = np.asarray(seconds) / tokens
        p99 = np.percentile(per_token, 99)
        return cls(float(np.median(per_token)), float(per_token.mean()), float(p99))


@dataclass(frozen=True)
class Outcome:
    """The times of a call and of its partner."""

    call: Times
    partner: Times


class Interleaved:
    """Rounds of a call and its partner over rows.

    Parameters
    ----------
    call, partner : callables of one item each
    items, partner_items : what they are called with, equally many
        Rows, or batches of rows. The partner reads the item half a pass away, so that neither finds
        in a cache what the other has just read.
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
        """Run rounds that are not counted; return how many rounds fit into the budget."""
        count, taken = len(self._items), min(4, len(self._items))
        seconds = self._take(taken)
        if seconds < SLOW and count > taken:
            seconds = self._take(count)
        self._round = 0
        self.partner_seconds.clear()
        passes = min(MOST_ROUNDS // count, int(BUDGET / (count * seconds)))
        return count * max(1, passes)

    def _take(self, rounds: int) -> float:
        start = time.perf_counter()
        for _ in range(rounds):
            arguments, _ = self.next()
            self._call(*arguments)
        return (time.perf_counter() - start) / rounds

    def run(self, benchmark: Any, tokens: int) -> Outcome | None:
        """Let pytest-benchmark run the rounds; None where timing is disabled."""
        rounds = self.warm_up() if benchmark.enabled else 1
        benchmark.pedantic(self._call, setup=self.next, rounds=rounds)
        if not benchmark.enabled:
            return None
        seconds = benchmark.stats.stats.data
        return Outcome(Times.of(seconds, tokens), Times.of(self.partner_seconds, tokens))
