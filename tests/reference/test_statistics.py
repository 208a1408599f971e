"""Frequencies of many draws, and log-probabilities in the three modes, against probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.border_checks import check_draws_are_streams
from tests.support.case_loop import each
from tests.support.engines import Engine, csr, make_output, make_plan, make_request, native
from tests.support.frequencies import count_draws
from tests.support.goodness_of_fit import (
    ALPHA,
    chi_square_tail,
    g_statistic,
    kolmogorov,
    kolmogorov_limit,
    poisson_tails,
    pool,
    softmax64,
    z_limit,
)
from tests.support.random_rows import normal

needs_native = pytest.mark.skipif(native is None, reason="fastsample._native is not built")
SIZE = 32
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "warm": {"temperature": 1.7},
    "top_k": {"top_k": 8},
    "top_p": {"top_p": 0.7},
    "min_p": {"min_p": 0.05, "temperature": 0.8},
    "all": {"temperature": 1.3, "top_k": 20, "top_p": 0.95, "min_p": 0.02},
    "temperature last": {
        "temperature": 1.5,
        "top_p": 0.9,
        "stages": ("top_k", "top_p", "min_p", "temperature"),
    },
    "penalties": {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": -0.7},
}


def request_of(name: str) -> Any:
    """One row with bias, a mask and a history under the settings of that name."""
    rng = np.random.default_rng(list(SETTINGS).index(name))
    row = normal(rng, SIZE, 1.2)
    lists: dict[str, Any] = {}
    if name == "penalties":
        mask = np.ones((1, SIZE), dtype=bool)
        mask[0, ::5] = False
        bias = csr([[1, 3]], [np.float32([1.5, -2])])
        lists = {"mask": mask, "bias": bias, "output": csr([[1, 1, 2, 7, 7, 7]])}
    plan = make_plan(1, seed=2024, position=9, **SETTINGS[name])
    return make_request(row[np.newaxis], plan, **lists)


def expected_shares(name: str, request: Any) -> np.ndarray:
    """The softmax in float64 of the tokens that the reference keeps."""
    kept = Engine("reference").kept_sets(request)
    shares = np.zeros(SIZE)
    shares[kept.tokens] = softmax64(kept.logits, SETTINGS[name].get("temperature", 1.0))
    return shares


@needs_native
@pytest.mark.parametrize(
    "n_draws",
    [10_000_000, pytest.param(100_000_000, marks=pytest.mark.nightly)],
    ids=["10M", "100M"],
)
@pytest.mark.parametrize("name", SETTINGS)
def test_drawn_frequencies(name, n_draws):
    """A G-test, and nothing outside the kept set."""
    engine = Engine("native", native.default_isa())
    request = request_of(name)
    shares = expected_shares(name, request)
    counts = count_draws(engine, request, n_draws)
    assert counts.sum() == n_draws
    assert counts[shares == 0].sum() == 0
    degrees = np.count_nonzero(shares) - 1
    assert chi_square_tail(g_statistic(counts, shares), degrees) > ALPHA


@needs_native
def test_no_seed_is_better_than_another():
    """G-tests of 64 seeds: a bias too small for one of them shows in all of them together."""
    engine = Engine("native", native.default_isa())
    request = request_of("warm")
    shares, found = expected_shares("warm", request), []
    for seed in range(64):
        request.plan["seed"] = seed
        tokens = engine.run(request, make_output(1, draws=200_000)).tokens[0]
        found.append(g_statistic(np.bincount(tokens, minlength=SIZE), shares))
    assert chi_square_tail(sum(found), 64 * (SIZE - 1)) > ALPHA / 2
    tails = np.array([chi_square_tail(g, SIZE - 1) for g in found])
    assert kolmogorov(tails) < kolmogorov_limit(2)


def test_limits_are_those_of_tables():
    """So much of chi-square lies above 3.841, and so on; at one degree it is a normal's square."""
    table = {
        1: ((3.841, 0.05), (10.828, 0.001), (z_limit() ** 2, ALPHA)),
        2: ((5.991, 0.05), (13.816, 0.001), (-2 * np.log(ALPHA), ALPHA)),
        3: ((7.815, 0.05), (16.266, 0.001)),
        31: ((44.985, 0.05), (61.098, 0.001)),
        100: ((124.342, 0.05), (149.449, 0.001)),
    }
    for degrees, rows in table.items():
        for x, tail in rows:
            assert chi_square_tail(x, degrees) == pytest.approx(tail, rel=1e-3)
        assert chi_square_tail(0.0, degrees) == 1
    for degrees in (10**4 - 1, 10**5):
        tail = chi_square_tail(degrees + 3 * np.sqrt(2 * degrees), degrees)
        assert tail == pytest.approx(0.00135, rel=0.15)
    assert 2 * np.exp(-2 * kolmogorov_limit() ** 2) == pytest.approx(1e-9)
    assert poisson_tails(3, 2.0) == pytest.approx((0.857123, 0.323324), rel=1e-5)
    assert kolmogorov(np.array([0.1, 0.2, 0.9])) == pytest.approx((2 / 3 - 0.2) * np.sqrt(3))


def test_cells_expect_enough() -> None:
    counts, shares = np.array([2, 3, 40, 1, 4, 50]), np.array([4, 4, 40, 2, 10, 40]) / 100
    pooled, expected = pool(counts, shares, 7)
    assert pooled.tolist() == [5, 40, 5, 50]
    assert expected == pytest.approx([0.08, 0.4, 0.12, 0.4])
    assert pool(counts, shares, 45)[0].tolist() == [45, 55]
    assert [cells.tolist() for cells in pool(counts, shares, 1000)] == [[100], [1.0]]


def test_n_draws_are_those_of_n_streams(engine: Engine):
    check_draws_are_streams(engine, request_of("all"))


# ---------------------------------------------------------------- log-probabilities


def logprobs(engine: Engine, row: np.ndarray, form: str, **settings: Any) -> np.ndarray:
    """Log-probabilities of all tokens, in ascending token: as many top tokens as the row has."""
    request = make_request(row[np.newaxis], make_plan(1, **settings))
    out = engine.run(request, make_output(1, modes=(form,), top_count=len(row)))
    by_token = np.empty(len(row))
    by_token[out.logprobs.top_tokens[0, 0]] = out.logprobs.top_logprobs[0, 0]
    assert out.logprobs.logprobs[0, 0, 0] == by_token[out.tokens[0, 0]]
    return by_token


SOME = [{"temperature": 0.0}, {"temperature": 0.7}, {"temperature": 1.5}, {"top_p": 0.1}]


@each("size", [5, 300])
@each("settings", SOME)
def test_raw_is_the_same_under_all_settings_and_processed_is_not(engine: Engine, settings, size):
    row = normal(np.random.default_rng(size), size, 2)
    assert (
        logprobs(engine, row, "raw").tobytes() == logprobs(engine, row, "raw", **settings).tobytes()
    )
    processed = logprobs(engine, row, "processed", **settings)
    assert not np.allclose(processed, logprobs(engine, row, "processed"), atol=1e-3)


@each("settings", [*SETTINGS.values(), *SOME, {"temperature": 1e-30}])
def test_processed_are_the_logarithms_of_what_is_drawn_from(engine: Engine, settings):
    row = normal(np.random.default_rng(4), 400, 3)
    processed = logprobs(engine, row, "processed", **settings)
    tokens, masses = engine.kept_set(row, **settings)
    assert np.exp(processed).sum() == pytest.approx(1, abs=1e-6)
    assert np.exp(processed[tokens]) == pytest.approx(masses / masses.sum(), abs=1e-12)
    assert np.all(np.delete(processed, tokens) == -np.inf)


@each("temperature", [1e-3, 0.7, 1.0, 1.5, 100.0])
def test_tempered_is_log_softmax_at_the_temperature(engine: Engine, temperature):
    row = normal(np.random.default_rng(6), 400, 3)
    tempered = logprobs(engine, row, "tempered", temperature=temperature, top_k=3, top_p=0.5)
    scaled = row.astype(np.float64) / float(np.float32(temperature))
    gap = scaled - scaled.max()
    assert tempered == pytest.approx(gap - np.log(np.exp(gap).sum()), rel=1e-6, abs=1e-6)


def test_all_forms_are_equal_without_filters(engine: Engine):
    row = normal(np.random.default_rng(8), 200, 1)
    raw, tempered, processed = (
        logprobs(engine, row, form) for form in ("raw", "tempered", "processed")
    )
    assert raw.tobytes() == tempered.tobytes()
    assert processed == pytest.approx(raw, abs=1e-6)


@pytest.mark.parametrize("form", ["tempered", "processed"])
def test_at_temperature_0_the_token_has_it_all(engine: Engine, form):
    row = np.float32([1, 3, 3, -np.inf])
    assert logprobs(engine, row, form, temperature=0.0).tolist() == [-np.inf, 0, -np.inf, -np.inf]


def test_rank_is_by_the_order_of_the_form(engine: Engine):
    """Token 2 is third as the row came; a bias makes it the first."""
    row = np.float32([[5, 3, 3, 1]])
    request = make_request(row, make_plan(1, temperature=0.0), bias=csr([[2]], [np.float32([9])]))
    out = engine.run(request, make_output(1, modes=("raw", "processed"), top_count=4))
    assert out.tokens.tolist() == [[2]]
    assert out.logprobs.ranks[:, 0, 0].tolist() == [3, 1]
    assert out.logprobs.top_tokens[:, 0].tolist() == [[0, 1, 2, 3], [2, 0, 1, 3]]
