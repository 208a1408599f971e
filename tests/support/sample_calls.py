"""Four rows, a mask and histories for them, and calls of `sample` on an engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastsample import SampleResult, sample
from tests.support.engines import Engine

RNG = np.random.default_rng(21)
V = 300
LOGITS = (RNG.normal(size=(4, V)) * 3).astype(np.float32)
ALLOWED = RNG.random((4, V)) < 0.4
PROMPT = [RNG.integers(0, V, n).tolist() for n in (7, 0, 90, 3)]
OUTPUT = [RNG.integers(0, V, n).tolist() for n in (0, 5, 40, 40)]
RNG_POSITION: dict[str, Any] = {"seed": 3, "position": 9, "stream": "row"}
ALL_LOGPROBS: dict[str, Any] = {"logprobs": 20, "logprobs_mode": ("raw", "tempered", "processed")}
EVERYTHING: dict[str, Any] = {**ALL_LOGPROBS, "kept_count": True}


def kept_count_on(engine: Engine, logits: Any, **arguments: Any) -> Any:
    return sample_on(engine, logits, **arguments, kept_count=True).kept_count


def sample_on(engine: Engine, logits: Any, **arguments: Any) -> SampleResult:
    return sample(logits, engine=engine.name, isa=engine.isa, **{**RNG_POSITION, **arguments})
