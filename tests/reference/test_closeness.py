"""How close the rule's probabilities are to softmax: computed, not sampled.

Probabilities of the rule are masses over their total. They are compared with softmax in float64
over the same kept tokens, summed without error. The bounds are those that the rule gives.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from tests.support.case_loop import each
from tests.support.engines import Engine, make_output, make_plan, make_request
from tests.support.goodness_of_fit import softmax64, total_variation
from tests.support.random_rows import KINDS

ANY_ROW, RECORDED_ROW = 4e-7, 1e-7
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "cold": {"temperature": 0.3},
    "warm": {"temperature": 1.7},
    "usual": {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05},
    "wide nucleus": {"temperature": 1.2, "top_p": 0.999},
    "temperature last": {
        "temperature": 1.5,
        "top_p": 0.9,
        "stages": ("top_k", "top_p", "min_p", "temperature"),
    },
}


def probabilities_of(
    engine: Engine, row: np.ndarray, **settings: Any
) -> tuple[np.ndarray, np.ndarray]:
    """The kept tokens' probabilities, and what softmax makes of their logits."""
    kept = engine.kept_sets(make_request(row[np.newaxis], make_plan(1, **settings)))
    total = int(kept.masses.sum(dtype=np.uint64))
    probabilities = kept.masses.astype(np.float64) / total
    return probabilities, softmax64(kept.logits, settings.get("temperature", 1.0))


@each("size", [32, 1000, 262_144])
@each("name", SETTINGS)
def test_any_row(engine: Engine, name, size):
    rng = np.random.default_rng(size)
    for kind in (
        "normal 0.1",
        "normal 3",
        "normal 10",
        "long tail",
        "quantised 1",
        "masked 1 in 10",
    ):
        row = KINDS[kind](rng, size)
        assert total_variation(*probabilities_of(engine, row, **SETTINGS[name])) < ANY_ROW, kind


@each("name", SETTINGS)
def test_recorded_rows(engine: Engine, name):
    """The rows of a model that come with the package."""
    rows = np.load(str(files("fastsample").joinpath("cli/demo_data/rows.npy")))
    for row in rows:
        assert (
            total_variation(*probabilities_of(engine, row.astype(np.float32), **SETTINGS[name]))
            < RECORDED_ROW
        )


@each("temperature", [0.3, 1.0, 2.5])
def test_every_token_s_share(engine: Engine, temperature):
    """A share is wrong by its part of the total's error, by y's and p's rounding, and by 2^-41."""
    row = KINDS["normal 3"](np.random.default_rng(5), 20_000)
    found, exact = probabilities_of(engine, row, temperature=temperature)
    y = np.log2(found.max() / np.maximum(exact, 1e-300))
    allowed = exact * (np.abs(y) * 2.0**-22 + 2.0**-20) + found.max() * 2.0**-41
    assert np.all(np.abs(found - exact) <= allowed)


def test_log_probabilities(engine: Engine):
    """Those of the tokens that have mass are the logarithms of softmax, to 1e-5."""
    row = KINDS["normal 3"](np.random.default_rng(6), 3000)
    for settings in SETTINGS.values():
        request = make_request(row[np.newaxis], make_plan(1, **settings))
        kept = engine.kept_sets(request)
        out = engine.run(request, make_output(1, modes=("processed",), top_count=3000))
        tokens = out.logprobs.top_tokens[0, 0, : len(kept.tokens)]
        assert np.array_equal(tokens, kept.tokens)
        exact = np.log(softmax64(kept.logits, settings.get("temperature", 1.0)))
        heavy = kept.masses > 2**22
        found = out.logprobs.top_logprobs[0, 0, : len(kept.tokens)]
        assert found[heavy] == pytest.approx(exact[heavy], abs=1e-5)
