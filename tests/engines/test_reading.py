"""Both ways in which the kernels read a row for the first time give the same results."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fastsample import sample
from tests.support.border_checks import check_one_bad_logit
from tests.support.case_loop import each
from tests.support.engines import Engine, native

pytestmark = pytest.mark.skipif(native is None, reason="needs the compiled extension")

SIZES = (100, 384, 512, 600, 1_300, 2_048)
"""Rows with no full block, with fewer than the four parts that are read in turn, and with rests."""

NAMES = ("streams", "ahead")
each_reading = pytest.mark.parametrize("reading", NAMES, indirect=True)


@pytest.fixture
def reading(request: pytest.FixtureRequest) -> Iterator[str]:
    before = native.reading()
    native.set_reading(request.param)
    yield request.param
    native.set_reading(before)


@each_reading
@each("value", [np.nan, -np.nan, np.inf])
@each("size", SIZES)
def test_one_bad_logit_anywhere(native_engine: Engine, reading: str, size: int, value: float):
    check_one_bad_logit(native_engine, size, value, temperature=0.0)


def rows_of(size: int) -> dict[str, tuple[Any, Any]]:
    """Rows as they may lie in memory, and masks."""
    row = np.random.default_rng(size).normal(size=size).astype(np.float32)
    allowed = np.random.default_rng(size + 1).random(size) < 0.3
    return {
        "plain": (row, None),
        "strided": (np.stack([row, -row], axis=1)[:, 0], None),
        "halves": (row.astype(np.float16), None),
        "masked": (row, allowed),
        "masked halves": (row.astype(np.float16), allowed),
    }


@each_reading
@each("size", SIZES)
def test_every_row_has_the_tokens_of_the_reference(native_engine, reading: str, size: int):
    for row, mask in rows_of(size).values():
        for settings in ({"temperature": 0.0}, {}, {"top_k": size // 2}, {"bias": {3: 1.0}}):
            place: dict[str, Any] = {"seed": 1, "position": 2, "mask": mask, **settings}
            wanted = sample(row, engine="reference", **place).tokens
            assert sample(row, engine="native", isa=native_engine.isa, **place).tokens == wanted


def run(name: str) -> subprocess.CompletedProcess[str]:
    source = "from fastsample import _native; print(_native.reading())"
    environment = {**os.environ, "FASTSAMPLE_READING": name}
    return subprocess.run(
        [sys.executable, "-c", source], env=environment, capture_output=True, text=True
    )


def test_the_environment_chooses():
    assert [run(name).stdout.strip() for name in NAMES] == list(NAMES)
    assert run("").stdout.strip() in NAMES


def test_an_unknown_name_in_the_environment():
    error = run("backwards").stderr.strip().splitlines()[-1]
    start = "ValueError: the environment's `FASTSAMPLE_READING` must be one of streams, ahead"
    assert error == f"{start}, got 'backwards' (or unset)"
