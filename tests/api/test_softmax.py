"""Functions of whole rows: what they return, in what form, and what they leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastsample
from fastsample import log_softmax, logsumexp, sample, softmax
from fastsample.engines.reference import softmax as reference_softmax
from tests.support.api_rows import (
    ROWS,
    TEMPERATURES,
    bits,
    frozen,
    ml_dtypes,
    on,
    torch,
    with_ml_dtypes,
    with_torch,
)
from tests.support.case_loop import each
from tests.support.engines import Engine

WHOLE_ROWS = (softmax, log_softmax, logsumexp)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("function", WHOLE_ROWS)
def test_results_are_the_reference_s(engine: Engine, function: Callable[..., Any]) -> None:
    temperatures = [t or 0.7 for t in TEMPERATURES] if function is logsumexp else TEMPERATURES
    of_reference = getattr(reference_softmax, function.__name__)
    expected = [of_reference(row, t) for row, t in zip(ROWS, temperatures, strict=True)]
    found = function(ROWS, temperatures, **on(engine))
    assert bits(found) == bits(np.array(expected, found.dtype))
    alone = [function(row, t, **on(engine)) for row, t in zip(ROWS, temperatures, strict=True)]
    assert bits(np.stack(alone)) == bits(found)


@pytest.mark.parametrize("n_threads", [1, 2, 7])
@pytest.mark.parametrize("function", WHOLE_ROWS)
def test_threads_change_nothing(function: Callable[..., Any], n_threads: int) -> None:
    assert bits(function(ROWS, 0.7, n_threads=n_threads)) == bits(function(ROWS, 0.7))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_results_are_close_to_float64(temperature: float) -> None:
    x = ROWS.astype(np.float64) / temperature
    total = np.log(np.exp(x - x.max(1, keepdims=True)).sum(1)) + x.max(1)
    logprobs = x - total[:, None]
    assert np.allclose(logsumexp(ROWS, temperature), total, rtol=0, atol=1e-6)
    assert np.allclose(log_softmax(ROWS, temperature), logprobs, rtol=1e-6, atol=1e-6)
    found, true = softmax(ROWS, temperature), np.exp(logprobs)
    assert np.allclose(found.sum(1, dtype=np.float64), 1, rtol=0, atol=1e-6)
    steps_down = np.log2(true.max(1, keepdims=True)) - logprobs / np.log(2)
    bound = true * (np.where(steps_down < 126, steps_down, 0) + 4) * 2.0**-23 + 2.0**-126
    assert np.all(np.abs(found - true) <= bound)


def test_temperature_0_is_all_for_the_first_token() -> None:
    row = np.array([1, 3, 3, -np.inf], np.float32)
    assert softmax(row, 0).tolist() == [0, 1, 0, 0]
    assert log_softmax(row, 0).tolist() == [-np.inf, 0, -np.inf, -np.inf]


def test_log_softmax_equals_tempered_logprobs() -> None:
    result = sample(ROWS, temperature=0.7, logprobs=4, logprobs_mode="tempered")
    logprobs = np.take_along_axis(log_softmax(ROWS, 0.7), result.top_tokens, 1)
    assert np.array_equal(logprobs, result.top_logprobs.astype(np.float32))


# ---------------------------------------------------------------- forms


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


@each("function", WHOLE_ROWS)
@each("layout", ["as it is", "apart", "reversed", "unaligned"])
def test_out_of_any_layout(engine: Engine, function: Callable[..., Any], layout: str) -> None:
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


@pytest.mark.parametrize("temperature", [0, 0.9])
@pytest.mark.parametrize("function", [softmax, log_softmax])
def test_out_may_share_memory(
    engine: Engine, function: Callable[..., Any], temperature: float
) -> None:
    rows = ROWS[:, :300].copy()
    rows[:, 77] = 20  # within a block: at temperature 0 its token is searched for in the row
    expected = bits(function(rows, temperature, **on(engine)))
    memory = np.zeros((7, 300), np.float32)
    for first in range(3):
        memory[1:6] = rows
        out = memory[first : first + 5]
        function(memory[1:6], temperature, out=out, **on(engine))
        assert bits(out) == expected
    flat = np.zeros(rows.size + 3, np.float32)
    flat[: rows.size] = rows.reshape(-1)
    out = flat[3:].reshape(rows.shape)
    function(flat[: rows.size].reshape(rows.shape), temperature, out=out, **on(engine))
    assert bits(out) == expected


@each("function", WHOLE_ROWS)
@each(
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
    (np.empty((5, 8999), np.float32), ValueError, r"`out` must have the shape of the result"),
    (frozen(np.empty((5, 9000), np.float32)), ValueError, "`out` must be writable"),
]


@pytest.mark.parametrize(("out", "error", "part"), OUT_MISTAKES)
@pytest.mark.parametrize("function", [softmax, log_softmax])
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
    ],
)
def test_invalid_arguments_are_errors(
    call: Callable[[], Any], error: type[Exception], part: str
) -> None:
    with pytest.raises(error, match=part):
        call()


@with_ml_dtypes
def test_arrays_of_ml_dtypes() -> None:
    rows = ROWS.astype(ml_dtypes.bfloat16)
    assert bits(softmax(rows)) == bits(softmax(rows.astype(np.float32)))


def test_every_function_is_public() -> None:
    names = ("softmax", "log_softmax", "logsumexp", "top_k", "top_p", "kept_set", "filter_logits")
    assert all(name in fastsample.__all__ for name in names)
