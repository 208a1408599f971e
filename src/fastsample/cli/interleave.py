"""Time calls interleaved on the same rows, so that a slow moment affects all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from fastsample import Latency

QUIET = 0.5
"""Above this load average of the last minute, a machine is busy."""

Call = Callable[[Any], object]


def load_average() -> float:
    """Return the average number of running or waiting processes in the last minute."""
    return os.getloadavg()[0]


def time_pass(
    calls: Mapping[str, Call],
    rows: NDArray[Any],
    latencies: Mapping[str, Latency],
    tokens: int = 1,
) -> None:
    """Time every call once on every row; no call reads a row that another has just read.

    Parameters
    ----------
    calls : dict of callables
        Each takes a row, or a batch of rows.
    rows : array of shape (N, V) or (N, B, V)
    latencies : dict of Latency
        Where the times of each call are recorded.
    tokens : int
        The tokens that a call returns; the time of one token is recorded.
    """
    clock, count, distance = time.perf_counter_ns, len(rows), max(len(rows) // len(calls), 1)
    for i in range(count):
        for j, (name, call) in enumerate(calls.items()):
            row = rows[(i + j * distance) % count]
            start = clock()
            call(row)
            elapsed = clock() - start
            latencies[name].record(elapsed // tokens)


def time_interleaved(
    calls: Mapping[str, Call], rows: NDArray[Any], repeat: int, tokens: int = 1
) -> dict[str, Latency]:
    """Time every call `repeat` times on every row, after a warm-up pass that is not counted.

    The parameters are those of `time_pass`.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.zeros((3, 100), dtype=np.float32)
    >>> calls = {"np.max": np.max, "np.min": np.min}
    >>> time_interleaved(calls, rows, repeat=2)["np.min"].count
    6
    """
    time_pass(calls, rows, {name: Latency() for name in calls})
    latencies = {name: Latency() for name in calls}
    for _ in range(repeat):
        time_pass(calls, rows, latencies, tokens)
    return latencies
