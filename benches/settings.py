"""What a token costs in each setting, next to one `np.max` of the same rows.

Ours and `np.max` take turns, row by row, in one process on one thread, so a slow moment of the
machine meets both. Read the ratios; the microseconds belong to this machine. Nothing else may run
meanwhile.

    python benches/settings.py [--vocabulary 151936] [--isa NAME] [--repeat 8]
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rows import rows_of

import fastsample

SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "usual chain": {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05},
    "min_p .05": {"min_p": 0.05},
    "top_k 1000, T .8": {"temperature": 0.8, "top_k": 1000},
    "T .8": {"temperature": 0.8},
    "top_p .9": {"top_p": 0.9},
    "top_p .95, T 1.5": {"temperature": 1.5, "top_p": 0.95},
}


def microseconds(call: Callable[[NDArray[np.float32]], object], row: NDArray[np.float32]) -> float:
    """Time one call."""
    start = time.perf_counter_ns()
    call(row)
    return (time.perf_counter_ns() - start) / 1e3


def compare(
    call: Callable[[NDArray[np.float32]], object], rows: NDArray[np.float32], repeat: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Time `call` and `np.max` in turns; each meets a row that the other has not just read."""
    ours, floor = [], []
    for _ in range(repeat):
        for i in range(len(rows)):
            ours.append(microseconds(call, rows[i]))
            floor.append(microseconds(np.max, rows[(i + len(rows) // 2) % len(rows)]))
    return np.array(ours), np.array(floor)


def main(
    vocabulary: int = 151_936,
    isa: str | None = None,
    repeat: Annotated[int, typer.Option(min=1)] = 8,
) -> None:
    """Print one line a setting."""
    rows = rows_of(vocabulary)
    load = os.getloadavg()[0]
    table = Table("setting", "median us", "p99 us", "np.max us", "ratio")
    for name, settings in SETTINGS.items():
        sampler = fastsample.Sampler(**settings, seed=1, isa=isa, n_threads=1)
        compare(sampler, rows, 1)
        ours, floor = compare(sampler, rows, repeat)
        median, least = np.median(ours), np.median(floor)
        table.add_row(
            name,
            f"{median:.1f}",
            f"{np.percentile(ours, 99):.1f}",
            f"{least:.1f}",
            f"{median / least:.2f}",
        )
    console = Console(width=100)
    console.print(table)
    machine = fastsample.info()
    console.print(
        f"V = {vocabulary}, {len(rows)} rows, isa {isa or machine['isa']}, numpy {np.__version__}, "
        f"load average {load:.2f}"
    )


if __name__ == "__main__":
    typer.run(main)
