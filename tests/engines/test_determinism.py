"""One answer whatever the machine does: a grid of all that may not change a bit.

Instruction sets, threads, how a batch is split and ordered, dtypes of equal values, places in
memory, and a fork are crossed, for both reductions that promise it. The reference answers once;
tokens, kept counts, log-probabilities, ranks and candidates must have its bits in every cell.
"""

from __future__ import annotations

import os
from functools import cache

import numpy as np
import pytest

from fastsample.verification.memory import laid_out
from tests.support.case_loop import each
from tests.support.engines import Engine, SampleOutput, differing, make_output, make_request
from tests.support.forks import holds_in_a_child
from tests.support.oracle import joined
from tests.support.random_requests import MODES, random_plan

N_ROWS, COLUMNS = 21, 1037
THREADS = (1, 2, 3, 8)
SPLITS = (1, 7, N_ROWS)
OFFSETS = (0, 4, 12, 60)
REDUCTIONS = ("exact", "fixed")


@cache
def rows_and_plan() -> tuple[np.ndarray, np.ndarray]:
    """Logits of eight significant bits and small exponents, which all three dtypes hold."""
    rng = np.random.default_rng(20)
    rows = (rng.integers(-255, 256, (N_ROWS, COLUMNS)) / 16).astype(np.float32)
    rows[rng.random(rows.shape) < 0.1] = -np.inf
    rows[3, 5], rows[11] = np.nan, -np.inf
    return rows, random_plan(rng, N_ROWS, COLUMNS)


def of_dtype(rows: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        return (rows.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return rows.astype(dtype)


def answer(
    engine: Engine,
    rows: np.ndarray,
    plan: np.ndarray,
    reduction: str,
    n_threads: int = 1,
    split: int = N_ROWS,
) -> SampleOutput:
    """The full output for the rows, computed in batches of `split`."""
    outs = []
    for first in range(0, len(rows), split):
        part = slice(first, first + split)
        request = make_request(rows[part], plan[part].copy(), reduction=reduction)
        out = make_output(len(request.values), modes=MODES, top_count=5)
        outs.append(engine.run(request, out, n_threads))
    return joined(outs)


@cache
def expected(order: tuple[int, ...], reduction: str) -> SampleOutput:
    """The reference's output for the rows in some order."""
    rows, plan = rows_and_plan()
    shuffled = list(order)
    return answer(Engine("reference"), rows[shuffled], plan[shuffled], reduction)


@each("dtype", ["float32", "float16", "bfloat16"])
@each("offset", OFFSETS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_grid(engine: Engine, reduction: str, offset: int, dtype: str) -> None:
    if reduction not in engine.reductions:
        pytest.skip(f"{engine.name} has no reduction {reduction!r}")
    rows, plan = rows_and_plan()
    shuffled = np.random.default_rng(offset).permutation(N_ROWS)
    for order in (np.arange(N_ROWS), shuffled):
        typed = of_dtype(rows[order], dtype)
        there = laid_out(typed, COLUMNS * typed.itemsize + offset, typed.itemsize, offset)
        for n_threads in engine.threads(*THREADS):
            for split in SPLITS:
                found = answer(engine, there, plan[order], reduction, n_threads, split)
                right = expected(tuple(order.tolist()), reduction)
                assert differing(right, found) == [], (n_threads, split)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@each("n_threads", THREADS)
@each("reduction", REDUCTIONS)
def test_grid_after_a_fork(engine: Engine, reduction: str, n_threads: int) -> None:
    """The parent has used threads before; the child must neither miss them nor wait for them."""
    if engine.name == "torch":
        pytest.skip("torch's threads are its own, and do not survive a fork")
    rows, plan = rows_and_plan()
    right = expected(tuple(range(N_ROWS)), reduction)

    def holds() -> bool:
        found = (answer(engine, rows, plan, reduction, n_threads, split) for split in SPLITS)
        return all(differing(right, one) == [] for one in found)

    assert holds()
    assert holds_in_a_child(holds)
    assert holds()
