"""What oracle tests share: the reference's answers to requests, and random shapes of answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastsample.engines import reference
from fastsample.engines.contract import LogprobResult, SampleOutput
from tests.support.engines import TESTED_ENGINES, Engine, make_output
from tests.support.random_requests import random_forms, random_top_count
from tests.support.random_rows import TEMPERATURES, Rng

REFERENCE = Engine("reference")
RACERS = [engine for engine in TESTED_ENGINES if engine.has_race]
SIZES = (1, 2, 3, 5, 16, 17, 33, 63, 64, 100, 127, 128, 129, 130, 200, 257, 300, 383, 513, 1000)


def some_racers(rng: Rng) -> list[Engine]:
    """Engines that have the race; torch, at 50 times the time of native, for one batch in eight."""
    has_torch = rng.integers(8) == 0
    return [engine for engine in RACERS if has_torch or engine.name != "torch"]


def random_answer_shape(rng: np.random.Generator, vocabulary: int) -> dict[str, Any]:
    """One draw or several, and log-probabilities, if any, with or without those of the draws."""
    forms = random_forms(rng)
    draws = int(rng.integers(1, 9)) if not forms or rng.random() < 0.3 else 1
    if not forms:
        return {"draws": draws}
    top_count = random_top_count(rng, vocabulary)
    return {
        "draws": draws,
        "modes": forms,
        "top_count": top_count,
        "has_draws": bool(top_count or rng.random() < 0.8),
    }


def answer(
    engine: Engine, request: Any, status: np.ndarray, n_threads: int = 1, **shape: Any
) -> SampleOutput:
    """What an engine writes for a request; `shape` as `make_output` takes it."""
    given = request.logprob_tokens
    if given is not None and shape.get("modes"):
        shape["token_count"] = given.shape[1]
    out = make_output(len(request.values), **shape)
    out.status[:] = status
    return engine.run(request, out, n_threads)


def joined(outs: list[SampleOutput]) -> SampleOutput:
    """Outputs of batches, one after the other, as the output of one batch."""
    results = [out.logprobs for out in outs if out.logprobs is not None]
    logprobs = None
    if results:
        arrays = zip(*(result[1:] for result in results), strict=True)
        logprobs = LogprobResult(results[0].modes, *(np.concatenate(each, 1) for each in arrays))
    return SampleOutput(
        np.concatenate([out.tokens for out in outs]),
        np.concatenate([out.status for out in outs]),
        np.concatenate([out.kept_count for out in outs]),
        logprobs,
    )


def random_temperatures(rng: np.random.Generator, n_rows: int) -> np.ndarray:
    """Any but 0."""
    warm = [t for t in TEMPERATURES if reference.to_float32(t) > 0]
    return np.where(
        rng.random(n_rows) < 0.5, rng.choice(warm, n_rows), rng.uniform(0.05, 3, n_rows)
    )
