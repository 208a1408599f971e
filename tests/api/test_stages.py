"""Stages in any order: a chain is each of its stages in turn, and none keeps too few tokens."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from fastsample.engines import reference
from tests.support.engines import Engine
from tests.support.random_requests import random_settings
from tests.support.random_rows import KINDS, pick

F32 = np.float32
CHAINS = [chain for length in range(5) for chain in permutations(reference.STAGES, length)]
LOGITS = np.log(np.array([0.4, 0.3, 0.2, 0.1], dtype=np.float64)).astype(F32)


def kept(engine: Engine, row: np.ndarray, **filters: Any) -> list[int]:
    return engine.kept_set(row, **filters)[0].tolist()


def stage_by_stage(engine: Engine, row: np.ndarray, filters: dict[str, Any]) -> list[int]:
    """Run each filter alone on what the ones before it left; the rest is banned."""
    warmed: tuple[str, ...] = ()
    temperature = 1.0
    for stage in filters["stages"]:
        if stage == "temperature":
            warmed, temperature = ("temperature",), filters["temperature"]
            continue
        alone = {
            stage: filters[stage],
            "temperature": temperature,
            "min_keep": filters["min_keep"],
            "stages": (*warmed, stage),
        }
        tokens = kept(engine, row, **alone)
        row = np.where(np.isin(np.arange(len(row)), tokens), row, F32(-np.inf))
    return np.flatnonzero(row > -np.inf).tolist()


@pytest.mark.parametrize("chain", CHAINS, ids="-".join)
def test_a_chain_is_each_stage_in_turn(engine: Engine, chain):
    rng = np.random.default_rng(CHAINS.index(chain))
    makers = [make for kind, make in KINDS.items() if kind not in ("empty", "invalid")]
    for _ in range(20):
        size = int(rng.integers(1, 400))
        row = pick(rng, makers)(rng, size)
        row[rng.integers(size)] = 1
        filters = random_settings(rng, size)
        used = {name: filters[name] for name in chain}
        if used.get("temperature", 1) == 0 or reference.to_float32(used.get("temperature", 1)) == 0:
            used["temperature"] = 0.5
        filters = {**used, "stages": chain, "min_keep": filters["min_keep"]}
        assert kept(engine, row, **filters) == stage_by_stage(engine, row, filters), filters


def test_a_filter_before_the_temperature_sees_the_row_at_1(engine: Engine):
    row = F32([3, 2, 1])
    warm = {"temperature": 0.5, "top_p": 0.8}
    assert kept(engine, row, **warm) == [0]
    assert kept(engine, row, **warm, stages=("top_p", "temperature")) == [0, 1]
    assert kept(engine, row, **warm, stages=("top_k", "top_p", "min_p", "temperature")) == [0, 1]
    shares = engine.shares(row, **warm, stages=("top_p", "temperature"))
    assert shares == pytest.approx([0.880797, 0.119203, 0], abs=1e-6)


def test_top_p_is_of_what_is_kept_so_far(engine: Engine):
    both = {"top_k": 2, "top_p": 0.5}
    assert kept(engine, LOGITS, **both) == [0]
    assert kept(engine, LOGITS, **both, stages=("top_p", "top_k")) == [0, 1]


def test_a_stage_left_out_is_off(engine: Engine):
    everything = {"top_k": 2, "top_p": 0.5, "min_p": 0.9}
    assert kept(engine, LOGITS, **everything, stages=()) == [0, 1, 2, 3]
    assert kept(engine, LOGITS, **everything, stages=("top_k",)) == [0, 1]


@pytest.mark.parametrize("filters", [{"top_k": 1}, {"top_p": 0.0}, {"min_p": 1.0}])
@pytest.mark.parametrize("min_keep", [1, 2, 3, 4, 5, 2**40])
def test_every_filter_keeps_min_keep_tokens(engine: Engine, filters, min_keep):
    assert kept(engine, LOGITS, **filters, min_keep=min_keep) == [0, 1, 2, 3][:min_keep]


def test_min_keep_brings_no_token_back(engine: Engine):
    row = F32([1, -np.inf, 2, 0, -np.inf])
    assert kept(engine, row, top_k=1, min_keep=5) == [0, 2, 3]
    assert kept(engine, row, temperature=0.0, min_keep=5) == [2]


def test_min_keep_of_wide_rows(engine: Engine):
    """More tokens than there are blocks, all of them tied and of mass 0 but the first."""
    row = np.full(3000, -50, dtype=F32)
    row[2999] = 0
    for min_keep in (2, 64, 65, 700, 2999):
        found = kept(engine, row, top_p=0.5, min_keep=min_keep)
        assert found == [*range(min_keep - 1), 2999]


def test_trace_tells_of_the_stages_in_turn():
    seen = reference.trace(LOGITS, top_k=3, top_p=0.5, min_keep=2, stages=("top_p", "top_k"))
    assert seen.stages == (("mask", 4), ("top_p", 2), ("top_k", 2))
