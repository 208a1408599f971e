"""Functions of whole rows and of kept sets: what they return, in what form, and what they leave."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from support import Engine

import fastsample
from fastsample import (
    filter_logits,
    kept_set,
    log_softmax,
    logsumexp,
    reference,
    reference_laws,
    sample,
    softmax,
    top_k,
    top_p,
)

try:
    import torch
except ModuleNotFoundError:
    torch = None
try:
    import ml_dtypes
except ModuleNotFoundError:
    ml_dtypes = None

RNG = np.random.default_rng(31)
ROWS = (RNG.normal(size=(5, 9000)) * 4).astype(np.float32)
ROWS[1, ::3] = -np.inf
ROWS[2, 10:30] = 9.5  # ties at the top
TEMPERATURES = [0.3, 1.0, 0.0, 2.5, 1e-20]
WHOLE_ROWS = (softmax, log_softmax, logsumexp)
with_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")


def on(engine: Engine) -> dict[str, Any]:
    return {"engine": engine.name, "isa": engine.isa}


def bits(array: Any) -> Any:
    """The bits of an array, so that nan, -0 and +0 are compared as they are."""
    array = np.asarray(array)
    return array.view(f"u{array.itemsize}").tolist()


def row_parts(found: Any, part: str = "tokens") -> list[list[Any]]:
    """One list per row, of a result with offsets."""
    flat = np.asarray(getattr(found, part)).reshape(-1)
    ends = np.asarray(found.offsets).tolist()
    return [flat[a:b].tolist() for a, b in pairwise(ends)]


def frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


# ---------------------------------------------------------------- whole rows: values


@pytest.mark.parametrize("function", WHOLE_ROWS)
def test_whole_rows_are_those_of_the_rule(engine: Engine, function: Callable[..., Any]) -> None:
    temperatures = [t or 0.7 for t in TEMPERATURES] if function is logsumexp else TEMPERATURES
    law = getattr(reference_laws, function.__name__)
    expected = [law(row, t) for row, t in zip(ROWS, temperatures, strict=True)]
    found = function(ROWS, temperatures, **on(engine))
    assert bits(found) == bits(np.array(expected, found.dtype))
    alone = [function(row, t, **on(engine)) for row, t in zip(ROWS, temperatures, strict=True)]
    assert bits(np.stack(alone)) == bits(found)


@pytest.mark.parametrize("n_threads", [1, 2, 7])
@pytest.mark.parametrize("function", WHOLE_ROWS)
def test_threads_change_nothing(function: Callable[..., Any], n_threads: int) -> None:
    assert bits(function(ROWS, 0.7, n_threads=n_threads)) == bits(function(ROWS, 0.7))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_whole_rows_are_true(temperature: float) -> None:
    x = ROWS.astype(np.float64) / temperature
    total = np.log(np.exp(x - x.max(1, keepdims=True)).sum(1)) + x.max(1)
    law = x - total[:, None]
    assert np.allclose(logsumexp(ROWS, temperature), total, rtol=0, atol=1e-6)
    assert np.allclose(log_softmax(ROWS, temperature), law, rtol=1e-6, atol=1e-6)
    found, true = softmax(ROWS, temperature), np.exp(law)
    assert np.allclose(found.sum(1, dtype=np.float64), 1, rtol=0, atol=1e-6)
    steps_down = np.log2(true.max(1, keepdims=True)) - law / np.log(2)
    bound = true * (np.where(steps_down < 126, steps_down, 0) + 4) * 2.0**-23 + 2.0**-126
    assert np.all(np.abs(found - true) <= bound)


def test_temperature_0_is_all_for_the_first_token() -> None:
    row = np.array([1, 3, 3, -np.inf], np.float32)
    assert softmax(row, 0).tolist() == [0, 1, 0, 0]
    assert log_softmax(row, 0).tolist() == [-np.inf, 0, -np.inf, -np.inf]


def test_log_softmax_is_the_tempered_law() -> None:
    told = sample(ROWS, temperature=0.7, logprobs=4, form="tempered")
    law = np.take_along_axis(log_softmax(ROWS, 0.7), told.top_tokens, 1)
    assert np.array_equal(law, told.top_logprobs.astype(np.float32))


# ---------------------------------------------------------------- whole rows: forms


@pytest.mark.parametrize("function", WHOLE_ROWS)
def test_shapes_and_dtypes(function: Callable[..., Any]) -> None:
    dtype = np.float64 if function is logsumexp else np.float32
    for logits in (ROWS, ROWS[0], ROWS[:0], ROWS[:, ::2], ROWS[:, 1:2].astype(np.float16)):
        found = function(logits)
        assert isinstance(found, np.ndarray)
        assert found.dtype == dtype
        assert found.shape == (logits.shape[:-1] if function is logsumexp else logits.shape)


@pytest.mark.parametrize("function", WHOLE_ROWS)
def test_dtypes_of_equal_values_have_equal_answers(
    engine: Engine, function: Callable[..., Any]
) -> None:
    halves = ROWS.astype(np.float16)
    expected = bits(function(halves.astype(np.float32), **on(engine)))
    assert bits(function(halves, **on(engine))) == expected
    assert bits(function(np.asfortranarray(halves), **on(engine))) == expected


@with_torch
@pytest.mark.torch
@pytest.mark.parametrize("function", WHOLE_ROWS)
def test_a_tensor_gives_a_tensor(function: Callable[..., Any]) -> None:
    tensor = torch.from_numpy(ROWS).to(torch.bfloat16)
    wide = tensor.float()
    for one, other in ((tensor, wide), (tensor[0], wide[0]), (tensor[:, ::2], wide[:, ::2])):
        found = function(one)
        assert isinstance(found, torch.Tensor)
        assert bits(found) == bits(function(other.numpy()))
    out = torch.empty(ROWS.shape[0], dtype=torch.float64) if function is logsumexp else wide
    assert function(wide, out=out) is out
    assert bits(out) == bits(function(tensor))


@pytest.mark.parametrize("function", WHOLE_ROWS)
@pytest.mark.parametrize("layout", ["as it is", "apart", "reversed", "unaligned"])
def test_out_may_lie_anywhere(engine: Engine, function: Callable[..., Any], layout: str) -> None:
    expected = function(ROWS, 0.9, **on(engine))
    out = np.empty_like(expected)
    if layout == "apart":
        out = np.empty((*expected.shape, 2), expected.dtype)[..., 1]
    elif layout == "reversed":
        out = out[::-1]
    elif layout == "unaligned":
        memory = np.empty(expected.nbytes + 1, np.uint8)[1:]
        out = memory.view(expected.dtype).reshape(expected.shape)
    assert function(ROWS, 0.9, out=out, **on(engine)) is out
    assert bits(np.ascontiguousarray(out)) == bits(expected)


@pytest.mark.parametrize("function", [softmax, log_softmax])
def test_out_may_share_memory(engine: Engine, function: Callable[..., Any]) -> None:
    expected = bits(function(ROWS, 0.9, **on(engine)))
    memory = np.zeros((7, 9000), np.float32)
    for first in range(3):
        memory[1:6] = ROWS
        out = memory[first : first + 5]
        function(memory[1:6], 0.9, out=out, **on(engine))
        assert bits(out) == expected
    flat = np.zeros(ROWS.size + 3, np.float32)
    flat[: ROWS.size] = ROWS.reshape(-1)
    out = flat[3:].reshape(ROWS.shape)
    function(flat[: ROWS.size].reshape(ROWS.shape), 0.9, out=out, **on(engine))
    assert bits(out) == expected


@pytest.mark.parametrize("function", WHOLE_ROWS)
@pytest.mark.parametrize(
    ("bad", "part"),
    [
        (np.nan, r"row 3 holds nan at token 77"),
        (np.inf, r"row 3 holds inf at token 77"),
        (None, r"row 3 is -inf at every token"),
    ],
)
def test_a_bad_row_is_an_error_and_nothing_is_written(
    engine: Engine, function: Callable[..., Any], bad: float | None, part: str
) -> None:
    rows = ROWS.copy()
    rows[3, slice(None) if bad is None else 77] = -np.inf if bad is None else bad
    with pytest.raises(ValueError, match=part):
        function(rows, **on(engine))
    out = np.full(5 if function is logsumexp else ROWS.shape, 7, function(ROWS).dtype)
    with pytest.raises(ValueError, match=part):
        function(rows, out=out, **on(engine))
    assert np.all(out == 7)
    if function is not logsumexp:
        before = rows.copy()
        with pytest.raises(ValueError, match=part):
            function(rows, out=rows, **on(engine))
        assert bits(rows) == bits(before)


OUT_MISTAKES = [
    (np.empty((5, 9000)), TypeError, "`out` must be float32 on the CPU, got float64"),
    ([0.0], TypeError, "`out` must be a numpy.ndarray"),
    (np.empty((5, 8999), np.float32), ValueError, r"`out` must have the shape of the answer"),
    (frozen(np.empty((5, 9000), np.float32)), ValueError, "`out` must be writable"),
]


@pytest.mark.parametrize(("out", "error", "part"), OUT_MISTAKES)
@pytest.mark.parametrize("function", [softmax, log_softmax, filter_logits])
def test_out_is_checked(
    function: Callable[..., Any], out: Any, error: type[Exception], part: str
) -> None:
    with pytest.raises(error, match=part):
        function(ROWS, out=out)


@pytest.mark.parametrize(
    ("call", "error", "part"),
    [
        (lambda: softmax(ROWS, -1.0), ValueError, "`temperature` must be 0 or a finite number > 0"),
        (lambda: logsumexp(ROWS, 0.0), ValueError, "`temperature` must be a finite number > 0"),
        (lambda: logsumexp(ROWS, [1, 1, 0, 1, 1]), ValueError, "got 0.0 at row 2"),
        (lambda: softmax(ROWS.astype(np.float64)), TypeError, "`logits` must be float32, float16"),
        (lambda: softmax(ROWS, engine="quick"), ValueError, "`engine` must be"),
        (lambda: softmax(ROWS, n_threads=0), ValueError, "`n_threads` must be in"),
        (lambda: top_k(ROWS, 0), ValueError, r"`k` must be in \[1, V\] = \[1, 9000\], got 0"),
        (lambda: top_k(ROWS, [1, 2, 3, 9001, 1]), ValueError, "got 9001 at row 3"),
        (lambda: top_k(ROWS, 2.0), TypeError, "`k` must be an integer"),
        (lambda: top_k(ROWS, [1, 2]), ValueError, "`k` must be a scalar or have shape"),
        (lambda: top_p(ROWS, 1.5), ValueError, r"`p` must be in \[0, 1\], got 1.5"),
        (lambda: top_p(ROWS, [0.5, 1.5, 0, 0, 0]), ValueError, "got 1.5 at row 1"),
        (lambda: top_p(ROWS, 0.5, -1.0), ValueError, "`temperature` must be"),
        (lambda: kept_set(ROWS, min_p=2.0), ValueError, "`min_p` must be in"),
        (lambda: kept_set(ROWS, bias={9000: 1.0}), ValueError, "`bias` must hold tokens in"),
    ],
)
def test_mistakes_are_named(call: Callable[[], Any], error: type[Exception], part: str) -> None:
    with pytest.raises(error, match=part):
        call()


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
    assert row_parts(found) == [seen.order[: seen.kept].tolist() for seen in expected]
    assert row_parts(found, "values")[0] == ROWS[0, row_parts(found)[0]].tolist()


# ---------------------------------------------------------------- kept sets


def random_settings(rng: np.random.Generator) -> dict[str, Any]:
    stages = tuple(rng.permutation(reference.STAGES).tolist())
    return {
        "temperature": float(rng.choice([0.0, 0.4, 1.0, 1.7])),
        "top_k": int(rng.choice([0, 1, 40, 700])),
        "top_p": float(rng.choice([1.0, 0.95, 0.4])),
        "min_p": float(rng.choice([0.0, 0.02, 0.5])),
        "min_keep": int(rng.choice([1, 3])),
        "stages": stages,
    }


@pytest.mark.parametrize("seed", range(12))
def test_kept_sets_are_those_of_the_rule(engine: Engine, seed: int) -> None:
    rng = np.random.default_rng(seed)
    settings = random_settings(rng)
    found = kept_set(ROWS, **settings, **on(engine))
    seen = [reference.trace(row, **settings) for row in ROWS]
    assert row_parts(found) == [one.order[: one.kept].tolist() for one in seen]
    assert row_parts(found, "masses") == [one.mass[: one.kept].tolist() for one in seen]
    assert row_parts(found, "logits") == [
        row[one.order[: one.kept]].tolist() for row, one in zip(ROWS, seen, strict=True)
    ]
    kept_count = sample(ROWS, **settings, seed=1, position=0, stream="row").kept_count
    assert np.diff(found.offsets).tolist() == kept_count.tolist()


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


def test_probabilities_are_the_law_that_is_drawn_from() -> None:
    found = kept_set(ROWS, temperature=0.8, top_k=6)
    told = sample(ROWS, temperature=0.8, top_k=6, logprobs=6, form="processed")
    assert np.allclose(np.log(found.probabilities.reshape(5, 6)), told.top_logprobs, atol=1e-12)
    assert np.allclose(found.probabilities.reshape(5, 6).sum(1), 1, rtol=0, atol=1e-15)


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


# ---------------------------------------------------------------- filter_logits


@pytest.mark.parametrize("seed", range(6))
def test_filtered_logits_are_drawn_from_alike(engine: Engine, seed: int) -> None:
    settings = random_settings(np.random.default_rng(seed))
    place: dict[str, Any] = {"seed": seed, "position": 3, "stream": "row", **on(engine)}
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


def test_kept_logits_come_bit_for_bit() -> None:
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
    assert filter_logits(row, mask=np.array([True, False])).tolist() == [1.0, *[-np.inf] * 3]


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
    tensor = torch.from_numpy(ROWS).to(dtype)
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
    tensor = torch.from_numpy(ROWS).to(dtype)
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


@with_torch
@pytest.mark.torch
def test_adjusted_bfloat16_is_rounded_to_nearest_even() -> None:
    values = (RNG.normal(size=4000) * 50).astype(np.float32)
    bias = (np.arange(4000), values)
    found = filter_logits(torch.zeros(4000, dtype=torch.bfloat16), bias=bias)
    assert torch.equal(found, torch.from_numpy(values).to(torch.bfloat16))
    with pytest.raises(ValueError, match="must have a dtype that holds them"):
        filter_logits(torch.zeros(4, dtype=torch.bfloat16), bias={1: 3.4e38})


@pytest.mark.skipif(ml_dtypes is None, reason="ml_dtypes is not installed")
def test_arrays_of_ml_dtypes() -> None:
    rows = ROWS.astype(ml_dtypes.bfloat16)
    wide = rows.astype(np.float32)
    filtered = filter_logits(rows, top_k=4)
    assert filtered.dtype == rows.dtype
    assert filtered.tolist() == filter_logits(wide, top_k=4).tolist()
    assert top_k(rows, 4).values.dtype == rows.dtype
    assert bits(softmax(rows)) == bits(softmax(wide))
    assert filter_logits(rows, top_k=4, out=rows) is rows
    assert rows.tolist() == filtered.tolist()


def test_every_function_is_public() -> None:
    names = ("softmax", "log_softmax", "logsumexp", "top_k", "top_p", "kept_set", "filter_logits")
    assert all(name in fastsample.__all__ for name in names)
