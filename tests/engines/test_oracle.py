"""The oracle: native and numba == reference in token, kept set and masses.

A case is one (row, filters, seed, position, stream). The reference answers each once; native, on
every instruction set, is compared on every case, Numba on a share: see `CoverageCounter`. Several
draws share a row and its filters, hence one kept set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fastsample.engines import reference
from fastsample.verification.flush import flushing
from fastsample.verification.memory import laid_out
from tests.support import reference_rows
from tests.support.coverage_counter import CoverageCounter
from tests.support.engines import (
    TESTED_ENGINES,
    Engine,
    make_plan,
    make_request,
    needs_tested_engine,
    sha256,
)
from tests.support.random_rows import BLOCKS, KINDS, filters_per_row, random_draws, random_filters
from tests.support.row_kinds import BAD

pytestmark = needs_tested_engine
nightly = pytest.mark.nightly

DRAWS_PER_ROW = 8
DRAWS_PER_WIDE_ROW = 4
SIZES = sorted(
    {*range(1, 34), 100, 1000, 3000, 4097, 4098, 4099}
    | {block + off for block in BLOCKS for off in (-1, 0, 1)}
    | {block + 3 * off for block in BLOCKS[5:] for off in (-16, 5, 43)}
)
SIZES = [size for size in SIZES if size <= 4099]
WIDE_SIZES = (32_000, 50_257, 128_000, 128_256, 131_073, 151_936, 201_088, 262_144, 262_147)


@dataclass(frozen=True)
class Answered:
    """A row, its filters and a batch of draws, with the reference's answers."""

    name: str
    row: np.ndarray
    filters: dict[str, Any]
    plan: np.ndarray
    tokens: list[int]
    status: int
    seen: reference.Trace | None

    def explain(self, engine: Engine, what: str) -> str:
        return f"{what} of {engine} differs: {self.name}, V={len(self.row)}, {self.filters}"


def answered_by_reference(
    name: str, row: np.ndarray, filters: dict[str, Any], draws: dict[str, Any]
) -> Answered:
    """Compute the reference's answers; one trace serves all draws."""
    plan = make_plan(len(draws["seed"]), **filters, **draws)
    status = reference.status(row)
    if status != reference.OK:
        return Answered(name, row, filters, plan, [-1] * len(plan), status, None)
    seen = reference.trace(row, **filters)
    kept = reference.by_token(seen)
    words = [reference.uniform(int(r["seed"]), int(r["position"]), int(r["stream"])) for r in plan]
    return Answered(
        name, row, filters, plan, [reference.draw(*kept, u) for u in words], status, seen
    )


def check(case: Answered, tally: CoverageCounter) -> None:
    """Compare engines with the answers."""
    rows = np.broadcast_to(case.row, (len(case.plan), len(case.row)))
    alone = make_request(rows[:1], case.plan[:1])
    engines = tally.engines()
    for engine in engines:
        tokens, status = engine.sample(rows, case.plan)
        assert status.tolist() == [case.status] * len(status), case.explain(engine, "status")
        assert tokens.tolist() == case.tokens, case.explain(engine, "token")
        if case.seen is not None:
            kept, interval = engine.kept_sets(alone), slice(case.seen.first, case.seen.end)
            same = np.array_equal(kept.tokens, case.seen.order[interval])
            assert same, case.explain(engine, "kept set")
            same = np.array_equal(kept.masses, case.seen.mass[interval])
            assert same, case.explain(engine, "masses")
    tally.add(engines, len(case.plan), len(case.row))


def random_rows(
    rng: np.random.Generator, sizes: Any, n_filters: int
) -> Iterator[tuple[str, np.ndarray, dict[str, Any]]]:
    """Every kind of row at every size, each with its own sets of filters."""
    for size in sizes:
        for kind, make in KINDS.items():
            row = make(rng, size)
            row.flags.writeable = False
            for _ in range(1 if kind in BAD else n_filters):
                yield kind, row, random_filters(rng, size)


def compare(seed: Any, sizes: Any, n_filters: int, n_draws: int) -> CoverageCounter:
    rng, tally = np.random.default_rng(seed), CoverageCounter()
    for kind, row, filters in random_rows(rng, sizes, n_filters):
        check(answered_by_reference(kind, row, filters, random_draws(rng, n_draws)), tally)
    return tally


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=nightly) for n in range(2, 7))])
def test_rows_around_every_border(seed):
    scattered = np.random.default_rng(seed).integers(34, 4100, 20).tolist()
    tally = compare(seed, [*SIZES, *scattered], n_filters=8, n_draws=DRAWS_PER_ROW)
    tally.report(cases=200_000, logits=24_900_000)


@pytest.mark.parametrize("size", WIDE_SIZES)
def test_wide_rows(size):
    tally = compare((3, size), [size], n_filters=4, n_draws=DRAWS_PER_WIDE_ROW)
    tally.report(logits=135 * size)


@nightly
@pytest.mark.parametrize("size", WIDE_SIZES)
def test_many_wide_rows(size):
    """Together two thousand million logits."""
    tally = compare((4, size), [size], n_filters=56, n_draws=DRAWS_PER_WIDE_ROW)
    tally.report(logits=1512 * size)


def test_recorded_rows():
    """Rows of a real model, from the float32 file that FASTSAMPLE_LOGITS names."""
    path = os.environ.get("FASTSAMPLE_LOGITS")
    if not path:
        pytest.skip("FASTSAMPLE_LOGITS is not set: no recorded rows")
    rng, tally = np.random.default_rng(5), CoverageCounter()
    rows = np.load(path, mmap_mode="r")
    for row in rows[:16]:
        row = np.asarray(row)
        for _ in range(6):
            filters = random_filters(rng, len(row))
            check(
                answered_by_reference("recorded", row, filters, random_draws(rng, DRAWS_PER_ROW)),
                tally,
            )
    tally.report(cases=6 * DRAWS_PER_ROW * min(16, len(rows)))


# ---------------------------------------------------------------- batches


def layouts(rows: np.ndarray) -> dict[str, np.ndarray]:
    """The same rows at other strides and alignments."""
    row_step = rows.shape[1] * rows.itemsize
    frozen = rows.copy()
    frozen.flags.writeable = False
    return {
        "plain": rows,
        "padded": laid_out(rows, row_step + 12, 4),
        "backwards": laid_out(rows, -row_step, 4),
        "unaligned": laid_out(rows, row_step, 4, offset=1),
        "odd stride": laid_out(rows, row_step + 7, 4),
        "read-only": frozen,
    }


def mixed_batch(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    """One row of every kind, each with filters and draws of its own."""
    rows = np.stack([make(rng, size) for make in KINDS.values()])
    draws = random_draws(rng, len(rows))
    return rows, make_plan(len(rows), **filters_per_row(rng, len(rows), size), **draws)


@pytest.mark.parametrize("size", [1, 5, 17, 63, 129, 1000, 4097, 20_011])
def test_batches_at_any_layout_and_thread_count(size):
    rows, plan = mixed_batch(np.random.default_rng(size), size)
    expected_tokens, expected_status = Engine("reference").sample(rows, plan)
    plan_before = plan.copy()
    for name, there in layouts(rows).items():
        before = sha256(there)
        for engine in TESTED_ENGINES:
            for n_threads in engine.threads(1, 2, 3, 0):
                tokens, status = engine.sample(there, plan, n_threads)
                case = (name, engine, n_threads)
                assert status.tolist() == expected_status.tolist(), case
                assert tokens.tolist() == expected_tokens.tolist(), case
        assert sha256(there) == before, name
    assert np.array_equal(plan, plan_before)


def test_kept_set_of_an_unaligned_read_only_row():
    row = layouts(np.random.default_rng(9).standard_normal((1, 3001)).astype(np.float32))[
        "unaligned"
    ][0]
    row.flags.writeable = False
    expected = reference_rows.kept_set(row, temperature=0.7, top_k=0, top_p=0.8, min_p=0.0)
    for engine in TESTED_ENGINES:
        tokens, masses = engine.kept_set(row, temperature=0.7, top_p=0.8)
        assert tokens.dtype == np.int64
        assert masses.dtype == np.uint64
        assert np.array_equal(tokens, expected[0])
        assert np.array_equal(masses, expected[1])


def test_more_threads_than_rows_and_no_rows_at_all():
    rows = np.zeros((2, 50), dtype=np.float32)
    for engine in TESTED_ENGINES:
        one = engine.sample(rows, make_plan(2, seed=[1, 2]), 1)[0]
        assert engine.sample(rows, make_plan(2, seed=[1, 2]), 16)[0].tolist() == one.tolist()
        assert engine.sample(rows[:0], make_plan(0), 3)[0].shape == (0,)


def test_flush_to_zero_changes_nothing(engine: Engine):
    """Other libraries have the processor flush denormals; no token and no mass may move."""
    rng = np.random.default_rng(10)
    rows, plan = mixed_batch(rng, 300)
    expected = engine.sample(rows, plan)
    tiny = KINDS["smallest normal"](rng, 300)
    kept = engine.kept_set(tiny, temperature=1e-38)
    with flushing() as can_flush:
        flushed = engine.sample(rows, plan)
        flushed_kept = engine.kept_set(tiny, temperature=1e-38)
    if not can_flush:
        pytest.skip("this processor cannot flush denormals")
    assert [a.tolist() for a in flushed] == [a.tolist() for a in expected]
    assert [a.tolist() for a in flushed_kept] == [a.tolist() for a in kept]
