"""Benchmark the torch engine on the CPU, after checking that its tokens equal native's.

    python benches/torch_engine.py            # one thread, V = 151,936, some 20 seconds

Rivals: the logits processors of transformers, copied here, with multinomial; and the torch rival of
the other benches, which sorts no more than it must.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rivals import torch_draw
from torch import Tensor

from fastsample import SamplingParams, sample

V, ROUNDS = 151_936, 5
TORCH: dict[str, Any] = {"engine": "torch", "on_invalid": "mark"}
SETTINGS: dict[str, dict[str, Any]] = {
    "usual chain": {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05},
    "greedy": {"temperature": 0.0},
    "temperature": {"temperature": 0.8},
    "top_k 50": {"top_k": 50},
    "top_k 2000": {"top_k": 2000},
    "top_p": {"top_p": 0.95},
    "min_p": {"min_p": 0.05},
}


def processors(params: SamplingParams) -> Callable[[Tensor], int]:
    """Temperature, top-k, top-p and min-p on the whole row as in transformers 4."""
    generator = torch.Generator().manual_seed(1)

    def draw(row: Tensor) -> int:
        scores = row[None]
        if params.temperature == 0:
            return int(scores.argmax())
        scores = scores / params.temperature
        if params.top_k:
            least = torch.topk(scores, params.top_k)[0][..., -1, None]
            scores = scores.masked_fill(scores < least, -torch.inf)
        if params.top_p < 1:
            ascending, tokens = torch.sort(scores, descending=False)
            drop = ascending.softmax(-1).cumsum(-1) <= 1 - params.top_p
            drop[..., -1:] = False
            scores = scores.masked_fill(drop.scatter(1, tokens, drop), -torch.inf)
        if params.min_p > 0:
            shares = scores.softmax(-1)
            drop = shares < params.min_p * shares.max(-1, keepdim=True)[0]
            tokens = torch.argsort(scores, descending=True, dim=-1)
            drop = torch.gather(drop, -1, tokens)
            drop[..., :1] = False
            scores = scores.masked_fill(drop.scatter(1, tokens, drop), -torch.inf)
        return int(torch.multinomial(scores.softmax(-1), 1, generator=generator))

    return draw


def medians(draws: dict[str, Callable[[Tensor], Any]], rows: Tensor) -> dict[str, float]:
    """Microseconds of each, interleaved on the same rows."""
    times: dict[str, list[float]] = {name: [] for name in draws}
    for i in range(ROUNDS + 2):
        for name, draw in draws.items():
            started = time.perf_counter()
            draw(rows[i % len(rows)])
            times[name].append(time.perf_counter() - started)
    return {name: statistics.median(some[2:]) * 1e6 for name, some in times.items()}


def main() -> None:
    """Check, time and print one table."""
    torch.set_num_threads(1)
    values = np.random.default_rng(0).standard_normal((8, V), dtype=np.float32) * 3
    rows = torch.from_numpy(values)
    print(f"us per token, V = {V:,}: torch engine, transformers' processors, torch rival, native")
    for name, filters in SETTINGS.items():
        batch = {**filters, "seed": 3, "position": 1, "stream": "row"}
        if not torch.equal(sample(rows, **batch).tokens, sample(rows, **batch, **TORCH).tokens):
            raise SystemExit(f"{name}: the torch engine and native differ")
        params = SamplingParams(**filters, seed=1)
        rival = torch_draw(params)
        one = {**filters, "seed": 3, "position": 1}
        draws: dict[str, Callable[[Tensor], Any]] = {
            "torch": lambda row, one=one: sample(row, **one, **TORCH),
            "processors": processors(params),
            "rival": lambda row, rival=rival: rival(row.numpy()),
            "native": lambda row, one=one: sample(row, **one),
        }
        found = medians(draws, rows)
        print(f"{name:12}", *(f"{found[key]:9,.0f}" for key in draws), flush=True)


if __name__ == "__main__":
    main()
