"""Call overhead: rows of 16 tokens, for every type of logits.

Each call is timed in a loop of its own, warm, on one thread; a figure is the median of several
loops. Nothing else may run meanwhile.

    python benches/call.py [--vocabulary 16] [--repeat 15]
"""

from __future__ import annotations

import os
import timeit
from collections.abc import Callable
from itertools import count
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import fastsample

SETTINGS: dict[str, Any] = {"temperature": 0.8, "top_k": 4, "top_p": 0.95, "min_p": 0.05}
CALLS = 5_000


def sampling(logits: Any, **how: Any) -> Callable[[], object]:
    """Call one sampler repeatedly."""
    sampler = fastsample.Sampler(**{**SETTINGS, **how}, seed=1, n_threads=1)
    return lambda: sampler(logits)


def drawing(logits: Any) -> Callable[[], object]:
    """Call `sample` at increasing positions."""
    position = count()
    return lambda: fastsample.sample(
        logits, **SETTINGS, seed=1, position=next(position), n_threads=1
    )


def forms_of(rows: NDArray[np.float32]) -> dict[str, Callable[[], object]]:
    """Name each call; those of torch only where it is installed."""
    row, half = rows[0].copy(), rows[0].astype(np.float16)
    forms = {
        "sampler(row)": sampling(row),
        "sampler(row), greedy": sampling(row, temperature=0.0),
        "sampler(row), measured": sampling(row, measure=True),
        "sampler(row), float16": sampling(half),
        **{f"sampler({n} rows)": sampling(rows[:n].copy()) for n in (1, 4, 32)},
        "sample(row)": drawing(row),
    }
    try:
        import torch
    except ModuleNotFoundError:
        return forms
    tensor = torch.from_numpy(rows)
    return {
        **forms,
        "sampler(torch row)": sampling(tensor[0]),
        "sampler(torch row), bfloat16": sampling(tensor[0].bfloat16()),
        "sampler(32 torch rows)": sampling(tensor[:32]),
        "sample(torch row)": drawing(tensor[0]),
    }


def microseconds(call: Callable[[], object], repeat: int) -> NDArray[np.float64]:
    """Time loops of a call: microseconds per call, by loop."""
    call()
    timeit.timeit(call, number=CALLS)
    return np.array(timeit.repeat(call, number=CALLS, repeat=repeat)) / CALLS * 1e6


def main(
    vocabulary: Annotated[int, typer.Option(min=4)] = 16,
    repeat: Annotated[int, typer.Option(min=1)] = 15,
) -> None:
    """Print one line per call."""
    rows = np.random.default_rng(0).normal(size=(32, vocabulary)).astype(np.float32)
    load = os.getloadavg()[0]
    table = Table("call", "median us", "best us")
    for name, call in forms_of(rows).items():
        times = microseconds(call, repeat)
        table.add_row(name, f"{np.median(times):.2f}", f"{times.min():.2f}")
    console = Console(width=100)
    console.print(table)
    console.print(
        f"V = {vocabulary}, isa {fastsample.info()['isa']}, numpy {np.__version__}, "
        f"load average {load:.2f}"
    )


if __name__ == "__main__":
    typer.run(main)
