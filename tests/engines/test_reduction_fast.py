"""The reduction "fast": tokens of the right distribution, and what it shares with "exact"."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastsample.engines import reference
from fastsample.engines.reference.engine import filters
from tests.support.case_loop import each
from tests.support.engines import (
    REDUCTION_ENGINES,
    Engine,
    differing,
    make_output,
    make_plan,
    make_request,
    needs_tested_engine,
)
from tests.support.goodness_of_fit import (
    ALPHA,
    chi_square_tail,
    g_statistic,
    softmax64,
    total_variation,
)
from tests.support.random_requests import MODES, random_request, random_status, restage
from tests.support.random_rows import HARD, Rng

CLOSE = 1e-4
"""Largest total variation from float64's softmax."""

KINDS = (
    *("normal 0.1", "normal 1", "normal 3", "masked 1 in 10", "flat", "nearly flat", "plateau"),
    *("ascending", "peaked"),
)
SIZES = (1, 17, 129, 4097, 12_288, 151_936)


@pytest.fixture(params=[Engine("reference"), *REDUCTION_ENGINES], ids=str)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Every engine that has these reductions."""
    return request.param


def rows_of(rng: Rng, size: int) -> np.ndarray:
    rows = np.stack([HARD[kind](rng, size) for kind in KINDS])
    return np.maximum(rows, np.float32(-1e4), where=rows > -np.inf, out=rows)


@each("size", SIZES)
@each("temperature", [0.5, 1.0, 2.5])
def test_distributions_are_close_to_softmax(engine: Engine, size: int, temperature: float):
    rows = rows_of(np.random.default_rng((61, size)), size)
    request = make_request(rows, make_plan(len(rows), temperature=temperature), size, "fast")
    out = engine.run(request, make_output(len(rows), modes=MODES, top_count=size))
    softmax, _ = engine.softmax("softmax", request)
    for b, row in enumerate(rows):
        for form, at in (("raw", 1.0), ("tempered", temperature), ("processed", temperature)):
            at_form = MODES.index(form), b
            probabilities = np.zeros(size)
            probabilities[out.logprobs.top_tokens[at_form]] = np.exp(
                out.logprobs.top_logprobs[at_form]
            )
            assert total_variation(probabilities, softmax64(row, at)) < CLOSE
        assert total_variation(softmax[b], softmax64(row, temperature)) < CLOSE


@each("top_p", [0.3, 0.9, 0.999])
@each("size", SIZES)
def test_nuclei_have_their_share(engine: Engine, size: int, top_p: float):
    rows = rows_of(np.random.default_rng((62, size)), size)
    request = make_request(rows, make_plan(len(rows), top_p=top_p), size, "fast")
    counts = engine.run(request, make_output(len(rows))).kept_count
    for row, count in zip(rows, counts.tolist(), strict=True):
        running = np.cumsum(np.sort(softmax64(row, 1.0))[::-1])
        assert running[count - 1] > top_p - CLOSE
        assert count == 1 or running[count - 2] < top_p + CLOSE


def test_tokens_are_kept_ones_and_bad_rows_have_none(engine: Engine):
    """top_k, min_p, min_keep, masks and penalties act as in exact, whatever is random."""
    for seed in range(60):
        rng = np.random.default_rng((63, seed))
        request = random_request(rng, 6, int(rng.integers(1, 3000)), "fast")
        plan = request.plan.copy()
        for b, record in enumerate(request.plan):
            restage(plan[b : b + 1], filters(record)["stages"], top_p=np.ones(1))
        request = request._replace(plan=plan)
        status = random_status(rng, 6)
        found, expected = make_output(6, draws=3), make_output(6, draws=3)
        found.status[:] = expected.status[:] = status
        engine.run(request, found)
        Engine("reference").run(request._replace(reduction="exact"), expected)
        assert found.status.tolist() == expected.status.tolist()
        assert found.kept_count.tolist() == expected.kept_count.tolist()
        kept = engine.kept_sets(request, status)
        for b in range(6):
            tokens = set(kept.tokens[kept.offsets[b] : kept.offsets[b + 1]].tolist()) or {-1}
            assert set(found.tokens[b].tolist()) <= tokens


def test_temperature_0_is_as_in_exact(engine: Engine):
    rows = rows_of(np.random.default_rng(64), 4097)
    plan = make_plan(len(rows), temperature=0.0)
    answers: list[Any] = [
        engine.run(make_request(rows, plan, 4097, mode), make_output(len(rows), modes=MODES[1:]))
        for mode in ("exact", "fast")
    ]
    assert differing(*answers) == []


@needs_tested_engine
@pytest.mark.parametrize("engine", REDUCTION_ENGINES, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_frequencies_of_draws(engine: Engine, seed: int):
    """A G-test of 2^17 draws from 32 tokens that lie in three blocks."""
    rng = np.random.default_rng((65, seed))
    row = np.full(9000, -np.inf, np.float32)
    tokens = np.sort(rng.permutation(9000)[:32])
    row[tokens] = rng.normal(0, 1, 32)
    request = make_request(row[np.newaxis], make_plan(1, seed=seed), 9000, "fast")
    drawn = engine.run(request, make_output(1, draws=2**17)).tokens[0]
    counts = np.bincount(np.searchsorted(tokens, drawn), minlength=32)
    assert set(drawn.tolist()) <= set(tokens.tolist())
    statistic = g_statistic(counts, softmax64(row[tokens], 1.0))
    assert chi_square_tail(statistic, 31) > ALPHA


def test_frequencies_of_reference_draws():
    """The same by the reference's own draw, at words that are evenly spread."""
    rng = np.random.default_rng(66)
    row = rng.normal(0, 2, 6000).astype(np.float32)
    kept = reference.by_token(reference.trace(row, reduction="fast"))
    running = np.cumsum(softmax64(row, 1.0))
    for u in range(0, 2**64, 2**64 // 300):
        token = reference.draw(*kept, u, "fast")
        assert running[token] > u / 2**64 - CLOSE
        assert token == 0 or running[token - 1] < u / 2**64 + CLOSE
