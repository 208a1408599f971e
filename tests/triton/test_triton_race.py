"""The Triton engine races as the reference, on both paths: random rows and settings, borders."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest

from fastsample import sample
from fastsample.engines.reference import clocks
from fastsample.engines.reference import race as reference_race
from fastsample.params.ops import DrawMethod, Op
from tests.support.case_loop import each
from tests.support.engines import Engine
from tests.support.race_cases import KINDS, compare_races, make_race_row, random_race_batch
from tests.support.race_ties import compare_equal_times

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
pytestmark = pytest.mark.triton

import triton.language as tl  # noqa: E402

import tests.support.fast_interpreter  # noqa: E402, F401
from fastsample.engines.torch.batch import TensorRequest  # noqa: E402
from fastsample.engines.torch.listing import is_listed  # noqa: E402
from fastsample.engines.torch.penalties import TensorProcessors  # noqa: E402
from fastsample.engines.torch.prepare_params import FIXED  # noqa: E402
from fastsample.engines.triton import draw, prepare_params, race, topk_path  # noqa: E402
from fastsample.engines.triton.launch import launch, require_device  # noqa: E402
from fastsample.engines.triton.param_table import LISTED  # noqa: E402

REFERENCE, TRITON = Engine("reference"), Engine("triton")
RACE = int(DrawMethod.RACE)
SMALL = race._Tiles(levels=1, scan=2, clocks=1, arrivals=64)
"""Tiles by which every loop of a kernel has several rounds."""


compare = partial(compare_races, TRITON)


@pytest.mark.parametrize(
    "n_batches", [8, pytest.param(500, marks=pytest.mark.nightly)], ids=["32", "2k"]
)
def test_random_cases(n_batches: int) -> None:
    rng = np.random.default_rng(n_batches)
    for _ in range(n_batches):
        rows, settings = random_race_batch(rng, 4)
        compare(rows, **settings)


def test_loops_of_many_rounds(monkeypatch: Any) -> None:
    monkeypatch.setattr(race, "_TILES_INTERPRETED", SMALL)
    rows = np.stack([make_race_row(np.random.default_rng(1), kind, 700) for kind in KINDS])
    compare(rows, 1, seed=range(len(rows)), temperature=1.3, top_p=[1.0, 0.9, 0.4, 0.8, 0.6])
    compare(np.round(rows), 1, seed=range(len(rows)), top_k=[128, 200, 300, 50, 699])


def test_nothing_known_of_the_numbers() -> None:
    """As where the device alone has them: every row may be listed, or not."""
    rng = np.random.default_rng(7)
    unknown = mock.patch.object(TensorRequest, "known_numbers", None)
    for _ in range(5):
        rows, settings = random_race_batch(rng, 3)
        with unknown:
            compare(rows, **settings)


# ---------------------------------------------------------------- the two paths


@each("settings", [{"top_k": 50}, {"top_k": 100, "top_p": 0.9}, {"top_k": 127, "min_keep": 200}])
@each("kind", KINDS)
def test_listed_rows_of_few_tokens(kind: str, settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(len(kind))
    rows = np.stack([make_race_row(rng, kind, 700) for _ in range(3)])
    with mock.patch.object(topk_path, "draw", wraps=topk_path.draw) as path:
        compare(rows, 5, ("processed",), seed=range(3), temperature=1.2, **settings)
        assert path.call_count == 1


@each("size", (1, 2, 3, 17, 128, 129, 4096, 4097))
def test_sizes_on_both_sides_of_a_power_of_two(size: int) -> None:
    rows = np.stack([make_race_row(np.random.default_rng(size), kind, size) for kind in KINDS])
    options = {"top_p": [1.0, 0.9, 0.4, 0.8, 0.6], "top_k": [0, 0, 0, 128, 50]}
    compare(rows, seed=range(len(rows)), temperature=1.3, **options)


def test_ties_at_the_end_of_the_kept_set() -> None:
    """The last kept tie is in the first block or the last, or there are not so many."""
    row = np.random.default_rng(3).integers(0, 2, (1, 1000)).astype(np.float32)
    for count in (128, 300, 448, 600, 999, 1000):
        compare(row, 10, seed=count, top_k=count)
    few = np.full((1, 1000), -np.inf, dtype=np.float32)
    few[0, 990:] = 1
    compare(few, 10, seed=4, top_k=200)
    compare(few, 10, seed=5, min_p=0.5, min_keep=11)


def test_a_row_where_c_is_smaller_than_the_kept_set() -> None:
    row = np.float32(np.linspace(0, -3, 1000))[None]
    compare(row, 10, min_p=0.995, min_keep=300, seed=5)
    compare(row, 10, min_p=0.6, seed=5)


def test_bad_rows_and_a_mask() -> None:
    rows = np.random.default_rng(8).normal(size=(4, 300)).astype(np.float32)
    rows[1, 5], rows[2] = np.nan, -np.inf
    options = {"seed": 1, "position": 2, "stream": "row", "draw": "race", "n": 4}
    options |= {"on_invalid": "mark", "mask": np.arange(300) % 3 > 0, "temperature": 2.0}
    for top_k in (0, 40):
        results = [
            sample(rows, engine=name, top_k=top_k, **options) for name in ("reference", "triton")
        ]
        expected, found = ([one.tokens.tolist(), one.status.tolist()] for one in results)
        assert found == expected


@each("limit", (1, 40, 3000))
def test_open_races_are_drawn_by_the_inverse_method(limit: int) -> None:
    rows = np.zeros((2, 4096), dtype=np.float32)
    rows[1] = -30
    rows[1, [99, 777, 2000]] = 0
    with mock.patch.object(race, "LIMIT", limit), mock.patch.object(reference_race, "LIMIT", limit):
        for settings in ({"top_k": 128}, {"top_p": 0.99999}, {}):
            compare(rows, 8, modes=("processed",), seed=limit, **settings)


def test_the_limit_is_the_reference_s() -> None:
    assert race.LIMIT == reference_race.LIMIT


# ---------------------------------------------------------------- clocks


@triton.jit
def same_clock(k):
    """A clock of 1/2, whatever the word."""
    return (k >> 63).to(tl.int64).to(tl.float64) * 0.0 + 0.5


def test_equal_times_go_to_the_tail_then_to_the_lower_token(monkeypatch: Any) -> None:
    for module in (race, topk_path):
        monkeypatch.setattr(module, "clock", same_clock)
    monkeypatch.setattr(reference_race, "clock", lambda k: np.full(len(k), 0.5))
    monkeypatch.setattr(race, "_TILES_INTERPRETED", SMALL)
    rows = np.zeros((3, 300), dtype=np.float32)
    rows[1, [70, 140, 250]], rows[2, 100:] = 2, 3
    for settings in ({"top_k": 40}, {"top_p": 0.4}, {"min_p": 0.5}, {}):
        compare(rows, 4, seed=range(3), **settings)


@triton.jit
def clock_by_two_bits(k):
    """That of `race_ties`."""
    upper = (k >> 62).to(tl.int64)
    return tl.where(upper == 0, 2.0**-60, tl.where(upper == 1, 2.0**-9, 1.0)).to(tl.float64)


def test_equal_times_and_the_least_times(monkeypatch: Any) -> None:
    for module in (race, topk_path):
        monkeypatch.setattr(module, "clock", clock_by_two_bits)
    compare_equal_times(TRITON, race)


@triton.jit
def write_clocks(clocks, steps, words, size, block: tl.constexpr):
    at = tl.arange(0, block)
    found = draw.clock(tl.load(words + at, mask=at < size, other=0).to(tl.uint64))
    tl.store(clocks + at, found, mask=at < size)
    tl.store(steps + at, draw.in_steps(found), mask=at < size)


def test_clocks_are_the_reference_s() -> None:
    k = np.random.default_rng(92).integers(0, 2**64, 30_000, dtype=np.uint64)
    k[:6] = 0, 2**12 - 1, 2**12, 2**63, 2**64 - 2**12, 2**64 - 1
    device = require_device()
    found = torch.empty((2, len(k)), dtype=torch.float64, device=device)
    words = torch.from_numpy(k.view(np.int64)).to(device)
    launch(write_clocks, (1,), found[0], found[1], words, len(k), 2**15)
    expected = clocks.clock(k)
    assert found[0].cpu().numpy().tobytes() == expected.tobytes()
    assert found[1].cpu().numpy().tobytes() == clocks.in_steps(expected).tobytes()


# ---------------------------------------------------------------- listed or not


def test_rows_that_are_listed() -> None:
    rng = np.random.default_rng(93)
    values = {
        Op.SCALE: [1.0, 0.8, 1 + 2.0**-30],
        Op.COUNT: [0.0, 1, 127, 128, 199, 200, 500],
        Op.MASS: [1.0, 0.5 - 2.0**-25, 0.5 - 2.0**-27, 0.5, 0.9],
        Op.THRESHOLD: [0.0, 2.0**-60, 2.0**-59, 0.1],
        Op.THRESHOLD_OF_TOTAL: [0.0, 2.0**-60, 0.1],
    }
    for _ in range(10):
        ops = tuple(rng.permutation(list(values))[: rng.integers(1, 6)].tolist())
        columns = [rng.choice(values[Op(op)], 64) for op in ops]
        numbers = torch.from_numpy(np.stack([np.ones(64)] * len(FIXED) + columns, 1))
        request = TensorRequest(
            values=torch.zeros(64, 200),
            vocabulary=200,
            numbers=numbers,
            host_numbers=None,
            rng_position=torch.zeros(64, 3, dtype=torch.int64),
            bad=None,
            processors=TensorProcessors(None, None, None, None, None, (0, 0, 0)),
            ops=ops,
            draws=1,
            method=DrawMethod.RACE,
        )
        found = prepare_params.prepare_params(request)[:, LISTED.value]
        assert found.tolist() == is_listed(numbers, ops, 200)[:, 0].tolist(), ops
