"""Cost of penalties by the length of the history: a sampler's step, hot, and calls of `sample`.

Text is drawn by Zipf's law, which has more distinct tokens than written text of that length. A
hostile history has tokens that the hash table of 0.1.0 put in adjacent places. A figure is the
median of several loops, on one thread. Nothing else may run meanwhile.

    python benches/penalties.py [--vocabulary 49152] [--repeat 9]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import fastsample

SETTINGS: dict[str, Any] = {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "n_threads": 1}
PENALTIES: dict[str, dict[str, Any]] = {
    "none": {},
    "repetition": {"repetition_penalty": 1.2},
    "frequency": {"frequency_penalty": 0.3, "frequency_scope": "all"},
    "presence": {"presence_penalty": 0.3, "presence_scope": "all"},
    "presence, last 64": {"presence_penalty": 0.3, "presence_scope": 64},
    "all three": {"repetition_penalty": 1.2, "frequency_penalty": 0.3, "presence_penalty": 0.3},
}
LENGTHS = (100, 1_000, 32_000, 128_000)
Tokens = NDArray[np.int64]


def text(rng: np.random.Generator, size: int, count: int) -> Tokens:
    """Draw tokens by Zipf's law."""
    shares = 1 / (np.arange(size) + 2.7) ** 1.05
    return rng.choice(size, count, p=shares / shares.sum())


def hostile(size: int, count: int) -> Tokens:
    """Choose tokens by their place in a table that is twice as large."""
    mask = np.uint64((1 << (2 * count - 1).bit_length()) - 1)
    places = (np.arange(size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
    return np.argsort(places & mask, kind="stable")[:count]


def microseconds(call: Callable[[], object], repeat: int) -> float:
    """Measure a call, warm."""
    times = []
    for _ in range(repeat + 1):
        started = perf_counter_ns()
        for _ in range(20):
            call()
        times.append((perf_counter_ns() - started) / 20e3)
    return float(np.median(times[1:]))


def step(logits: NDArray[np.float32], prompt: Any, **penalties: Any) -> Callable[[], object]:
    """Make the step of a sampler with this prompt."""
    sampler = fastsample.Sampler(**SETTINGS, **penalties, prompt=prompt, seed=1)
    return partial(sampler, logits)


def main(
    vocabulary: Annotated[int, typer.Option(help="Columns of the row.")] = 49_152,
    repeat: Annotated[int, typer.Option(help="Loops per figure.")] = 9,
) -> None:
    """Print the tables."""
    rng = np.random.default_rng(0)
    row = (rng.standard_normal(vocabulary) * 2).astype(np.float32)
    histories = [(f"text, {count:,}", text(rng, vocabulary, count)) for count in LENGTHS]
    histories.append((f"all {vocabulary:,} distinct", rng.permutation(vocabulary)))
    table = Table("sampler(row), us", *PENALTIES)
    for name, tokens in histories:
        steps = [step(row, tokens, **penalties) for penalties in PENALTIES.values()]
        figures = [f"{microseconds(one, repeat):.1f}" for one in steps]
        table.add_row(f"{name} ({len(np.unique(tokens)):,})", *figures)
    console = Console()
    console.print(table)

    rows = np.repeat(row[np.newaxis], 32, axis=0)
    prompts = [text(rng, vocabulary, 16_000) for _ in rows]
    for name in ("none", "repetition"):
        taken = microseconds(step(rows, prompts, **PENALTIES[name]), repeat)
        console.print(f"sampler(32 rows), prompts of 16,000, {name}: {taken:.0f} us")

    call = partial(fastsample.sample, row, **SETTINGS, repetition_penalty=1.2, seed=1, position=0)
    for count in (5_000, 16_000):
        chosen = hostile(vocabulary, count)
        for name, tokens in (("chosen", chosen), ("random", rng.permutation(vocabulary)[:count])):
            taken = microseconds(partial(call, prompt=tokens), repeat)
            console.print(f"sample, {name} prompt of {count:,}: {taken:.0f} us")


if __name__ == "__main__":
    typer.run(main)
