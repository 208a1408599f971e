"""The NumPy baseline and the rivals of the benches sample from the right distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rivals
from rows import cut
from settings import SETTINGS

import fastsample
from fastsample import SamplingParams
from fastsample.cli.baseline import BaselineSampler
from fastsample.cli.files import demo_rows

ROWS = [cut(row, 3_000, seed=i) for i, row in enumerate(demo_rows())]
CHOICES: list[dict[str, Any]] = [
    *(setting.params for setting in SETTINGS),
    {"top_k": 5},
    {"top_p": 0.5, "temperature": 2.0},
    {"top_k": 40, "min_p": 0.2},
]
PROBABILITIES = np.float32([0.5, 0.2, 0.1, 0.08, 0.04, 0.01, 0.07])
SMALL = np.log(PROBABILITIES)
COOLED = np.sqrt(PROBABILITIES) / np.delete(np.sqrt(PROBABILITIES), 5).sum()


def maker_of(name: str) -> Any:
    if not rivals.is_installed(name):
        pytest.skip(f"{name} is not installed")
    return rivals.RIVALS[name]


@pytest.mark.parametrize("name", rivals.RIVALS)
@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_rivals_draw_from_the_kept_set(name: str, choice: dict[str, Any]) -> None:
    draw = maker_of(name)(SamplingParams(**choice, seed=3))
    filters = {name: value for name, value in choice.items() if name != "seed"}
    for row in ROWS:
        kept = set(fastsample.kept_set(row, **filters).tokens.tolist())
        assert {draw(row) for _ in range(20)} <= kept


@pytest.mark.parametrize("name", rivals.RIVALS)
@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"temperature": 0.0}, [1, 0, 0, 0, 0, 0, 0]),
        ({}, [0.5, 0.2, 0.1, 0.08, 0.04, 0.01, 0.07]),
        ({"top_k": 2}, [5 / 7, 2 / 7, 0, 0, 0, 0, 0]),
        ({"top_p": 0.75}, [5 / 8, 2 / 8, 1 / 8, 0, 0, 0, 0]),
        ({"min_p": 0.15}, [50 / 88, 20 / 88, 10 / 88, 8 / 88, 0, 0, 0]),
        ({"top_k": 3, "top_p": 0.8}, [5 / 7, 2 / 7, 0, 0, 0, 0, 0]),
        ({"min_p": 0.15, "temperature": 2.0}, [*COOLED[:5], 0, COOLED[6]]),
    ],
    ids=str,
)
def test_rivals_draw_with_the_right_probabilities(
    name: str, choice: dict[str, Any], expected: list[float]
) -> None:
    draw = maker_of(name)(SamplingParams(**choice, seed=5))
    counts = np.bincount([draw(SMALL) for _ in range(2_000)], minlength=7)
    assert np.allclose(counts / 2_000, expected, atol=0.05)
    assert counts[np.equal(expected, 0)].sum() == 0


@pytest.mark.parametrize("name", rivals.RIVALS)
def test_rivals_find_a_nucleus_that_is_most_of_the_row(name: str) -> None:
    draw = maker_of(name)(SamplingParams(top_p=0.9, seed=5))
    drawn = [draw(np.linspace(0, -0.01, 3_000, dtype=np.float32)) for _ in range(200)]
    assert 2_500 < max(drawn) < 2_702


def test_a_seed_repeats_the_draws_of_the_baseline() -> None:
    params = SamplingParams(top_p=0.9, seed=8)
    first, second = BaselineSampler(params), BaselineSampler(params)
    assert [first(row) for row in ROWS] == [second(row) for row in ROWS]


@pytest.mark.parametrize("name", ["numpy_softmax", "torch_softmax"])
def test_rivals_of_softmax(name: str) -> None:
    if name == "torch_softmax":
        pytest.importorskip("torch")
    out = np.empty_like(ROWS[0])
    getattr(rivals, name)(ROWS[0], out)
    assert np.allclose(out, fastsample.softmax(ROWS[0]), rtol=1e-4, atol=1e-9)
