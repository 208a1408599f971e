"""Cuts in rows whose kept tokens are too many to list: ties, denormals, vectors that mislead."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fastsample
from fastsample.engines import is_installed

NATIVE_ISAS = fastsample.info()["isa_usable"] if is_installed("native") else ()
Row = NDArray[np.float32]
LANES = {"baseline": 4, "neon": 4, "x86-64-v3": 8, "x86-64-v4": 16}
BLOCK = 128


def in_fresh_thread(task: Callable[[], Any]) -> Any:
    """Run a task where the workspace is no larger than its rows need."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(task()))
    thread.start()
    thread.join()
    return answers[0]


def answers(rows: list[Row], settings: list[dict[str, Any]], **how: Any) -> list[tuple[int, int]]:
    """Token and kept count of each row under its settings."""
    results = [
        fastsample.sample(row, **one, seed=3, position=i, kept_count=True, **how)
        for i, (row, one) in enumerate(zip(rows, settings, strict=True))
    ]
    return [(int(result.tokens), int(result.kept_count)) for result in results]


def seen_vectors(vocabulary: int, lanes: int) -> NDArray[np.int64]:
    """The tokens that the first guess about a row of this vocabulary looks at."""
    every = -(-vocabulary // BLOCK) * (BLOCK // lanes)
    vectors = min(4096 // lanes, every, (vocabulary // 7 + 2 * BLOCK) // lanes)
    first = np.arange(vectors) * every // vectors * lanes
    tokens = (first[:, None] + np.arange(lanes)).ravel()
    return tokens[tokens < vocabulary]


def settings_of(rng: np.random.Generator, vocabulary: int) -> dict[str, Any]:
    choice = rng.integers(6)
    if choice == 0:
        return {"top_k": int(rng.integers(1, vocabulary))}
    if choice == 1:
        return {"top_p": float(rng.choice([0.5, 0.9, 0.99, 0.9999]))}
    if choice == 2:
        return {"top_p": 0.97, "min_keep": int(rng.integers(1, vocabulary))}
    if choice == 3:
        share, least = float(rng.choice([0.2, 0.9, 0.9999])), int(rng.integers(1, vocabulary))
        return {"typical_p": share, "min_keep": int(rng.choice([1, least]))}
    if choice == 4:
        return {"top_n_sigma": float(rng.choice([0.1, 1, 3])), "epsilon_cutoff": 1.5 / vocabulary}
    return {"top_p": 0.9, "temperature": 3.0, "min_p": 0.01}


def near_zero(rng: np.random.Generator, vocabulary: int) -> Row:
    smallest = np.float32(2.0**-126)
    values = [0.0, -0.0, smallest, -smallest, smallest / 2, -smallest / 2, 1e-40, -1e-42]
    return rng.choice(np.array(values, np.float32), vocabulary)


def few_values(rng: np.random.Generator, vocabulary: int) -> Row:
    values = rng.standard_normal(rng.integers(1, 6)).astype(np.float32)
    return rng.choice(values, vocabulary)


def spread(rng: np.random.Generator, vocabulary: int) -> Row:
    return (rng.standard_normal(vocabulary) * rng.choice([1e-38, 0.1, 1, 3])).astype(np.float32)


Case = tuple[list[Row], list[dict[str, Any]], list[tuple[int, int]]]


@cache
def cases(make: Callable[[np.random.Generator, int], Row], misled: int | None) -> Case:
    """Rows that may mislead vectors of so many lanes, settings, and the reference's answers."""
    rng = np.random.default_rng(17)
    rows, settings = [], []
    for _ in range(40):
        vocabulary = int(rng.integers(400, 6000))
        row = make(rng, vocabulary)
        if misled:
            row[seen_vectors(vocabulary, misled)] = rng.choice([-30.0, -np.inf])
        rows.append(row)
        settings.append(settings_of(rng, vocabulary))
    return rows, settings, answers(rows, settings, engine="reference")


@pytest.mark.parametrize("isa", NATIVE_ISAS)
@pytest.mark.parametrize("make", [near_zero, few_values, spread])
@pytest.mark.parametrize("misleads", [False, True])
def test_in_place_is_the_reference(
    isa: str, make: Callable[[np.random.Generator, int], Row], misleads: bool
) -> None:
    rows, settings, expected = cases(make, LANES[isa] if misleads else None)
    assert in_fresh_thread(lambda: answers(rows, settings, isa=isa)) == expected


@pytest.mark.parametrize("isa", NATIVE_ISAS)
def test_what_a_thread_did_before_changes_nothing(isa: str) -> None:
    row = (np.random.default_rng(1034).standard_normal(5000) * 1e-38).astype(np.float32)
    settings: list[dict[str, Any]] = [{"top_k": 4406}]
    fresh = in_fresh_thread(lambda: answers([row], settings, isa=isa))
    assert fresh == answers([row], settings, engine="reference")


@pytest.mark.nightly
@pytest.mark.parametrize("isa", NATIVE_ISAS)
def test_sums_over_the_largest_vocabulary(isa: str) -> None:
    """Sums of deviations, and of exponents by mass, close to the bounds that the rule states."""
    rng = np.random.default_rng(5)
    far = np.full(2**22, -3e38, np.float32)
    far[7] = 3e38
    rows = [far, -rng.exponential(1 / 512, 2**22).astype(np.float32)]
    settings: list[dict[str, Any]] = [{"top_n_sigma": 1.0}, {"typical_p": 0.7, "temperature": 2e-3}]
    rows, settings = [*rows, rows[1]], [*settings, {"typical_p": 0.9}]
    expected = answers(rows, settings, engine="reference")
    assert answers(rows, settings, isa=isa) == expected
