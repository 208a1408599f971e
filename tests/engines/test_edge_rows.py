"""Rows at the edges of what a row can be, at every place where an engine may take another path.

Bad logits at each place, ties and denormals everywhere, rows and tokens so far apart that an offset
needs more than 32 bits.
"""

from __future__ import annotations

import mmap
import sys

import numpy as np
import pytest

from fastsample import sample
from fastsample.engines import reference
from tests.support.border_checks import (
    FLAT,
    SIZES,
    check_equal_logits,
    check_one_bad_logit,
    each_place_of,
)
from tests.support.case_loop import each
from tests.support.engines import (
    TESTED_ENGINES,
    Engine,
    differing,
    make_output,
    make_plan,
    make_request,
    needs_tested_engine,
)
from tests.support.row_kinds import MAX

F32 = np.float32
BAD = {"nan": np.nan, "-nan": -np.nan, "+inf": np.inf}


# ---------------------------------------------------------------- bad logits


@each("settings", [{}, {"temperature": 0.0}, {"top_k": 3}, {"top_p": 0.5}])
@each("value", BAD.values(), ids=BAD)
@each("size", SIZES)
def test_one_bad_logit_anywhere(engine: Engine, size, value, settings):
    check_one_bad_logit(engine, size, value, **settings)


@each("value", BAD.values(), ids=BAD)
def test_the_first_bad_token_is_named(engine: Engine, value):
    for token in (0, 15, 16, 17, 127, 128, 299):
        row = np.zeros(300, dtype=F32)
        row[token] = row[299] = value
        with pytest.raises(ValueError, match=rf"at token {token}\b"):
            sample(row, seed=1, position=0, engine=engine.name, isa=engine.isa)


@each("value", [np.nan, np.inf])
def test_rows_of_nothing_but_bad_logits(engine: Engine, value):
    for size in SIZES:
        _, status = engine.sample(np.full((2, size), value, dtype=F32), make_plan(2))
        assert status.tolist() == [reference.INVALID] * 2


def test_rows_of_minus_inf_are_empty(engine: Engine):
    for size in SIZES:
        tokens, status = engine.sample(np.full((2, size), -np.inf, dtype=F32), make_plan(2))
        assert (tokens.tolist(), status.tolist()) == ([-1] * 2, [reference.EMPTY] * 2)


@each("value", [0.0, -0.0, MAX, -MAX, 1e-45, -1e-38])
@each("settings", [{}, {"temperature": 0.0}, {"top_p": 0.1, "top_k": 7}])
def test_one_finite_logit_is_the_token(engine: Engine, value, settings):
    for size in SIZES:
        rows = each_place_of(size, -np.inf, value)
        tokens, status = engine.sample(rows, make_plan(size, **settings, seed=range(size)))
        assert not status.any()
        assert tokens.tolist() == list(range(size))


# ---------------------------------------------------------------- ties and denormals


@each("kind", FLAT)
def test_all_equal(engine: Engine, kind):
    check_equal_logits(engine, kind)


def test_the_largest_float_may_tie(engine: Engine):
    rows = np.full((1, 300), -MAX, dtype=F32)
    rows[0, [7, 130, 299]] = MAX
    found = engine.kept_sets(make_request(rows, make_plan(1, min_p=0.5)))
    assert found.tokens.tolist() == [7, 130, 299]
    assert found.masses.tolist() == [2**40] * 3


# ---------------------------------------------------------------- far apart, and none at all


def zero_pages(size: int) -> np.ndarray:
    """Memory that takes none until it is written."""
    if sys.platform != "linux":
        pytest.skip("needs Linux's memory that is not reserved")
    no_reserve = 0x4000  # mmap has its name from Python 3.13 on
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
    try:
        return np.frombuffer(mmap.mmap(-1, size, flags=flags), dtype=np.uint8)
    except OSError as error:
        pytest.skip(f"no {size} bytes of addresses: {error}")


@needs_tested_engine
@pytest.mark.parametrize("engine", TESTED_ENGINES, ids=str)
def test_rows_and_tokens_gigabytes_apart(engine: Engine):
    """Rows 4 GiB and a little apart; then tokens 3 MiB apart, forwards and backwards."""
    rng = np.random.default_rng(21)
    for shape, strides in (((3, 700), (2**32 + 64, 4)), ((2, 1400), (4, 3 * 2**20))):
        rows = rng.normal(size=shape).astype(F32)
        memory = zero_pages(sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + 4)
        laid_out = np.ndarray(shape, F32, memory, 0, strides)
        laid_out[...] = rows
        plan = make_plan(len(rows), top_p=0.9, seed=range(len(rows)))
        for one, other in ((rows, laid_out), (rows[:, ::-1].copy(), laid_out[:, ::-1])):
            request, far = make_request(one, plan), make_request(other, plan)
            expected, found = (
                by.run(one_request, make_output(len(rows), modes=("raw",), top_count=9))
                for by, one_request in ((Engine("reference"), request), (engine, far))
            )
            assert differing(expected, found) == []


@needs_tested_engine
@pytest.mark.parametrize("engine", TESTED_ENGINES[:: max(1, len(TESTED_ENGINES) - 1)], ids=str)
def test_more_logits_than_32_bits_count(engine: Engine):
    """Rows of zeros, but for a few, most of them beyond 2^31 logits or 2^32 bytes."""
    size, n_rows = 2**18, 2**13 + 2
    rows = zero_pages(4 * size * n_rows).view(F32).reshape(n_rows, size)
    marked = {0: 3, 2**12 + 1: 5, 2**13 - 1: 7, 2**13: 11, 2**13 + 1: size - 1}
    for row, token in marked.items():
        rows[row, token] = 1
    tokens, status = engine.sample(rows, make_plan(n_rows, temperature=0.0), 2)
    assert not status.any()
    found = {int(row): int(tokens[row]) for row in np.flatnonzero(tokens)}
    assert found == marked


def test_no_rows_have_no_answers(engine: Engine):
    """No rows, in any layout, with log-probabilities."""
    for rows in (np.zeros((0, 9), F32), np.zeros((9, 0), F32).T, np.zeros((4, 9), np.float16)[:0]):
        request = make_request(rows, make_plan(0))
        out = engine.run(request, make_output(0, modes=("raw",), top_count=3), 2)
        assert out.tokens.shape == (0, 1)
        assert engine.kept_sets(request).offsets.tolist() == [0]
        assert engine.write_softmax("logsumexp", request, np.zeros(0)).shape == (0,)
