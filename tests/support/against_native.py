"""Compare engines of tensors with native: random requests, wide rows and recorded rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from fastsample.engines.reference.engine import filters
from fastsample.params.table import STAGES
from tests.support.engines import (
    FILTERS_OFF,
    TESTED_ENGINES,
    Engine,
    SampleRequest,
    differing,
    make_output,
    make_plan,
    make_request,
)
from tests.support.oracle import answer, random_answer_shape
from tests.support.random_requests import (
    MODES,
    alike,
    random_request,
    random_status,
    restage,
)
from tests.support.random_rows import Rng, filters_per_row, random_draws

BASELINE = next((engine for engine in TESTED_ENGINES if engine.is_native), Engine("reference"))
"""The engine to compare with: native, which oracle tests compare with the reference, if built."""

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
    {"epsilon_cutoff": 3e-4},
    {"top_a": 0.04, "temperature": 0.7},
    {"top_n_sigma": 1.5, "temperature": 0.8, "top_p": 0.9},
    {"typical_p": 0.3, "temperature": 0.7, "min_keep": 20},
    {"top_k": 200, "typical_p": 0.5, "epsilon_cutoff": 0.004, "top_n_sigma": 1.0},
    {"typical_p": 0.5, "top_p": 0.8, "stages": ("typical_p", "top_p")},
)
"""Chains for every path of the engines; 4,096 is the largest kept set of torch's top-k path."""


Arrange = Callable[[SampleRequest, Rng], SampleRequest]
"""How a random request is changed before it is compared."""


def _as_it_is(request: SampleRequest, rng: Rng) -> SampleRequest:
    return request


def _compare_request(
    engine: Engine, seed: tuple[int, ...], columns: Sequence[int], arrange: Arrange
) -> int:
    """Compare tokens, log-probabilities and kept sets of a random request; count its rows."""
    rng = np.random.default_rng(seed)
    mixed = rng.random() < 0.1
    n_rows = int(rng.integers(1, 9 if mixed else 97))
    request = random_request(rng, n_rows, int(rng.choice(columns)))
    request = arrange(request if mixed else alike(request), rng)
    shape = random_answer_shape(rng, request.vocabulary)
    status = random_status(rng, n_rows)
    request = _supported(engine, request)
    outcomes = [answer(one, request, status, **shape) for one in (BASELINE, engine)]
    assert differing(*outcomes) == [], seed
    _compare_kept_sets(engine, request, status)
    return n_rows


def _supported(engine: Engine, request: SampleRequest) -> SampleRequest:
    """The request without the stages that the engine lacks."""
    lacking = [stage for stage in STAGES if not engine.has_stages((stage,))]
    if all(engine.has_stages(filters(row)["stages"]) for row in request.plan):
        return request
    plan = request.plan.copy()
    off = {stage: np.full(len(plan), FILTERS_OFF[stage]) for stage in lacking}
    restage(plan, filters(plan[0])["stages"], **off)
    return request._replace(plan=plan)


def _compare_kept_sets(
    engine: Engine, request: SampleRequest, status: np.ndarray | None = None
) -> None:
    """Compare kept sets. Triton writes none: their sizes are compared with the tokens."""
    if engine.name != "triton":
        sets = [one.kept_sets(request, status) for one in (BASELINE, engine)]
        assert differing(*sets) == []


def compare_requests(
    engine: Engine,
    seed: tuple[int, ...],
    columns: Sequence[int],
    cases: int,
    arrange: Arrange = _as_it_is,
) -> None:
    """Compare random requests until that many rows are equal."""
    done, number = 0, 0
    while done < cases:
        done += _compare_request(engine, (*seed, number), columns, arrange)
        number += 1
    print(f"{done} cases equal on {engine.name} and {BASELINE.isa or BASELINE.name}")


def _compare(engine: Engine, request: SampleRequest, count: int) -> None:
    expected, found = (
        one.run(request, make_output(len(request.plan), modes=MODES, top_count=count))
        for one in (BASELINE, engine)
    )
    assert differing(expected, found) == []
    _compare_kept_sets(engine, request)


def compare_rows(engine: Engine, values: np.ndarray, rng: Rng) -> int:
    """Compare a batch of wide rows, each with its own settings; return the number of rows."""
    draws = random_draws(rng, len(values))
    plan = make_plan(len(values), **filters_per_row(rng, *values.shape), **draws)
    _compare(engine, _supported(engine, make_request(values, plan)), 5)
    return len(values)


def compare_chain(engine: Engine, chain: dict[str, Any], dtype: Any) -> None:
    """Compare three rows of a large vocabulary, one of them full of ties."""
    rng = np.random.default_rng(72)
    values = (rng.standard_normal((3, WIDE)) * 3).astype(dtype)
    values[1] = np.rint(values[1])
    plan = make_plan(3, **chain, seed=[1, 2, 3], position=[4, 5, 2**63])
    _compare(engine, make_request(values, plan), 3)


def compare_largest(engine: Engine, chain: dict[str, Any]) -> None:
    """Compare rows of 2**22 tokens; equal logits have the largest possible total, 2**62."""
    values = np.zeros((2, 2**22), np.float32)
    values[1] = np.random.default_rng(85).integers(0, 3, 2**22)
    request = make_request(values, make_plan(2, **chain, seed=[1, 2], position=[3, 4]))
    outcomes = [one.run(request, make_output(2, draws=3)) for one in (BASELINE, engine)]
    assert differing(*outcomes) == []


def compare_recorded(engine: Engine, seed: int, cases: int) -> None:
    """Compare rows of a real model, from the file that FASTSAMPLE_LOGITS names."""
    path = os.environ.get("FASTSAMPLE_LOGITS")
    if not path:
        pytest.skip("FASTSAMPLE_LOGITS is not set: no recorded rows")
    values = np.load(path, mmap_mode="r")
    rng = np.random.default_rng(seed)
    done = 0
    while done < cases:
        at = rng.integers(0, max(1, len(values) - 7))
        done += compare_rows(engine, np.array(values[at : at + 8]), rng)
    print(f"{done} cases of recorded rows equal")
