"""The demo's material: rows of real logits that ship with the package, and what a draw takes.

The rows were recorded from SmolLM2-135M-Instruct (Apache-2.0) by tools/record_rows.py;
demo_data/rows.json tells of each which prompt and step it comes from.
"""

from __future__ import annotations

import json
import time
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample import Latency, Sampler, SamplingParams

from .interleave import Call, in_turns, take_turns

USUAL = SamplingParams(temperature=0.8, top_k=50, top_p=0.95, min_p=0.05, seed=7)

_DATA = files("fastsample.cli") / "demo_data"


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


def measure(rows: NDArray[np.float32], seconds: float = 1.0) -> dict[str, Latency]:
    """Time a draw of the usual chain and `np.max` on the same rows, for about so many seconds."""
    calls: dict[str, Call] = {"draw": Sampler(USUAL), "np.max": np.max}
    latencies = in_turns(calls, rows, repeat=1)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        take_turns(calls, rows, latencies)
    return latencies
