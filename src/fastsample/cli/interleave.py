"""Time calls interleaved on the same rows, so that a slow moment affects all of them.

Where one call follows the other, code and data are in the caches. In a loop that generates text, a
step of the model comes between two calls, and leaves neither there: see `time_after`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample import Latency

QUIET = 0.5
"""Above this load average of the last minute, a machine is busy."""

SWEPT = 64
"""Megabytes that are read before a cold call."""

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


def time_after(
    step: Callable[[str], Any],
    calls: Mapping[str, Call],
    repeat: int,
    tokens: int = 1,
    seed: int = 0,
) -> dict[str, Latency]:
    """Time every call `repeat` times, each right after a step, one call per step in random order.

    Parameters
    ----------
    step : callable
        Called with the name of the call that follows; what it returns is the call's argument.
    calls : dict of callables, by name
    repeat, tokens : int
        As in `time_interleaved`; there is no warm-up pass.
    seed : int
        Of the order: each round has every call once.

    Examples
    --------
    >>> import numpy as np
    >>> row = np.zeros(100, dtype=np.float32)
    >>> calls = {"np.max": np.max, "np.min": np.min}
    >>> time_after(lambda name: row.copy(), calls, repeat=2)["np.min"].count
    2
    """
    clock, rng, names = time.perf_counter_ns, np.random.default_rng(seed), list(calls)
    latencies = {name: Latency() for name in names}
    for _ in range(repeat):
        for i in rng.permutation(len(names)):
            name, call = names[i], calls[names[i]]
            item = step(name)
            start = clock()
            call(item)
            elapsed = clock() - start
            latencies[name].record(elapsed // tokens)
    return latencies


class Sweep:
    """Rows as a model's last layer leaves them: the caches swept, then the row written.

    Parameters
    ----------
    rows : array of shape (N, V) or (N, B, V)
        The next one is written into the same memory at each call.
    megabytes : int
        How much is read before; more than the caches hold.

    Examples
    --------
    >>> import numpy as np
    >>> sweep = Sweep(np.arange(6, dtype=np.float32).reshape(2, 3), megabytes=1)
    >>> sweep().tolist(), sweep().tolist(), sweep().tolist()
    ([0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [0.0, 1.0, 2.0])
    """

    def __init__(self, rows: NDArray[Any], megabytes: int = SWEPT) -> None:
        self._rows = rows
        self._written: NDArray[Any] = np.empty_like(rows[0])
        # Ones: pages of zeros that nobody has written are all the same memory.
        self._memory = np.ones(megabytes * 2**18, np.float32)
        self._count = 0

    def __call__(self) -> NDArray[Any]:
        """Sweep, and return the memory with the next row."""
        self._memory.sum()
        self._written[...] = self._rows[self._count % len(self._rows)]
        self._count += 1
        return self._written
