"""Oracle tests of draws without replacement: every engine that has them == reference.

Half of the requests are those of `test_oracle_requests`; the other half has rows and settings at
the borders of the race. A low limit of arrivals, for the inverse method, is in the golden file's
rows alone: no engine takes one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastsample.engines.contract import SampleRequest
from tests.support.engines import TESTED_ENGINES, Engine, differing, make_plan, make_request
from tests.support.oracle import REFERENCE, answer
from tests.support.race_cases import make_race_row
from tests.support.race_rows import SIZES, random_race
from tests.support.random_requests import random_forms, random_request
from tests.support.random_rows import Rng, pick

DISTINCT = [engine for engine in TESTED_ENGINES if engine.has_distinct]
pytestmark = pytest.mark.skipif(not DISTINCT, reason="the reference alone draws so")
LARGE = (32_768, 131_073, 151_936)


def random_distinct(rng: Rng, n_rows: int, size: int) -> SampleRequest:
    if rng.random() < 0.5:
        return random_race(rng, size, n_rows)._replace(replacement=False)
    request = random_request(rng, n_rows, size)
    request.plan["draw"] = 1
    return request._replace(replacement=False)


def far_apart(rng: Rng, n_rows: int, size: int) -> SampleRequest:
    """Few heavy tokens, and others that the tail seldom meets: arrivals end before they come."""
    rows = rng.normal(-20, 2, (n_rows, size))
    for row in rows:
        row[rng.permutation(size)[: rng.integers(1, 12)]] = rng.normal(0, 1)
    row_settings = pick(rng, ({}, {"min_p": 1e-12, "min_keep": 40}, {"top_p": 0.9999999}))
    settings = {"draw": "race", "temperature": pick(rng, (0.7, 1.0)), **row_settings}
    plan = make_plan(n_rows, **settings, seed=int(rng.integers(2**40)))
    plan["position"] = np.arange(n_rows)
    return make_request(rows.astype(np.float32), plan)._replace(replacement=False)


def ties_at_the_cut(rng: Rng, n_rows: int, size: int) -> SampleRequest:
    """top_p or top_k end between equal logits, and all tokens arrive that are kept."""
    rows = rng.integers(0, 3, (n_rows, size)).astype(np.float32)
    settings = pick(rng, ({"top_p": rng.choice([0.5, 0.6, 0.8, 0.95])}, {"top_k": 128}))
    plan = make_plan(n_rows, draw="race", **settings, seed=int(rng.integers(2**40)))
    return make_request(rows, plan)._replace(replacement=False)


def compare(seed: Any, sizes: tuple[int, ...], cases: int, make: Any = random_distinct) -> int:
    """Compare on random requests, until there were so many rows; returns how many -1 there were."""
    done, missing = 0, 0
    for number in range(10**6):
        if done >= cases:
            break
        rng = np.random.default_rng((seed, number))
        n_rows, size = int(rng.integers(1, 5)), int(pick(rng, sizes))
        request = make(rng, n_rows, size)
        most = request.vocabulary
        draws = int(min(most, pick(rng, (1, 2, 5, 10, 64, 300, most))))
        shape: dict[str, Any] = {"draws": draws, "has_count": rng.random() < 0.5}
        if rng.random() < 0.3 and draws <= 64:  # -1 has no log-probability
            shape |= {"modes": random_forms(rng) or ("raw",), "top_count": min(3, most)}
        status = np.zeros(n_rows, dtype=np.uint8)
        expected = answer(REFERENCE, request, status, **shape)
        for row in expected.tokens[expected.status == 0]:
            drawn = row[row >= 0]
            assert len(set(drawn.tolist())) == len(drawn) > 0
        for engine in DISTINCT:
            found = answer(engine, request, status, int(rng.integers(1, 4)), **shape)
            assert differing(expected, found) == [], (engine, seed, number, shape)
        done, missing = done + n_rows, missing + int((expected.tokens < 0).sum())
    return missing


@pytest.mark.smoke
def test_a_slice_of_rows() -> None:
    assert compare(1, SIZES, 100) > 0


@pytest.mark.parametrize(
    "seed", [2, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(100, 140))]
)
def test_random_rows(seed: int) -> None:
    assert compare(seed, SIZES, 800) > 0


@pytest.mark.parametrize(
    "seed", [3, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(200, 220))]
)
def test_large_rows(seed: int) -> None:
    compare(seed, LARGE, 20)


@pytest.mark.parametrize(
    "seed", [4, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(300, 320))]
)
def test_rows_whose_arrivals_end(seed: int) -> None:
    compare(seed, SIZES[4:], 150, far_apart)


def test_kept_tokens_alone_are_drawn_where_all_arrive() -> None:
    assert compare(5, (2, 3, 4, 5, 6, 7, 33, 130, 140), 400, ties_at_the_cut) > 0


def test_the_comparison_finds_another_token() -> None:
    """The reference equals itself; drawn with replacement it does not."""

    class Repeating(Engine):
        def run(self, request: Any, out: Any, n_threads: int = 1) -> Any:
            return super().run(request._replace(replacement=True), out, n_threads)

    rng = np.random.default_rng(9)
    row = make_race_row(rng, "normal", 100)
    request = make_request(row[None], make_plan(1, draw="race", seed=1))._replace(replacement=False)
    answers = [
        answer(engine, request, np.zeros(1, np.uint8), draws=10)
        for engine in (REFERENCE, Engine("reference"), Repeating("reference"))
    ]
    assert differing(answers[0], answers[1]) == []
    assert differing(answers[0], answers[2]) == ["tokens"]
