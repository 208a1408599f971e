"""The demo's material: rows of real logits that ship with the package, and a stopwatch for them.

The rows were recorded from SmolLM2-135M-Instruct (Apache-2.0) by tools/record_rows.py;
demo_data/rows.json tells of each which prompt and step it comes from.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .params import SamplingParams
from .sampler import Sampler

USUAL = SamplingParams(temperature=0.8, top_k=50, top_p=0.95, min_p=0.05, seed=7)

_DATA = files("fastsample") / "demo_data"


def load_rows() -> NDArray[np.float32]:
    """Read the recorded rows: float32 of shape (6, 49152)."""
    with (_DATA / "rows.npy").open("rb") as file:
        rows: NDArray[np.float32] = np.load(file, allow_pickle=False)
    return rows


def load_texts() -> list[str]:
    """Read the texts of all tokens of the vocabulary; a leading space is a real one."""
    texts: list[str] = json.loads((_DATA / "texts.json").read_text(encoding="utf-8"))
    return texts


def load_origins() -> list[dict[str, Any]]:
    """Read where each row comes from: kind, prompt, step, text before it, and what it is like."""
    about = json.loads((_DATA / "rows.json").read_text(encoding="utf-8"))
    origins: list[dict[str, Any]] = about["rows"]
    return origins


@dataclass(frozen=True)
class Latency:
    """Microseconds per row: the median, and what 90 and 99 of 100 rows stay under."""

    p50: float
    p90: float
    p99: float


def measure(rows: NDArray[np.float32], seconds: float = 1.0) -> tuple[Latency, Latency]:
    """Time the usual chain and `np.max` on the same rows, in turns, for about so many seconds.

    Returns
    -------
    sampling : Latency
        One call of a `Sampler` per row: temperature 0.8, top_k 50, top_p 0.95, min_p 0.05.
    maximum : Latency
        One call of `np.max` per row.
    """
    sampler = Sampler(USUAL)
    sampling: list[int] = []
    maximum: list[int] = []
    end = time.perf_counter() + seconds
    while not sampling or time.perf_counter() < end:
        sampling += _time_each(sampler, rows)
        maximum += _time_each(np.max, rows)
    return _summary(sampling), _summary(maximum)


def _time_each(call: Callable[[Any], Any], rows: NDArray[np.float32]) -> list[int]:
    times = []
    for row in rows:
        start = time.perf_counter_ns()
        call(row)
        times.append(time.perf_counter_ns() - start)
    return times


def _summary(nanoseconds: list[int]) -> Latency:
    p50, p90, p99 = np.percentile(nanoseconds, [50, 90, 99]) / 1e3
    return Latency(float(p50), float(p90), float(p99))
