"""Published cases that one rule can check: kept sets, shares, tokens, log-probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastsample
from tests.support.border_checks import EXACT_DRAWS
from tests.support.case_loop import each
from tests.support.engines import Engine
from tests.support.published_tables import (
    ALL,
    BY_ID,
    arguments_of,
    how,
    logits_of,
    of_type,
    tokens_of,
)

DRAW = {"seed": 11, "position": 0}


def near(expected: Any) -> Any:
    """The tolerance that goes with six digits."""
    return pytest.approx(expected, rel=1e-4, abs=2e-6)


def check_kept(kept: Any, size: int, expected: dict[str, Any]) -> None:
    """Hold the kept set of one row to what a case expects."""
    tokens = tokens_of(expected)
    if tokens is not None:
        assert np.sort(kept.tokens).tolist() == tokens
    assert len(kept.tokens) == expected.get("kept_count", len(kept.tokens))
    shares = np.zeros(size)
    shares[kept.tokens] = kept.probabilities
    if "shares" in expected:
        assert shares == near(expected["shares"])
    for token, share in expected.get("shares_at", {}).items():
        assert shares[int(token)] == near(share)


def check_row(row: np.ndarray, arguments: dict[str, Any], expected: dict[str, Any], engine: Engine):
    check_kept(fastsample.kept_set(row, **arguments, **how(engine)), len(row), expected)
    token = int(fastsample.sample(row, **arguments, **DRAW, **how(engine)).tokens)
    assert token == expected.get("token", token)
    assert tokens_of(expected) is None or token in tokens_of(expected)


@each("name", of_type("distribution"))
def test_distributions(engine: Engine, name):
    case = BY_ID[name]
    row = logits_of(case)
    check_row(row, arguments_of(case, len(row)), case["expect"], engine)


def together(cases: list[dict[str, Any]], size: int) -> dict[str, Any]:
    """The arguments of several rows as those of their batch: a value per row, where any has one."""
    each = [arguments_of(case, size) for case in cases]
    names = {name for arguments in each for name in arguments}
    off = {"temperature": 1.0, "top_k": 0, "frequency_penalty": 0.0}
    return {name: [arguments.get(name, off.get(name)) for arguments in each] for name in names}


@each("name", of_type("batch"))
def test_batches(engine: Engine, name):
    """Every row as if it were alone."""
    cases = BY_ID[name]["rows"]
    rows = np.stack([logits_of(case) for case in cases])
    arguments = together(cases, rows.shape[1])
    streams = np.arange(len(rows))
    result = fastsample.sample(
        rows, **arguments, **DRAW, stream=streams, on_invalid="mark", **how(engine)
    )
    for b, case in enumerate(cases):
        expected = case["expect"]
        assert result.status[b] == expected.get("status", 0)
        if result.status[b] != 0:
            assert result.tokens[b] == -1
            continue
        alone = arguments_of(case, rows.shape[1])
        check_row(rows[b], alone, expected, engine)
        token = fastsample.sample(rows[b], **alone, **DRAW, stream=b, **how(engine)).tokens
        assert result.tokens[b] == token


# The random words at the ends, which are as near to u as the rule gets.
WORD_OF = {"0.0": 0, "1 - 2**-53": 2**64 - 1, "1.0": 2**64 - 1}


@each("name", of_type("inverse_cdf"))
def test_draws_at_the_ends(engine: Engine, name):
    case = BY_ID[name]
    row = logits_of(case)
    seed, position, stream = EXACT_DRAWS[WORD_OF[case["u"]]]
    drawn = fastsample.sample(row, seed=seed, position=position, stream=stream, **how(engine))
    expected = case["expect"]
    check_kept(fastsample.kept_set(row, **how(engine)), len(row), expected)
    assert int(drawn.tokens) == expected.get("token", len(row) - 1)


def logprobs_of(row: np.ndarray, form: str, engine: Engine, **arguments: Any) -> Any:
    return fastsample.sample(
        row, **arguments, **DRAW, logprobs=len(row), logprobs_mode=form, **how(engine)
    )


def by_token(result: Any) -> np.ndarray:
    values = np.empty(len(result.top_tokens))
    values[result.top_tokens] = result.top_logprobs
    return values


@each("name", of_type("logprobs"))
def test_logprobs(engine: Engine, name):
    case = BY_ID[name]
    row = logits_of(case)
    arguments = arguments_of(case, len(row))
    expected = case["expect"]
    raw = logprobs_of(row, "raw", engine, **arguments)
    found = by_token(raw)
    for token, value in expected.get("raw_logprobs_at", {}).items():
        assert found[int(token)] == pytest.approx(value, rel=1e-5, abs=1e-5)
    for form in ("raw", "processed"):
        values = [float(x) for x in expected.get(f"{form}_logprobs", [])]
        found_logprobs = by_token(logprobs_of(row, form, engine, **arguments))
        assert not values or found_logprobs == pytest.approx(values, rel=1e-5, abs=1e-5)
    first = expected.get("top_tokens", [])
    assert raw.top_tokens[: len(first)].tolist() == first
    if "rank" in expected:
        only = np.arange(len(row)) == expected["rank"]["token"]
        drawn = logprobs_of(row, "raw", engine, **arguments, mask=only)
        assert int(drawn.ranks) == expected["rank"]["rank"]
        assert float(drawn.logprobs) == found[expected["rank"]["token"]]


@each("name", of_type("mass"))
def test_shares_of_slices(engine: Engine, name):
    """No loss in a sum over many tokens, nor in where draws fall."""
    expected = BY_ID[name]["expect"]
    row = logits_of(BY_ID[name])
    kept = fastsample.kept_set(row, **how(engine))
    check_kept(kept, len(row), expected)
    inside = (kept.tokens >= expected["slice"][0]) & (kept.tokens < expected["slice"][1])
    share = kept.probabilities[inside].sum()
    assert share == pytest.approx(1 / 3, abs=1e-6)
    n = 100_000 if engine.is_native else 2000
    tokens = fastsample.sample(row, **DRAW, n=n, **how(engine)).tokens
    count = np.count_nonzero((tokens >= expected["slice"][0]) & (tokens < expected["slice"][1]))
    assert count == pytest.approx(n / 3, abs=5 * (n * 2 / 9) ** 0.5)


def test_cases_left_out_have_a_reason():
    left_out = {case["id"]: case["left_out"] for case in ALL if "left_out" in case}
    assert [*left_out] == ["OR-04b", "LP-13"]
    assert all(left_out.values())
