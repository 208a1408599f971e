"""Time calls on the same rows in turns, so that a slow moment of the machine meets all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from fastsample import Latency

QUIET = 0.5
"""A machine with a higher load average of the last minute is busy."""

Call = Callable[[Any], object]


def load_average() -> float:
    """Tell how many processes ran or waited in the last minute, on the average."""
    return os.getloadavg()[0]


def take_turns(
    calls: Mapping[str, Call],
    rows: NDArray[Any],
    latencies: Mapping[str, Latency],
    tokens: int = 1,
) -> None:
    """Time every call once on every row; each meets a row that no other has just read.

    Parameters
    ----------
    calls : callables of a row, by name; or of a batch of rows
    rows : array of shape (N, V), or (N, B, V)
    latencies : where each call's times are added, by the same names
    tokens : int
        How many tokens a call gives; what is added is the time of one.
    """
    clock, count, apart = time.perf_counter_ns, len(rows), max(len(rows) // len(calls), 1)
    for i in range(count):
        for turn, (name, call) in enumerate(calls.items()):
            row = rows[(i + turn * apart) % count]
            start = clock()
            call(row)
            took = clock() - start
            latencies[name].record(took // tokens)


def in_turns(
    calls: Mapping[str, Call], rows: NDArray[Any], repeat: int, tokens: int = 1
) -> dict[str, Latency]:
    """Time every call `repeat` times on every row, after a pass for warming up that is not counted.

    The parameters are those of `take_turns`.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.zeros((3, 100), dtype=np.float32)
    >>> in_turns({"np.max": np.max, "np.min": np.min}, rows, repeat=2)["np.min"].count
    6
    """
    take_turns(calls, rows, {name: Latency() for name in calls})
    latencies = {name: Latency() for name in calls}
    for _ in range(repeat):
        take_turns(calls, rows, latencies, tokens)
    return latencies
