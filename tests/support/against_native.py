"""Engines whose batches are tensors, held to native: random jobs, wide rows and recorded ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.engines import HELD, Engine, Job, differing, make_job, make_outcome, make_plan
from tests.support.random_requests import (
    FORMS,
    alike,
    random_forms,
    random_job,
    random_status,
    random_top_count,
)
from tests.support.random_rows import Rng, random_draws, random_filters

HOLDER = next((engine for engine in HELD if engine.is_native), Engine("reference"))
"""What they are held to: native, which the oracle holds to the reference, if it is there."""

WIDE = 151_936
CHAINS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.0},
    {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05},
    {"top_k": 4096, "temperature": 1.5},
    {"top_k": 4097, "temperature": 1.5},
    {"top_p": 0.9},
    {"min_p": 0.01},
    {"top_k": 40, "top_p": 0.9, "stages": ("top_p", "temperature", "top_k"), "temperature": 0.7},
    {"top_k": 3, "min_keep": 5000, "top_p": 0.5},
)
"""Every way to a draw; 4,096 is the most that torch takes for a few first tokens."""


Arrange = Callable[[Job, Rng], Job]
"""How a random job is changed before it is held."""


def _as_it_is(job: Job, rng: Rng) -> Job:
    return job


def _hold_job(
    engine: Engine, seed: tuple[int, ...], columns: Sequence[int], arrange: Arrange
) -> int:
    """Hold one random job's draws, all that is told of them, and kept sets; how many rows."""
    rng = np.random.default_rng(seed)
    mixed = rng.random() < 0.1
    n_rows = int(rng.integers(1, 9 if mixed else 97))
    job = random_job(rng, n_rows, int(rng.choice(columns)))
    job = arrange(job if mixed else alike(job), rng)
    forms = random_forms(rng)
    draws = 1 if forms else int(rng.choice([1, 1, 3]))
    count = random_top_count(rng, job.vocabulary) if forms else 0
    status = random_status(rng, n_rows)
    outcomes = []
    for one in (HOLDER, engine):
        out = make_outcome(n_rows, draws, forms, count)
        out.status[:] = status
        outcomes.append(one.run(job, out))
    assert differing(*outcomes) == [], seed
    _hold_sets(engine, job, status)
    return n_rows


def _hold_sets(engine: Engine, job: Job, status: np.ndarray | None = None) -> None:
    """Hold kept sets; Triton's are so many first tokens, and how many is held with the draws."""
    if engine.name != "triton":
        sets = [one.kept_sets(job, status) for one in (HOLDER, engine)]
        assert differing(*sets) == []


def hold_jobs(
    engine: Engine,
    seed: tuple[int, ...],
    columns: Sequence[int],
    cases: int,
    arrange: Arrange = _as_it_is,
) -> None:
    """Hold random jobs until that many rows are equal."""
    done, turn = 0, 0
    while done < cases:
        done += _hold_job(engine, (*seed, turn), columns, arrange)
        turn += 1
    print(f"{done} cases equal on {engine.name} and {HOLDER.isa or HOLDER.name}")


def _hold(engine: Engine, job: Job, count: int) -> None:
    expected, found = (
        one.run(job, make_outcome(len(job.plan), forms=FORMS, top_count=count))
        for one in (HOLDER, engine)
    )
    assert differing(expected, found) == []
    _hold_sets(engine, job)


def hold_rows(engine: Engine, values: np.ndarray, rng: Rng) -> int:
    """Hold a batch of wide rows, each with settings of its own; how many rows."""
    plan = make_plan(len(values), **random_draws(rng, len(values)))
    for record in plan:
        for name, value in random_filters(rng, values.shape[1]).items():
            record[name] = value
    _hold(engine, make_job(values, plan), 5)
    return len(values)


def hold_chain(engine: Engine, chain: dict[str, Any], dtype: Any) -> None:
    """Hold three rows of a whole vocabulary, one of them full of ties."""
    rng = np.random.default_rng(72)
    values = (rng.standard_normal((3, WIDE)) * 3).astype(dtype)
    values[1] = np.rint(values[1])
    plan = make_plan(3, **chain, seed=[1, 2, 3], position=[4, 5, 2**63])
    _hold(engine, make_job(values, plan), 3)


def hold_largest(engine: Engine, chain: dict[str, Any]) -> None:
    """Hold rows of 2**22 tokens; equal logits have the largest total that there is, 2**62."""
    values = np.zeros((2, 2**22), np.float32)
    values[1] = np.random.default_rng(85).integers(0, 3, 2**22)
    job = make_job(values, make_plan(2, **chain, seed=[1, 2], position=[3, 4]))
    outcomes = [one.run(job, make_outcome(2, draws=3)) for one in (HOLDER, engine)]
    assert differing(*outcomes) == []


def hold_recorded(engine: Engine, seed: int, cases: int) -> None:
    """Hold rows of a real model, from the file that FASTSAMPLE_LOGITS names."""
    path = os.environ.get("FASTSAMPLE_LOGITS")
    if not path:
        pytest.skip("FASTSAMPLE_LOGITS is not set: no recorded rows")
    values = np.load(path, mmap_mode="r")
    rng = np.random.default_rng(seed)
    done = 0
    while done < cases:
        at = rng.integers(0, max(1, len(values) - 7))
        done += hold_rows(engine, np.array(values[at : at + 8]), rng)
    print(f"{done} cases of recorded rows equal")
