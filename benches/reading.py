"""Both ways in which a first pass can read a row, on greedy calls: which is faster on this machine?

The ways and `np.max` alternate, row by row. kernels/simd/cpu.hpp has the table that chooses by
processor, and `FASTSAMPLE_READING` overrides it.

    python benches/reading.py [--isa x86-64-v3]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer
from generator import make_row
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import fastsample
from fastsample import _native

VOCABULARIES = (32_000, 151_936, 262_144)
WAYS = ("streams", "ahead")
N_ROWS = 16


def time_ways(
    rows: NDArray[np.float32], greedy: Callable[[Any], object], seconds: float
) -> dict[str, float]:
    """Return the medians of `np.max` and of the call with each way, in microseconds."""
    clock, found = time.perf_counter_ns, dict[str, list[int]]()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name in ("np.max", *WAYS):
            call = greedy if name in WAYS else np.max
            if name in WAYS:
                _native.set_reading(name)
            for row in rows:
                start = clock()
                call(row)
                found.setdefault(name, []).append(clock() - start)
    return {name: float(np.median(times)) / 1e3 for name, times in found.items()}


def main(
    isa: Annotated[str | None, typer.Option(help="instruction set")] = None,
    seconds: Annotated[float, typer.Option(help="for each vocabulary")] = 5.0,
) -> None:
    """Print a table: microseconds, and multiples of np.max."""
    chosen, table = _native.reading(), Table("V", "np.max", *WAYS)
    for vocabulary in VOCABULARIES:
        rows = np.stack([make_row(vocabulary, seed) for seed in range(N_ROWS)])
        greedy = fastsample.Sampler(temperature=0.0, seed=1, n_threads=1, isa=isa)
        times = time_ways(rows, greedy, seconds)
        unit = times["np.max"]
        cells = [f"{us:.2f} us, {us / unit:.2f}" for us in times.values()]
        table.add_row(f"{vocabulary:,}", *cells)
    _native.set_reading(chosen)
    console = Console()
    console.print(f"{fastsample.info()['cpu']}; chosen here: {chosen}")
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
