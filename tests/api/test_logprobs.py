"""Log-probabilities, ranks and top tokens in results of `sample`; several draws of one row."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from fastsample import SampleResult, sample
from tests.support.case_loop import each
from tests.support.engines import Engine

RNG = np.random.default_rng(31)
V = 400
LOGITS = (RNG.normal(size=(5, V)) * 3).astype(np.float32)
LOGITS[1, ::3] = -np.inf
LOGITS[2] = np.rint(LOGITS[2])
MODES = ("raw", "tempered", "processed")
PLACE: dict[str, Any] = {"seed": 3, "position": 9, "stream": "row"}
CHAIN: dict[str, Any] = {"temperature": 0.7, "top_k": 60, "top_p": 0.95, "min_p": 0.01}


def on(engine: Engine, logits: Any, **arguments: Any) -> SampleResult:
    return sample(logits, engine=engine.name, isa=engine.isa, **{**PLACE, **arguments})


def log_softmax(rows: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    scaled = rows.astype(np.float64) / temperature
    scaled -= scaled.max(-1, keepdims=True)
    logprobs: np.ndarray = scaled - np.log(np.exp(scaled).sum(-1, keepdims=True))
    return logprobs


def at(rows: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """The entries of each row at its tokens."""
    return np.take_along_axis(rows, tokens.reshape(len(rows), -1), 1).reshape(tokens.shape)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("form", ["raw", "tempered"])
def test_raw_and_tempered_logprobs(engine: Engine, form: str) -> None:
    result = on(engine, LOGITS, **CHAIN, logprobs=V, logprobs_mode=form)
    logprobs = log_softmax(LOGITS, 1.0 if form == "raw" else 0.7)
    assert np.allclose(result.logprobs, at(logprobs, result.tokens), rtol=0, atol=2e-6)
    assert np.allclose(result.top_logprobs, at(logprobs, result.top_tokens), rtol=0, atol=2e-6)


def test_processed_logprobs(engine: Engine) -> None:
    result = on(engine, LOGITS, **CHAIN, logprobs=V, logprobs_mode="processed", kept_count=True)
    kept = np.isfinite(result.top_logprobs)
    assert kept.sum(1).tolist() == result.kept_count.tolist()
    assert np.allclose(np.exp(result.top_logprobs).sum(1), 1, rtol=0, atol=1e-6)
    full = at(log_softmax(LOGITS, 0.7), result.top_tokens)
    share = np.log(np.where(kept, np.exp(full), 0).sum(1, keepdims=True))
    expected = np.where(kept, full - share, -np.inf)
    assert np.allclose(result.top_logprobs, expected, rtol=0, atol=2e-6)


def test_raw_ones_depend_on_the_row_alone(engine: Engine) -> None:
    settings = [
        {"temperature": 0},
        {"temperature": 0.7},
        {"temperature": 1.5},
        {"top_p": 0.5},
        {"top_k": 3, "min_p": 0.5},
        {"bias": {3: 9.0}, "mask": np.arange(V) % 2 == 0},
        {"output": [[3, 3, 3]] * 5, "repetition_penalty": 2.0},
    ]
    results = [on(engine, LOGITS, logprobs=7, logprobs_mode=MODES, **one) for one in settings]
    for result in results:
        assert np.array_equal(result.top_tokens[0], results[0].top_tokens[0])
        assert np.array_equal(result.top_logprobs[0], results[0].top_logprobs[0])
    assert len({result.top_logprobs[2].tobytes() for result in results}) == len(results)


def test_temperature_0(engine: Engine) -> None:
    result = on(engine, LOGITS, temperature=0, logprobs=3, logprobs_mode=MODES)
    assert result.ranks.tolist() == [[1] * 5] * 3
    assert result.logprobs[1:].tolist() == [[0.0] * 5] * 2
    assert result.top_logprobs[1:].tolist() == [[[0.0, -np.inf, -np.inf]] * 5] * 2
    assert np.isfinite(result.top_logprobs[0]).all()


def test_ranks_and_top_tokens_are_in_the_order_of_the_rule(engine: Engine) -> None:
    order = np.lexsort((np.broadcast_to(np.arange(V), LOGITS.shape), -LOGITS.astype(np.float64)))
    result = on(engine, LOGITS, temperature=3.0, logprobs=V, logprobs_mode=MODES)
    for form in range(3):
        assert np.array_equal(result.top_tokens[form], order)
        rank = np.argmax(order == result.tokens[:, None], axis=1) + 1
        assert result.ranks[form].tolist() == rank.tolist()


def test_ranks_follow_the_row_of_their_form(engine: Engine) -> None:
    result = on(engine, LOGITS, temperature=0, bias={17: 1e4}, logprobs=0, logprobs_mode=MODES)
    assert result.tokens.tolist() == [17] * 5
    assert result.ranks[1:].tolist() == [[1] * 5] * 2
    assert (result.ranks[0] > 1).all()


def test_logprobs_do_not_change_the_draw(engine: Engine) -> None:
    plain = on(engine, LOGITS, **CHAIN, kept_count=True)
    found = on(engine, LOGITS, **CHAIN, kept_count=True, logprobs=5, logprobs_mode=MODES)
    assert found.tokens.tolist() == plain.tokens.tolist()
    assert found.kept_count.tolist() == plain.kept_count.tolist()


# ---------------------------------------------------------------- shapes

SHAPES = [
    # logprobs, form, axes before and after those of the rows
    (0, "raw", (), 0),
    (6, "processed", (), 6),
    (0, ("raw",), (1,), 0),
    (6, ("processed", "raw"), (2,), 6),
    (V, MODES, (3,), V),
]


@each(("logprobs", "form", "before", "after"), SHAPES)
@each("rows", [LOGITS[0], LOGITS, LOGITS[:1], LOGITS[:0]])
def test_shapes(
    engine: Engine, rows: Any, logprobs: int, form: Any, before: tuple[int, ...], after: int
) -> None:
    shape = rows.shape[:-1]
    how: dict[str, Any] = {"kept_count": True} | ({"stream": 0} if rows.ndim == 1 else {})
    result = on(engine, rows, **CHAIN, **how, logprobs=logprobs, logprobs_mode=form)
    expected = {
        "tokens": (shape, np.int64),
        "logprobs": ((*before, *shape), np.float64),
        "ranks": ((*before, *shape), np.int64),
        "top_tokens": ((*before, *shape, after), np.int64),
        "top_logprobs": ((*before, *shape, after), np.float64),
        "kept_count": (shape, np.int64),
        "status": (shape, np.uint8),
    }
    for name, (want, dtype) in expected.items():
        array = getattr(result, name)
        assert (array.shape, array.dtype) == (want, dtype), name


def test_forms_have_the_order_of_the_argument(engine: Engine) -> None:
    both = on(engine, LOGITS, **CHAIN, logprobs=4, logprobs_mode=("processed", "raw"))
    for at_form, form in enumerate(("processed", "raw")):
        one = on(engine, LOGITS, **CHAIN, logprobs=4, logprobs_mode=form)
        assert both.logprobs[at_form].tolist() == one.logprobs.tolist()
        assert both.top_tokens[at_form].tolist() == one.top_tokens.tolist()
        assert both.top_logprobs[at_form].tolist() == one.top_logprobs.tolist()
        assert both.ranks[at_form].tolist() == one.ranks.tolist()


def test_no_logprobs_by_default() -> None:
    result = sample(LOGITS, logprobs_mode="processed")
    found = (result.logprobs, result.ranks, result.top_tokens, result.top_logprobs)
    assert found == (None,) * 4
    assert result.status.tolist() == [0] * 5


def test_results_are_the_callers_own() -> None:
    """No two calls share an array, whatever arrays are shared inside."""
    first, second = (sample(LOGITS, **PLACE, logprobs=0, kept_count=True) for _ in range(2))
    first.tokens[:] = first.status[:] = first.ranks[:] = first.kept_count[:] = 77
    assert 77 not in second.status
    assert 77 not in sample(LOGITS, **PLACE).status


# ---------------------------------------------------------------- several draws


@pytest.mark.parametrize("n", [1, 2, 7])
def test_draws_are_streams(engine: Engine, n: int) -> None:
    one = {**CHAIN, "stream": 5}
    drawn = on(engine, LOGITS[0], **one, n=n).tokens
    assert drawn.shape == (n,)
    alone = [int(on(engine, LOGITS[0], **{**one, "stream": 5 + i}).tokens) for i in range(n)]
    assert drawn.tolist() == alone


def test_draws_of_a_batch(engine: Engine) -> None:
    streams = [0, 10, 2**32 - 3, 7, 7]
    drawn = on(engine, LOGITS, **CHAIN, stream=streams, n=3).tokens
    assert drawn.shape == (5, 3)
    for b, stream in enumerate(streams):
        row = on(engine, LOGITS[b], **CHAIN, stream=stream, n=3).tokens
        assert drawn[b].tolist() == row.tolist()


def test_no_two_draws_by_row_share_a_stream(engine: Engine) -> None:
    flat = np.zeros((4, 2**14), np.float32)
    drawn = on(engine, flat, n=8).tokens
    assert len(set(drawn.ravel().tolist())) == 32
    apart = on(engine, flat, n=8, stream=[0, 8, 16, 24]).tokens
    assert drawn.tolist() == apart.tolist()


def test_out_of_several_draws(engine: Engine) -> None:
    out = np.full((5, 3), -5)
    result = on(engine, LOGITS, **CHAIN, n=3, out=out)
    assert result.tokens is out
    assert out.tolist() == on(engine, LOGITS, **CHAIN, n=3).tokens.tolist()


def test_top_tokens_of_a_row_that_changes_stay_inside_it() -> None:
    row = np.zeros(4_096, np.float32)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            row[1:] = -np.inf
            row[1:] = 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            found = sample(row, logprobs=4_096, logprobs_mode=("raw", "processed")).top_tokens
            assert found.min() >= 0 and found.max() < 4_096
    finally:
        stop.set()
        writer.join()
