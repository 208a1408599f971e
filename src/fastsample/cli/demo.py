"""`fastsample demo`: candidates, draws and latencies on recorded rows of a language model."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from fastsample import Latency, Sampler, SamplingParams
from fastsample import info as installation

from .bench import HOT, latency_table
from .files import demo_origins, demo_rows, demo_texts
from .info import print_info
from .interleave import Call, time_interleaved, time_pass
from .options import describe
from .table import draw, print_candidates, visible

USUAL = SamplingParams(temperature=0.8, top_k=50, top_p=0.95, min_p=0.05)
SEED = 7
DEMO_ROWS = (0, 1, 5)


def demo() -> None:
    """Show candidates and draws on recorded rows of SmolLM2-135M, and time draws here."""
    console, facts = Console(), installation()
    rows, texts, origins = demo_rows(), demo_texts(), demo_origins()
    console.print(Text(f"Rows of SmolLM2-135M-Instruct, sampled with {describe(USUAL)}."))
    for row in DEMO_ROWS:
        origin = origins[row]
        context = origin["context"].split("<|im_start|>assistant\n")[-1]
        console.rule(Text(f"row {row}, {origin['kind']}"), align="left")
        console.print(Text(f"prompt: {visible(origin['prompt'], space=' ')}"))
        console.print(Text(f"so far: {visible(context, space=' ')}"))
        drawn = draw(rows[row], USUAL, SEED, origin["step"])
        print_candidates(console, rows[row], USUAL, 8, texts, drawn)
    title = f"microseconds per token on this machine, {rows.shape[1]:,} logits per row"
    console.rule(Text(title), align="left")
    console.print(latency_table({HOT: measure(rows)}))
    console.print("Rows and code are in the cache; expect more in a model's loop.")
    console.rule(Text("this installation"), align="left")
    print_info(console, facts)


def measure(rows: NDArray[np.float32], seconds: float = 1.0) -> dict[str, Latency]:
    """Time a draw of the usual chain and `np.max` on the same rows, for about `seconds`."""
    calls: dict[str, Call] = {"draw": Sampler(USUAL, seed=SEED), "np.max": np.max}
    latencies = time_interleaved(calls, rows, repeat=1)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        time_pass(calls, rows, latencies)
    return latencies
