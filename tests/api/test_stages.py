"""Stages in any order: a chain is each of its stages in turn, and none keeps too few tokens."""

from __future__ import annotations

from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest

from fastsample.engines import reference
from tests.support.case_loop import each
from tests.support.engines import SHARED_STAGES, Engine, make_plan, make_request
from tests.support.random_requests import random_settings
from tests.support.random_rows import KINDS, Rng, pick
from tests.support.row_kinds import BAD

F32 = np.float32
DICE = np.random.default_rng(11)
CHAINS = [
    *(chain for length in range(3) for chain in permutations(SHARED_STAGES, length)),
    *(tuple(DICE.permutation(SHARED_STAGES)[: DICE.integers(3, 17)].tolist()) for _ in range(60)),
]
"""All short chains, and some long ones."""
LOGITS = np.log(np.array([0.4, 0.3, 0.2, 0.1], dtype=np.float64)).astype(F32)


def kept(engine: Engine, row: np.ndarray, **filters: Any) -> list[int]:
    return engine.kept_set(row, **filters)[0].tolist()


def kept_of_batch(
    engine: Engine, rows: np.ndarray, settings: list[dict[str, Any]]
) -> list[list[int]]:
    """Kept tokens of each row of a batch, ascending."""
    plan = np.concatenate([make_plan(1, **one) for one in settings])
    sets = engine.kept_sets(make_request(rows, plan))
    ends = sets.offsets.tolist()
    return [np.sort(sets.tokens[start:end]).tolist() for start, end in pairwise(ends)]


def stage_by_stage(
    engine: Engine, rows: np.ndarray, settings: list[dict[str, Any]]
) -> list[list[int]]:
    """Run each filter alone on what the ones before it left; the rest is banned."""
    warmed: tuple[str, ...] = ()
    for stage in settings[0]["stages"]:
        if stage == "temperature":
            warmed = ("temperature",)
            continue
        alone = [
            {
                stage: one[stage],
                "temperature": one["temperature"] if warmed else 1.0,
                "min_keep": one["min_keep"],
                "stages": (*warmed, stage),
            }
            for one in settings
        ]
        left = np.full_like(rows, -np.inf)
        for b, tokens in enumerate(kept_of_batch(engine, rows, alone)):
            left[b, tokens] = rows[b, tokens]
        rows = left
    return [np.flatnonzero(row > -np.inf).tolist() for row in rows]


def settings_of_chain(rng: Rng, size: int, chain: tuple[str, ...]) -> dict[str, Any]:
    """Random filters for the stages of a chain; not temperature 0, which leaves one token."""
    settings = random_settings(rng, size)
    used = {name: settings[name] for name in chain}
    if reference.to_float32(used.get("temperature", 1.0)) == 0:
        used["temperature"] = 0.5
    return {**used, "stages": chain, "min_keep": settings["min_keep"]}


@each("chain", CHAINS, ids="-".join)
def test_a_chain_is_each_stage_in_turn(engine: Engine, chain):
    rng = np.random.default_rng(CHAINS.index(chain))
    makers = [make for kind, make in KINDS.items() if kind not in BAD]
    for _ in range(3):
        size = int(rng.integers(1, 400))
        rows = np.stack([pick(rng, makers)(rng, size) for _ in range(7)])
        rows[np.arange(7), rng.integers(size, size=7)] = 1
        settings = [settings_of_chain(rng, size, chain) for _ in rows]
        found = kept_of_batch(engine, rows, settings)
        expected = stage_by_stage(engine, rows, settings)
        assert found == expected, settings


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


@each("filters", [{"top_k": 1}, {"top_p": 0.0}, {"min_p": 1.0}])
@each("min_keep", [1, 2, 3, 4, 5, 2**40])
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


def test_trace_lists_stages_in_order():
    seen = reference.trace(LOGITS, top_k=3, top_p=0.5, min_keep=2, stages=("top_p", "top_k"))
    assert seen.stages == (("mask", 0, 4), ("top_p", 0, 2), ("top_k", 0, 2))
