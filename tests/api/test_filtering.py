"""Functions of what filters leave: kept sets, the first tokens, and rows cut to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fastsample import filter_logits, kept_set, sample, top_k, top_p
from fastsample.engines import reference
from tests.support.api_rows import (
    RNG,
    ROWS,
    TEMPERATURES,
    bits,
    frozen,
    ml_dtypes,
    on,
    row_parts,
    torch,
    with_ml_dtypes,
    with_torch,
)
from tests.support.case_loop import each
from tests.support.engines import SHARED_STAGES, Engine
from tests.support.random_rows import random_filters

# ---------------------------------------------------------------- top_k and top_p


def test_top_k_is_the_head_of_the_order(engine: Engine) -> None:
    for k in (1, 2, 25, 5900, 9000):
        values, tokens, offsets = top_k(ROWS, k, **on(engine))
        expected = np.stack([reference.order(row)[:k] for row in ROWS])
        assert np.array_equal(tokens, expected)
        assert np.array_equal(values, np.take_along_axis(ROWS, expected, 1))
        assert offsets.tolist() == [k * b for b in range(6)]
    assert (tokens.dtype, values.dtype, offsets.dtype) == (np.int64, np.float32, np.int64)


def test_top_k_per_row(engine: Engine) -> None:
    counts = np.array([1, 7000, 3, 1, 9000])
    found = top_k(ROWS, counts, **on(engine))
    expected = [reference.order(row)[:k].tolist() for row, k in zip(ROWS, counts, strict=True)]
    assert row_parts(found) == expected
    assert row_parts(found, "values")[1] == ROWS[1, expected[1]].tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_top_k_is_written_where_it_is_wanted(engine: Engine, dtype: type[np.generic]) -> None:
    rows = ROWS.astype(dtype)
    for logits in (rows, rows[0], rows[:0]):
        expected = top_k(logits, 6000, **on(engine))
        shape = (*logits.shape[:-1], 6000)
        out = (np.empty((*shape, 2), dtype)[..., 1], np.empty(shape, np.int64)[..., ::-1])
        found = top_k(logits, 6000, out=out, **on(engine))
        assert found.values is out[0]
        assert found.tokens is out[1]
        for part in ("values", "tokens", "offsets"):
            assert getattr(found, part).tolist() == getattr(expected, part).tolist()


def test_top_k_leaves_out_as_it_was_for_a_bad_row() -> None:
    rows = ROWS.copy()
    rows[4, 0] = np.nan
    out = (np.full((5, 2), 7, np.float32), np.full((5, 2), 7))
    with pytest.raises(ValueError, match="row 4 holds nan"):
        top_k(rows, 2, out=out)
    assert np.all(out[0] == 7)
    assert np.all(out[1] == 7)


@pytest.mark.parametrize(
    ("out", "error", "part"),
    [
        (np.empty((5, 2)), TypeError, r"`out` must be a pair \(values, tokens\), got ndarray"),
        ((np.empty((5, 2)), np.empty((5, 2), np.int64)), TypeError, "be float32 on the CPU, got f"),
        ((np.empty((5, 2), "f4"), np.empty((5, 2))), TypeError, "be int64 on the CPU, got float64"),
        (
            (np.empty((5, 3), "f4"), np.empty((5, 2), int)),
            ValueError,
            r"shape of the result, \(5, 2",
        ),
    ],
)
def test_the_pair_of_top_k_is_checked(out: Any, error: type[Exception], part: str) -> None:
    with pytest.raises(error, match=part):
        top_k(ROWS, 2, out=out)


def test_top_of_one_row() -> None:
    values, tokens, offsets = top_k(ROWS[2], 3)
    assert tokens.shape == values.shape == (3,)
    assert offsets.tolist() == [0, 3]
    assert top_p(ROWS[2], 0.0).tokens.tolist() == [int(np.argmax(ROWS[2]))]
    assert top_k(ROWS[:0], 3).tokens.shape == (0, 3)
    assert top_p(ROWS[:0], 0.3).offsets.tolist() == [0]


def test_top_p_is_what_the_filter_keeps(engine: Engine) -> None:
    shares = [0.1, 0.9, 0.0, 1.0, 0.5]
    found = top_p(ROWS, shares, TEMPERATURES, **on(engine))
    settings = [{"top_p": p, "temperature": t} for p, t in zip(shares, TEMPERATURES, strict=True)]
    expected = [reference.trace(row, **how) for row, how in zip(ROWS, settings, strict=True)]
    assert row_parts(found) == [seen.tokens.tolist() for seen in expected]
    assert row_parts(found, "values")[0] == ROWS[0, row_parts(found)[0]].tolist()


# ---------------------------------------------------------------- kept sets


def random_settings(rng: np.random.Generator) -> dict[str, Any]:
    stages = tuple(rng.permutation(SHARED_STAGES).tolist())
    return {
        **random_filters(rng, ROWS.shape[1]),
        "min_keep": int(rng.choice([1, 3])),
        "stages": stages,
    }


@each("seed", range(12))
def test_kept_sets_are_those_of_the_rule(engine: Engine, seed: int) -> None:
    rng = np.random.default_rng(seed)
    settings = random_settings(rng)
    found = kept_set(ROWS, **settings, **on(engine))
    seen = [reference.trace(row, **settings) for row in ROWS]
    assert row_parts(found) == [one.tokens.tolist() for one in seen]
    assert row_parts(found, "masses") == [one.masses.tolist() for one in seen]
    assert row_parts(found, "logits") == [
        row[one.tokens].tolist() for row, one in zip(ROWS, seen, strict=True)
    ]
    place: dict[str, Any] = {"seed": 1, "position": 0, "stream": "row"}
    result = sample(ROWS, **settings, **place, kept_count=True)
    assert np.diff(found.offsets).tolist() == result.kept_count.tolist()


def test_kept_sets_are_adjusted(engine: Engine) -> None:
    mask = RNG.random(ROWS.shape) < 0.5
    adjust: dict[str, Any] = {"repetition_penalty": 1.5, "presence_penalty": 0.25}
    bias = {3: 9.0, 4: -np.inf}
    history = [[3, 3, 17], [], [5], [0], [8, 8]]
    found = kept_set(ROWS, top_k=9, mask=mask, bias=bias, output=history, **adjust, **on(engine))
    expected = []
    for b, row in enumerate(ROWS):
        terms = (np.array([3, 4]), np.array([9.0, -np.inf], np.float32))
        row = reference.adjust(row, mask=mask[b], bias=terms, output=history[b], **adjust)
        tokens = reference.order(row)[:9]
        expected.append((tokens.tolist(), row[tokens].tolist()))
    assert list(zip(row_parts(found), row_parts(found, "logits"), strict=True)) == expected


def test_probabilities_are_masses_over_their_total() -> None:
    found = kept_set(ROWS, temperature=0.8, top_k=6)
    result = sample(ROWS, temperature=0.8, top_k=6, logprobs=6, logprobs_mode="processed")
    assert np.allclose(np.log(found.probabilities.reshape(5, 6)), result.top_logprobs, atol=1e-12)
    assert np.allclose(found.probabilities.reshape(5, 6).sum(1), 1, rtol=0, atol=1e-15)


@pytest.mark.parametrize("n_threads", [1, 2, 7])
def test_threads_change_nothing(n_threads: int) -> None:
    for function in (
        lambda **how: kept_set(ROWS, top_p=0.9, bias={3: 1.0}, **how).masses,
        lambda **how: filter_logits(ROWS, min_p=0.01, **how),
        lambda **how: top_k(ROWS, 700, **how).tokens,
        lambda **how: top_p(ROWS, 0.7, **how).tokens,
    ):
        assert bits(function(n_threads=n_threads)) == bits(function())


class OneShot:
    """An array that can be read through DLPack once, as some producers have it."""

    def __init__(self, array: np.ndarray) -> None:
        self.arrays = [array]

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.arrays[0].__dlpack_device__()

    def __dlpack__(self, **how: Any) -> Any:
        return self.arrays.pop().__dlpack__(**how)


@pytest.mark.parametrize("function", [kept_set, filter_logits])
def test_logits_are_read_once(function: Callable[..., Any]) -> None:
    found, expected = function(OneShot(ROWS), top_k=3), function(ROWS, top_k=3)
    if function is kept_set:
        found, expected = found.tokens, expected.tokens
    assert np.array_equal(found, expected)


def test_a_kept_set_of_one_row_and_of_none() -> None:
    assert kept_set(ROWS[0], top_k=4).offsets.tolist() == [0, 4]
    none = kept_set(ROWS[:0])
    assert none.offsets.tolist() == [0]
    assert none.probabilities.shape == (0,)


@pytest.mark.parametrize("function", [kept_set, filter_logits, lambda x: top_k(x, 2)])
def test_a_bad_row_has_no_kept_set(function: Callable[..., Any]) -> None:
    rows = ROWS.copy()
    rows[4, 0] = np.nan
    with pytest.raises(ValueError, match="row 4 holds nan at token 0"):
        function(rows)
    with pytest.raises(ValueError, match="`logits` is -inf at every token"):
        function(np.full(3, -np.inf, np.float32))


@pytest.mark.parametrize(
    ("call", "error", "part"),
    [
        (lambda: top_k(ROWS, 0), ValueError, r"`k` must be in \[1, V\] = \[1, 9000\], got 0"),
        (lambda: top_k(ROWS, [1, 2, 3, 9001, 1]), ValueError, "got 9001 at row 3"),
        (lambda: top_k(ROWS, 2.0), TypeError, "`k` must be an integer"),
        (lambda: top_k(ROWS, [1, 2]), ValueError, "`k` must be a scalar or have shape"),
        (lambda: top_p(ROWS, 1.5), ValueError, r"`p` must be in \[0, 1\], got 1.5"),
        (lambda: top_p(ROWS, [0.5, 1.5, 0, 0, 0]), ValueError, "got 1.5 at row 1"),
        (lambda: top_p(ROWS, 0.5, -1.0), ValueError, "`temperature` must be"),
        (lambda: kept_set(ROWS, min_p=2.0), ValueError, "`min_p` must be in"),
        (lambda: kept_set(ROWS, bias={9000: 1.0}), ValueError, "`bias` must hold tokens in"),
        (lambda: kept_set(ROWS, n_threads=0), ValueError, "`n_threads` must be in"),
        (lambda: top_p(ROWS, 0.5, n_threads=2.0), TypeError, "`n_threads` must be an integer"),
        (lambda: filter_logits(ROWS, out=[0.0]), TypeError, "`out` must be a numpy.ndarray"),
        (lambda: filter_logits(ROWS, out=ROWS[:, 1:]), ValueError, "`out` must have the shape of"),
        (lambda: filter_logits(ROWS, out=frozen(ROWS.copy())), ValueError, "be writable"),
    ],
)
def test_invalid_arguments_are_errors(
    call: Callable[[], Any], error: type[Exception], part: str
) -> None:
    with pytest.raises(error, match=part):
        call()


# ---------------------------------------------------------------- filter_logits


@each("seed", range(6))
def test_filtered_logits_give_the_same_draw(engine: Engine, seed: int) -> None:
    settings = random_settings(np.random.default_rng(seed))
    place: dict[str, Any] = {"seed": seed, "position": 3, "stream": "row", **on(engine)}
    place["draw"] = "inverse"  # filters decide how a race is run
    filtered = filter_logits(ROWS, **settings, **on(engine))
    expected = sample(ROWS, **settings, **place).tokens
    assert np.array_equal(
        sample(filtered, temperature=settings["temperature"], **place).tokens, expected
    )
    found = kept_set(ROWS, **settings)
    kept = np.zeros(ROWS.shape, bool)
    for b, tokens in enumerate(row_parts(found)):
        kept[b, tokens] = True
    assert np.array_equal(filtered, np.where(kept, ROWS, -np.inf))


def test_filtered_in_place_and_elsewhere() -> None:
    expected = filter_logits(ROWS, top_k=5)
    rows = ROWS.copy()
    assert filter_logits(rows, top_k=5, out=rows) is rows
    assert np.array_equal(rows, expected)
    memory = np.zeros((6, 9000), np.float32)
    memory[:5] = ROWS
    filter_logits(memory[:5], top_k=5, out=memory[1:])
    assert np.array_equal(memory[1:], expected)
    apart = np.empty((9000, 5), np.float32).T
    filter_logits(ROWS, top_k=5, out=apart)
    assert np.array_equal(apart, expected)
    row = np.empty(9000, np.float32)
    assert filter_logits(ROWS[0], top_k=5, out=row) is row
    assert np.array_equal(row, expected[0])


def test_a_bad_row_leaves_out_as_it_was() -> None:
    rows = ROWS.copy()
    rows[4, 0] = np.nan
    before = rows.copy()
    with pytest.raises(ValueError, match="row 4"):
        filter_logits(rows, top_k=1, out=rows)
    assert bits(rows) == bits(before)


def test_kept_logits_keep_their_bits() -> None:
    row = np.array([-0.0, 1e-40, -3.0, -9.0], np.float32)
    assert bits(filter_logits(row, top_k=3)) == bits(np.array([-0.0, 1e-40, -3, -np.inf], "f4"))


def test_padding_is_filtered_out() -> None:
    padded = filter_logits(ROWS, valid_vocab=100, top_k=3)
    assert padded.shape == ROWS.shape
    assert np.array_equal(padded[:, :100], filter_logits(ROWS[:, :100], top_k=3))
    assert np.all(padded[:, 100:] == -np.inf)


def test_adjusted_logits_are_kept_adjusted() -> None:
    row = np.array([1.0, 2.0, 3.0, 4.0], np.float16)
    found = filter_logits(row, top_k=2, bias={0: 4.5}, output=[3], presence_penalty=2.0)
    assert found.dtype == np.float16
    assert found.tolist() == [5.5, -np.inf, 3.0, -np.inf]
    short = filter_logits(row, mask=np.array([True, False]), short_mask="ban")
    assert short.tolist() == [1.0, *[-np.inf] * 3]


@pytest.mark.parametrize("value", [70000.0, -70000.0])
def test_an_adjusted_logit_must_fit_the_dtype(value: float) -> None:
    row = np.zeros((2, 4), np.float16)
    out = row.copy()
    with pytest.raises(ValueError, match=rf"got {value} for token 3 of row 0 \(pass them in"):
        filter_logits(row, bias=[{3: value}, None], out=out)
    assert np.all(out == 0)
    filter_logits(row.astype(np.float32), bias={3: value})


# ---------------------------------------------------------------- forms of tensors and bfloat16


@with_torch
@pytest.mark.torch
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_kept_sets_of_tensors(name: str) -> None:
    dtype = getattr(torch, name)
    tensor = torch.tensor(ROWS, dtype=dtype)
    wide = tensor.float().numpy()
    kept, expected = kept_set(tensor, top_k=8, top_p=0.7), kept_set(wide, top_k=8, top_p=0.7)
    for part in ("tokens", "masses", "logits", "offsets", "probabilities"):
        found = getattr(kept, part)
        assert isinstance(found, torch.Tensor)
        assert found.tolist() == getattr(expected, part).tolist()
    for found, other in (
        (top_k(tensor, 5), top_k(wide, 5)),
        (top_k(tensor[0], 5), top_k(wide[0], 5)),
        (top_p(tensor, 0.4), top_p(wide, 0.4)),
    ):
        assert found.values.dtype == dtype
        assert found.values.tolist() == other.values.tolist()
        assert found.tokens.tolist() == other.tokens.tolist()
        assert found.offsets.tolist() == other.offsets.tolist()


@with_torch
@pytest.mark.torch
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_tensors_are_filtered(name: str) -> None:
    dtype = getattr(torch, name)
    tensor = torch.tensor(ROWS, dtype=dtype)
    expected = filter_logits(tensor.float().numpy(), top_k=5, min_p=0.1).tolist()
    found = filter_logits(tensor, top_k=5, min_p=0.1)
    assert isinstance(found, torch.Tensor)
    assert found.dtype == dtype
    assert found.tolist() == expected
    assert filter_logits(tensor, top_k=5, min_p=0.1, out=tensor) is tensor
    assert tensor.tolist() == expected
    apart = torch.empty(9000, 5, dtype=dtype).T
    filter_logits(tensor, out=apart)
    assert apart.tolist() == expected


@with_torch
@pytest.mark.torch
def test_top_k_is_that_of_torch() -> None:
    distinct = torch.from_numpy(RNG.permutation(5000).astype(np.float32)).reshape(2, 2500)
    found, expected = top_k(distinct, 60), torch.topk(distinct, 60)
    assert torch.equal(found.values, expected.values)
    assert torch.equal(found.tokens, expected.indices)
    out = (torch.empty(2, 60, dtype=torch.bfloat16), torch.empty(2, 60, dtype=torch.int64))
    written = top_k(distinct.to(torch.bfloat16), 60, out=out)
    assert written.values is out[0]
    assert torch.equal(out[0], torch.topk(distinct.to(torch.bfloat16), 60).values)


@with_torch
@pytest.mark.torch
def test_adjusted_bfloat16_is_rounded_to_nearest_even() -> None:
    values = (RNG.normal(size=4000) * 50).astype(np.float32)
    bias = (np.arange(4000), values)
    found = filter_logits(torch.zeros(4000, dtype=torch.bfloat16), bias=bias)
    assert torch.equal(found, torch.from_numpy(values).to(torch.bfloat16))
    with pytest.raises(ValueError, match="must have a dtype that holds them"):
        filter_logits(torch.zeros(4, dtype=torch.bfloat16), bias={1: 3.4e38})


@with_ml_dtypes
def test_arrays_of_ml_dtypes() -> None:
    rows = ROWS.astype(ml_dtypes.bfloat16)
    wide = rows.astype(np.float32)
    filtered = filter_logits(rows, top_k=4)
    assert filtered.dtype == rows.dtype
    assert filtered.tolist() == filter_logits(wide, top_k=4).tolist()
    assert top_k(rows, 4).values.dtype == rows.dtype
    assert filter_logits(rows, top_k=4, out=rows) is rows
    assert rows.tolist() == filtered.tolist()
