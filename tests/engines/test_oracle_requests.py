"""Oracle tests of requests: native and numba == reference in every field, bit for bit.

Requests mix what `test_oracle` does not have: dtypes, strides, masks, bias, penalties, stages in
any order, log-probabilities of draws, top tokens and given tokens, several draws. A case is a draw.
Native is compared on every case, and Numba on a share of them: see `CoverageCounter`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastsample.engines import reference
from fastsample.verification.flush import flushing
from tests.support.case_loop import each
from tests.support.coverage_counter import CoverageCounter
from tests.support.engines import (
    BAD_PARAM,
    Engine,
    csr,
    differing,
    make_plan,
    make_request,
    needs_tested_engine,
    row_of_request,
    same_bits,
)
from tests.support.oracle import REFERENCE, SIZES, answer, joined, random_answer_shape
from tests.support.random_requests import (
    DTYPES,
    MODES,
    random_lists,
    random_plan,
    random_request,
    random_status,
)
from tests.support.random_rows import KINDS, pick

WIDE_SIZES = (4095, 4097, 16_384, 20_011, 50_257, 131_073)


def explain(request: Any, engine: Engine, seed: Any) -> str:
    values = request.values
    return f"{engine}, seed {seed}, {values.dtype}{values.shape}, {values.strides}"


def compare_request(seed: Any, n_rows: int, columns: int, engines: list[Engine]) -> tuple[int, int]:
    """Compare engines with the reference on a random request; return its draws and its logits."""
    rng = np.random.default_rng(seed)
    request = random_request(rng, n_rows, columns)
    shape = random_answer_shape(rng, request.vocabulary) | {"has_count": rng.random() < 0.5}
    status = random_status(rng, n_rows)
    n_threads = int(rng.integers(1, 4))
    expected = answer(REFERENCE, request, status, **shape)
    kept = REFERENCE.kept_sets(request, status)
    for engine in engines:
        found = answer(engine, request, status, n_threads, **shape)
        assert differing(expected, found) == [], explain(request, engine, seed)
        assert differing(kept, engine.kept_sets(request, status)) == [], explain(
            request, engine, seed
        )
    return expected.tokens.size, n_rows * request.vocabulary


def compare_requests(seed: int, sizes: tuple[int, ...], cases: int) -> None:
    rng, tally = np.random.default_rng(seed), CoverageCounter()
    while tally.cases < cases:
        n_rows = int(rng.integers(1, 9))
        engines = tally.engines()
        compared = compare_request((seed, tally.started), n_rows, pick(rng, sizes), engines)
        tally.add(engines, *compared)
    tally.report(cases)


def seeds(every_run: range, nightly: range) -> Any:
    """A test for each seed, more of them in `make nightly`; workers share them."""
    return pytest.mark.parametrize(
        "seed", [*every_run, *(pytest.param(n, marks=pytest.mark.nightly) for n in nightly)]
    )


@pytest.mark.smoke
def test_a_slice(engine: Engine):
    rng = np.random.default_rng(9)
    for number in range(40):
        compare_request((9, number), int(rng.integers(1, 5)), pick(rng, SIZES), [engine])


@needs_tested_engine
@seeds(range(1, 3), nightly=range(100, 118))
def test_random_requests(seed):
    compare_requests(seed, SIZES, 50_000)


@needs_tested_engine
@seeds(range(3, 4), nightly=range(300, 309))
def test_wide_requests(seed):
    compare_requests(seed, WIDE_SIZES, 1000)


# ---------------------------------------------------------------- a batch is its rows


@each("seed", range(25))
def test_a_batch_is_its_rows_one_at_a_time(engine: Engine, seed):
    rng = np.random.default_rng((5, seed))
    request = random_request(rng, 12, int(rng.integers(1, 700)))
    shape = random_answer_shape(rng, request.vocabulary)
    status = random_status(rng, 12)
    together = answer(engine, request, status, 2, **shape)
    alone = [
        answer(engine, row_of_request(request, b), status[b : b + 1], **shape) for b in range(12)
    ]
    assert differing(together, joined(alone)) == []
    kept = engine.kept_sets(request, status)
    for b in range(12):
        part = slice(kept.offsets[b], kept.offsets[b + 1])
        of_row = engine.kept_sets(row_of_request(request, b), status[b : b + 1])
        for name in ("tokens", "masses", "logits"):
            assert same_bits(getattr(of_row, name), getattr(kept, name)[part])


@each("seed", range(10))
def test_the_order_of_rows_changes_nothing(engine: Engine, seed):
    rng = np.random.default_rng((6, seed))
    values = DTYPES["float32"](rng, 9, 300)
    plan = random_plan(rng, 9, 300)
    order = rng.permutation(9)
    one = answer(engine, make_request(values, plan), np.uint8(0), modes=MODES, top_count=5)
    other = answer(
        engine,
        make_request(values[order], plan[order]),
        np.uint8(0),
        modes=MODES,
        top_count=5,
    )
    assert same_bits(one.tokens[order], other.tokens)
    assert same_bits(one.logprobs.logprobs[:, order], other.logprobs.logprobs)
    assert same_bits(one.logprobs.top_tokens[:, order], other.logprobs.top_tokens)


# ---------------------------------------------------------------- rows that are bad in one form


def test_raw_alone_is_silent_where_a_mask_hides_what_is_invalid(engine: Engine):
    row = np.array([[1, np.nan, 3, np.inf, 2, -np.inf]], dtype=np.float32)
    mask = np.array([[True, False, True, False, True, True]])
    request = make_request(row, make_plan(1, seed=1), mask=mask)
    out = answer(engine, request, np.uint8(0), modes=MODES, top_count=4)
    assert out.status.tolist() == [0]
    assert out.tokens[0, 0] in (0, 2, 4)
    assert out.kept_count.tolist() == [3]
    assert np.isnan(out.logprobs.logprobs[0]).all()
    assert np.isnan(out.logprobs.top_logprobs[0]).all()
    assert out.logprobs.ranks[0].tolist() == [[0]]
    assert out.logprobs.top_tokens[0].tolist() == [[-1, -1, -1, -1]]
    for form in (1, 2):
        assert out.logprobs.top_tokens[form].tolist() == [[2, 4, 0, 1]]
        assert out.logprobs.ranks[form, 0] == 1 + [2, 4, 0].index(out.tokens[0, 0])
        assert np.exp(out.logprobs.top_logprobs[form]).sum() == pytest.approx(1, abs=1e-6)


@each(
    ("logits", "bias", "status"),
    [
        ([1, np.nan], None, 1),
        ([1, np.nan], [-np.inf], 1),
        ([1, np.inf], [-np.inf], 1),
        ([1, 3e38], [3e38], 1),
        ([1, 3e38], [-np.inf], 0),
        ([-np.inf, 0], [-np.inf], 2),
        ([-np.inf, -3e38], [-3e38], 2),
    ],
)
def test_status_is_of_the_adjusted_row(engine: Engine, logits, bias, status):
    """The bias is that of token 1."""
    lists = {} if bias is None else {"bias": csr([[1]], [np.float32(bias)])}
    request = make_request(np.float32([logits]), make_plan(1), **lists)
    out = answer(engine, request, np.uint8(0), modes=MODES, top_count=2)
    assert out.status.tolist() == [status]
    assert (out.tokens[0, 0] == -1) == (status != 0)


def test_a_row_with_a_status_on_input_is_skipped(engine: Engine):
    plan = make_plan(2, temperature=[np.nan, 1.0])
    out = answer(
        engine,
        make_request(np.zeros((2, 5), dtype=np.float32), plan),
        np.uint8([BAD_PARAM, 0]),
        modes=MODES,
        top_count=2,
    )
    assert out.status.tolist() == [BAD_PARAM, 0]
    assert out.tokens[0].tolist() == [-1]
    assert out.tokens[1, 0] >= 0
    assert out.kept_count.tolist() == [0, 5]
    assert out.logprobs.ranks[:, 0, 0].tolist() == [0, 0, 0]
    assert np.isnan(out.logprobs.logprobs[:, 0]).all()


# ---------------------------------------------------------------- dtypes


def float16_in_steps(bits: int) -> float:
    """The value of a float16 from its three fields."""
    sign, exponent, fraction = bits >> 15, bits >> 10 & 31, bits & 1023
    if exponent == 31:
        return np.nan if fraction else (-np.inf if sign else np.inf)
    size = fraction * 2.0**-24 if exponent == 0 else (1024 + fraction) * 2.0 ** (exponent - 25)
    return -size if sign else size


def check_widening(engine: Engine, values: np.ndarray, expected: np.ndarray) -> None:
    """What is finite in one row that keeps all, what is not in rows of one token each."""
    finite = np.isfinite(expected)
    kept = engine.kept_sets(make_request(values[finite][np.newaxis], make_plan(1)))
    assert same_bits(kept.logits, reference.read(expected[finite])[kept.tokens])
    assert len(kept.tokens) == len(np.unique(kept.tokens)) == np.count_nonzero(finite)
    others = make_request(values[~finite][:, np.newaxis], make_plan(len(values) - len(kept.tokens)))
    status = np.where(expected[~finite] == -np.inf, 2, 1)
    assert np.array_equal(engine.kept_sets(others).status, status)


def test_every_float16_is_widened_exactly(engine: Engine):
    bits = np.arange(2**16, dtype=np.uint16)
    expected = np.array([float16_in_steps(one) for one in bits.tolist()], dtype=np.float32)
    check_widening(engine, bits.view(np.float16), expected)


def test_every_bfloat16_is_widened_exactly(engine: Engine):
    bits = np.arange(2**16, dtype=np.uint16)
    check_widening(engine, bits, (bits.astype(np.uint32) << 16).view(np.float32))


@each("seed", range(20))
def test_equal_values_of_all_dtypes_have_equal_answers(engine: Engine, seed):
    """Eight significant bits and a small exponent: values that all three dtypes hold."""
    rng = np.random.default_rng((7, seed))
    n_rows, columns = 5, int(rng.integers(1, 600))
    rows = (rng.integers(-255, 256, (n_rows, columns)) / 16).astype(np.float32)
    rows[rng.random(rows.shape) < 0.2] = -np.inf
    plan = random_plan(rng, n_rows, columns)
    lists = random_lists(rng, n_rows, columns, columns)
    of_dtype = (
        rows,
        rows.astype(np.float16),
        (rows.view(np.uint32) >> np.uint32(16)).astype(np.uint16),
    )
    requests = [make_request(values, plan, **lists) for values in of_dtype]
    kept = [engine.kept_sets(request) for request in requests]
    outs = [answer(engine, request, np.uint8(0), modes=MODES, top_count=1) for request in requests]
    for found_kept, out in zip(kept[1:], outs[1:], strict=True):
        assert differing(kept[0], found_kept) == []
        assert differing(outs[0], out) == []


# ---------------------------------------------------------------- flush to zero


@each("seed", range(10))
def test_flush_to_zero_changes_no_answer(engine: Engine, seed):
    rng = np.random.default_rng((10, seed))
    requests = [random_request(rng, 8, 150) for _ in range(4)]
    tiny = np.stack([KINDS["smallest normal"](rng, 150) for _ in range(8)])
    plan = random_plan(rng, 8, 150)
    requests.append(make_request(tiny, plan, **random_lists(rng, 8, 150, 150)))

    def answers() -> list[Any]:
        return [
            found
            for request in requests
            for found in (
                answer(engine, request, np.uint8(0), modes=MODES, top_count=1),
                engine.kept_sets(request),
            )
        ]

    expected = answers()
    with flushing() as can_flush:
        flushed = answers()
    if not can_flush:
        pytest.skip("this processor cannot flush denormals")
    for one, other in zip(expected, flushed, strict=True):
        assert differing(one, other) == []
