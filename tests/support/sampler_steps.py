"""Rows, parameters and helpers that the tests of `Sampler` share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from fastsample import Sampler, SamplingParams
from tests.support.engines import Engine
from tests.support.prepared_calls import refuse

RNG = np.random.default_rng(12)
STEPS = (RNG.normal(size=(8, 4, 200)) * 2).astype(np.float32)
PARAMS = SamplingParams(temperature=0.9, top_k=60, top_p=0.97, min_p=0.01, seed=21)

PENALISED = replace(
    PARAMS, repetition_penalty=1.3, frequency_penalty=0.4, presence_penalty=-0.2, presence_scope=3
)

# Of samplers that hold several sequences.
GREEDY, WARM = SamplingParams(temperature=0), SamplingParams(temperature=1.5, seed=9)
VOCABULARY = 150
ROWS = (np.random.default_rng(5).normal(size=(6, VOCABULARY)) * 3).astype(np.float32)


def on(engine: Engine, params: SamplingParams = PARAMS) -> Sampler:
    return Sampler(params, stream="row", engine=engine.name, isa=engine.isa)


def tokens_of(sampler: Sampler, steps: np.ndarray = STEPS) -> list[list[int]]:
    return [sampler(logits).tolist() for logits in steps]


def change_engine(sampler: Sampler, **functions: Any) -> None:
    """Replace functions of a sampler's engine; make_step=None leaves it the general path alone."""
    execution = sampler._execution
    sampler._execution = execution._replace(engine=execution.engine._replace(**functions))
    if "make_step" in functions:
        sampler._step = None


def prepared_tokens(
    sampler: Sampler,
    logits: Any,
    at: Any = None,
    sequences: Any = None,
    mask: Any = None,
    bias: Any = None,
) -> Any:
    """The tokens of a prepared call; None where it declines."""
    assert sampler._step is not None
    return sampler._step.draw(logits, at, sequences, mask, bias)


def forbid_general_path(sampler: Sampler) -> None:
    """Fail the test when a call is not a prepared one."""
    sampler._draw = refuse


@contextmanager
def used_by_another_thread(
    sampler: Sampler, logits: np.ndarray = STEPS[0]
) -> Iterator[list[list[int]]]:
    """Hold a thread inside a call of the sampler; its tokens are appended when it goes on."""
    drawing, finish, run = threading.Event(), threading.Event(), sampler._execution.engine.run

    def slow_run(*arguments: Any, **keywords: Any) -> None:
        drawing.set()
        finish.wait(timeout=10)
        run(*arguments, **keywords)

    change_engine(sampler, run=slow_run)
    tokens: list[list[int]] = []

    def draw() -> None:
        # A call that is not prepared.
        tokens.append(sampler.sample(logits, margin=True).tokens.tolist())

    thread = threading.Thread(target=draw)
    thread.start()
    drawing.wait(timeout=10)
    change_engine(sampler, run=run)
    yield tokens
    finish.set()
    thread.join()
