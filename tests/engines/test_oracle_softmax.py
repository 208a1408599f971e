"""The oracle for softmax, log_softmax and logsumexp: native and numba == reference, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from fastsample.engines import reference
from fastsample.engines.reference import softmax as reference_softmax
from tests.support.engines import (
    TESTED_ENGINES,
    Engine,
    make_plan,
    make_request,
    needs_tested_engine,
    same_bits,
)
from tests.support.oracle import random_temperatures
from tests.support.random_requests import DTYPES


def softmax_of(
    engine: Engine, values: np.ndarray, temperatures: np.ndarray
) -> dict[str, np.ndarray]:
    """softmax, log_softmax, logsumexp (not at temperature 0) and the statuses of rows."""
    n_rows, columns = values.shape
    of_tokens = {"softmax": np.float32, "log_softmax": np.float32}
    answers = {name: np.zeros((n_rows, columns), dtype) for name, dtype in of_tokens.items()}
    if temperatures.astype(np.float32).all():
        answers["logsumexp"] = np.zeros(n_rows)
    request = make_request(values, make_plan(n_rows, temperature=temperatures))
    for name, out in [*answers.items()]:
        answers[f"status of {name}"] = engine.write_softmax(name, request, out, 2)
    return answers


def softmax_of_reference(values: np.ndarray, temperatures: np.ndarray) -> dict[str, np.ndarray]:
    n_rows, columns = values.shape
    answers = {
        "softmax": np.zeros((n_rows, columns), np.float32),
        "log_softmax": np.zeros((n_rows, columns), np.float32),
        "logsumexp": np.zeros(n_rows),
    }
    rows = [reference.widen(row) for row in values]
    status = np.array([reference.status(row) for row in rows], dtype=np.uint8)
    for b in np.flatnonzero(status == reference.OK):
        for name, out in answers.items():
            out[b] = getattr(reference_softmax, name)(rows[b], float(temperatures[b]))
    return {**answers, **{f"status of {name}": status for name in [*answers]}}


@needs_tested_engine
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [1, 7, 128, 131, 1000, 5003])
def test_softmax_log_softmax_and_logsumexp(dtype, columns):
    rng = np.random.default_rng((8, columns))
    values = DTYPES[dtype](rng, 120, columns)
    temperatures = random_temperatures(rng, 120)
    expected = softmax_of_reference(values, temperatures)
    for engine in TESTED_ENGINES:
        for laid_out in (values, np.asfortranarray(values), values[::-1].copy()[::-1]):
            found = softmax_of(engine, laid_out, temperatures)
            wrong = [name for name in expected if not same_bits(expected[name], found[name])]
            assert wrong == [], engine


@needs_tested_engine
def test_softmax_at_temperature_0_is_one_token():
    values = np.float32([[1, 3, 3, -np.inf], [-1, -1e-40, 0, -0.0]])
    for engine in TESTED_ENGINES:
        found = softmax_of(engine, values, np.array([0.0, 1e-50]))
        assert found["softmax"].tolist() == [[0, 1, 0, 0], [0, 1, 0, 0]]
        assert found["log_softmax"].tolist() == [
            [-np.inf, 0, -np.inf, -np.inf],
            [-np.inf, 0, -np.inf, -np.inf],
        ]
    for b, row in enumerate(values):
        assert same_bits(reference_softmax.softmax(row, 0.0), found["softmax"][b])
        assert same_bits(reference_softmax.log_softmax(row, 0.0), found["log_softmax"][b])


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_softmax_of_a_bad_row_is_an_error_in_the_reference(name):
    with pytest.raises(ValueError, match="`row` must hold a logit above -inf"):
        getattr(reference_softmax, name)(np.float32([np.nan]), 1.0)


def test_softmax_is_close_to_the_exact_one_down_to_tiny_probabilities():
    rng = np.random.default_rng(9)
    for spread in (0.1, 1.0, 5.0, 20.0):
        row = (rng.standard_normal(5000) * spread).astype(np.float32)
        gap = row.astype(np.float64) - float(row.max())
        exact = np.exp(gap) / np.exp(gap).sum()
        found = reference_softmax.softmax(row, 1.0).astype(np.float64)
        # y is rounded to float32, so its error grows with its size; below 2^-126 it is flushed.
        allowed = exact * (np.abs(gap) * 2.0**-22 + 2.0**-20) + 2.0**-120
        assert np.all(np.abs(found - exact) <= allowed)
        assert found.sum() == pytest.approx(1, abs=1e-5)
        assert reference_softmax.logsumexp(row, 1.0) == pytest.approx(
            float(row.max()) + np.log(np.exp(gap).sum()), abs=1e-6
        )
