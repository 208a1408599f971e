"""`logprob_tokens`: log-probabilities and ranks of given tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastsample import Sampler, SampleResult, SamplingParams, Status, sample
from tests.support.case_loop import each
from tests.support.engines import Engine, same_bits
from tests.support.random_requests import DTYPES
from tests.support.sample_calls import sample_on
from tests.support.sampler_schedules import widened

RNG = np.random.default_rng(41)
B, V = 4, 300
LOGITS = np.rint(RNG.normal(size=(B, V)) * 3).astype(np.float32)
LOGITS[1, ::3] = -np.inf
MODES = ("raw", "tempered", "processed")
TOKENS = [3, 0, 299, 3, 150]
CHAIN: dict[str, Any] = {"temperature": 0.7, "top_k": 60, "top_p": 0.9}
PROCESSORS: dict[str, Any] = {
    "mask": RNG.random((B, V)) < 0.8,
    "bias": {3: 2.5, 4: -np.inf},
    "prompt": [[1, 2], [3], [], [0]],
    "output": [[3, 3], [0], [9], [299]],
    "repetition_penalty": 1.3,
    "presence_penalty": 0.5,
}


def pick_from_all(engine: Engine, logits: Any, tokens: np.ndarray, **how: Any) -> Any:
    """What `logprobs` returns for some tokens, from a list of all: token_logprobs, token_ranks."""
    found = sample_on(engine, logits, **how, logprobs=how.get("valid_vocab", V))
    place = np.argsort(np.asarray(found.top_tokens), axis=-1)
    tokens = np.broadcast_to(tokens, (*place.shape[:-1], tokens.shape[-1]))
    ranks = np.take_along_axis(place, tokens, -1) + 1
    return np.take_along_axis(np.asarray(found.top_logprobs), ranks - 1, -1), ranks


# ---------------------------------------------------------------- values


@each(
    "how",
    [
        CHAIN,
        {**CHAIN, **PROCESSORS},
        {"temperature": 0, **PROCESSORS},
        {"temperature": 3.0, "valid_vocab": 260},
        {"top_k": 1},
        {"typical_p": 0.3, "temperature": 0.9},
    ],
)
@each("mode", [*MODES, MODES])
def test_they_are_those_of_the_top_tokens(engine: Engine, how: dict[str, Any], mode: Any) -> None:
    """All tokens, banned ones too, have the bits that `logprobs` gives them."""
    how = {**how, "logprobs_mode": mode}
    size = how.get("valid_vocab", V)
    tokens = RNG.permuted(np.tile(np.arange(size), (B, 1)), axis=1)
    found = sample_on(engine, LOGITS, **how, logprob_tokens=tokens)
    logprobs, ranks = pick_from_all(engine, LOGITS, tokens, **how)
    assert same_bits(found.token_logprobs, logprobs)
    assert same_bits(found.token_ranks, ranks)


def test_those_of_the_drawn_token(engine: Engine) -> None:
    how = {**CHAIN, **PROCESSORS, "logprobs_mode": MODES}
    drawn = sample_on(engine, LOGITS, **how, logprobs=0)
    found = sample_on(engine, LOGITS, **how, logprob_tokens=drawn.tokens[:, None], logprobs=0)
    assert same_bits(found.token_logprobs[..., 0], drawn.logprobs)
    assert same_bits(found.token_ranks[..., 0], drawn.ranks)
    assert same_bits(found.tokens, drawn.tokens)


def test_a_banned_token(engine: Engine) -> None:
    """-inf after section 2, and last in its order; raw as if there were no mask."""
    row = np.array([2.0, 1.0, 3.0, 0.0], np.float32)
    mask = np.array([True, False, True, False])
    how: dict[str, Any] = {"stream": 0, "mask": mask, "logprobs_mode": MODES}
    found = sample_on(engine, row, **how, logprob_tokens=[3, 1])
    assert found.token_logprobs[1:].tolist() == [[-np.inf, -np.inf]] * 2
    assert found.token_ranks.tolist() == [[4, 3], [4, 3], [4, 3]]
    plain = sample_on(engine, row, stream=0, logprob_tokens=[3, 1])
    assert same_bits(found.token_logprobs[0], plain.token_logprobs)


def test_a_row_that_is_invalid_before_its_mask(engine: Engine) -> None:
    row, mask = np.array([1, np.nan, 0], np.float32), np.array([True, False, True])
    how = {"mask": mask, "stream": 0, "logprobs_mode": ("raw", "processed")}
    found = sample_on(engine, row, **how, logprob_tokens=[0, 1])
    assert np.isnan(found.token_logprobs[0]).all()
    assert found.token_ranks.tolist() == [[0, 0], [1, 3]]
    assert found.token_logprobs[1, 1] == -np.inf


@each("dtype", list(DTYPES))
@each("seed", range(8))
def test_random_rows_against_the_reference(engine: Engine, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = DTYPES[dtype](rng, 3, 200)
    logits = widened(rows) if rows.dtype == np.uint16 else rows
    how = {**CHAIN, "logprobs_mode": MODES, "on_invalid": "mark", "n": int(rng.integers(1, 5))}
    tokens = rng.integers(-1, 200, (3, int(rng.integers(0, 30))))
    expected, found = (
        sample_on(one, logits, **how, logprobs=2, logprob_tokens=tokens)
        for one in (Engine("reference"), engine)
    )
    for name in ("tokens", "logprobs", "ranks", "top_tokens", "token_logprobs", "token_ranks"):
        assert same_bits(getattr(expected, name), getattr(found, name)), name


# ---------------------------------------------------------------- forms and shapes


def of_shared(tokens: Any) -> SampleResult:
    return sample(LOGITS, seed=1, position=0, stream="row", logprob_tokens=tokens)


@each(
    "tokens",
    [
        tuple(TOKENS),
        np.array(TOKENS),
        np.array(TOKENS, np.int32)[::1],
        np.array(TOKENS * 2, np.uint64)[:5],
        np.array([TOKENS, TOKENS]).T[:, 0],
        [np.int64(one) for one in TOKENS],
        [TOKENS] * B,
        [tuple(TOKENS)] * B,
        np.array([TOKENS] * B, np.int32),
        np.asfortranarray([TOKENS] * B),
        [np.array(TOKENS)] * B,
    ],
)
def test_forms(tokens: Any) -> None:
    expected, found = of_shared(TOKENS), of_shared(tokens)
    assert same_bits(found.token_logprobs, expected.token_logprobs)
    assert same_bits(found.token_ranks, expected.token_ranks)


def test_lists_of_their_own_lengths(engine: Engine) -> None:
    """The rest is nan and rank 0, as for -1."""
    ragged = sample_on(engine, LOGITS, logprob_tokens=[[3], None, TOKENS, []])
    filled = np.full((B, 5), -1)
    filled[0, 0], filled[2] = 3, TOKENS
    array = sample_on(engine, LOGITS, logprob_tokens=filled)
    for found in (ragged, array):
        assert np.array_equal(np.isnan(found.token_logprobs), filled < 0)
        assert np.array_equal(found.token_ranks == 0, filled < 0)
    assert same_bits(ragged.token_logprobs, array.token_logprobs)
    shared = sample_on(engine, LOGITS, logprob_tokens=TOKENS)
    assert same_bits(ragged.token_logprobs[2], shared.token_logprobs[2])


@each(
    ("rows", "tokens", "count"),
    [
        (LOGITS[0], TOKENS, 5),
        (LOGITS[0], [TOKENS], 5),
        (LOGITS[0], [], 0),
        (LOGITS, [], 0),
        (LOGITS, [[]] * B, 0),
        (LOGITS, [None] * B, 0),
        (LOGITS[:1], TOKENS, 5),
        (LOGITS[:0], TOKENS, 5),
        (LOGITS[:0], np.empty((0, 3), np.int64), 3),
    ],
)
@each("mode", ["raw", ("tempered", "raw")])
def test_shapes(engine: Engine, rows: np.ndarray, tokens: Any, count: int, mode: Any) -> None:
    stream: Any = 0 if rows.ndim == 1 else "row"
    found = sample_on(engine, rows, stream=stream, logprob_tokens=tokens, logprobs_mode=mode)
    before = () if mode == "raw" else (2,)
    assert found.token_logprobs.shape == (*before, *rows.shape[:-1], count)
    assert found.token_ranks.shape == found.token_logprobs.shape
    assert (found.token_logprobs.dtype, found.token_ranks.dtype) == (np.float64, np.int64)
    assert found.logprobs is found.ranks is found.top_tokens is found.top_logprobs is None


def test_none_without_the_argument(engine: Engine) -> None:
    found = sample_on(engine, LOGITS, logprobs=3)
    assert found.token_logprobs is found.token_ranks is None


def test_tensors(engine: Engine) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    expected = sample_on(engine, LOGITS, logprob_tokens=TOKENS, logprobs=1)
    for tokens in (TOKENS, torch.tensor(TOKENS), torch.tensor([TOKENS] * B, dtype=torch.int32)):
        found = sample_on(engine, torch.from_numpy(LOGITS), logprob_tokens=tokens, logprobs=1)
        assert same_bits(found.token_logprobs.numpy(), expected.token_logprobs)
        assert same_bits(found.token_ranks.numpy(), expected.token_ranks)


def test_it_is_read_once() -> None:
    """The caller's array may change, and is not written."""
    tokens = np.array([TOKENS] * B)
    tokens.flags.writeable = False
    assert same_bits(of_shared(tokens).token_ranks, of_shared(TOKENS).token_ranks)


# ---------------------------------------------------------------- marks


def test_a_row_with_a_bad_token_is_marked(engine: Engine) -> None:
    tokens = [[0], [V], [-2], [5]]
    found = sample_on(engine, LOGITS, logprob_tokens=tokens, logprobs=1, on_invalid="mark")
    assert found.status.tolist() == [0, Status.BAD_PARAM, Status.BAD_PARAM, 0]
    assert found.tokens[1:3].tolist() == [-1, -1]
    assert np.isnan(found.token_logprobs[:, 0]).tolist() == [False, True, True, False]
    with pytest.raises(ValueError, match=r"in \[0, 300\), got 300 \("):  # in the list of all rows
        sample_on(engine, LOGITS, logprob_tokens=[V], on_invalid="mark")
    padding = sample_on(
        engine, LOGITS, logprob_tokens=[[260]] + [[0]] * 3, valid_vocab=260, on_invalid="mark"
    )
    assert padding.status.tolist() == [Status.BAD_PARAM, 0, 0, 0]


def test_an_invalid_row(engine: Engine) -> None:
    rows = LOGITS.copy()
    rows[2, 7] = np.nan
    found = sample_on(engine, rows, logprob_tokens=TOKENS, logprobs_mode=MODES, on_invalid="mark")
    assert np.isnan(found.token_logprobs[:, 2]).all()
    assert (found.token_ranks[:, 2] == 0).all()
    assert not np.isnan(found.token_logprobs[:, [0, 1, 3]]).any()


# ---------------------------------------------------------------- a sampler


@each("how", [{}, {"logprobs": 2}, {"logprobs_mode": MODES, "kept_count": True}])
@each("tokens", [TOKENS, [TOKENS, [1] * 5], [[4], [5, 6]], np.array([[4], [-1]])])
def test_a_sampler(engine: Engine, how: dict[str, Any], tokens: Any) -> None:
    params = [SamplingParams(**CHAIN, seed=5), SamplingParams(temperature=0, presence_penalty=1)]
    sampler = Sampler(params, engine=engine.name, isa=engine.isa)
    for step in range(3):
        found = sampler.sample(LOGITS[:2], logprob_tokens=tokens, **how)
        for b, one in enumerate(params):
            sequence = sampler.sequence(b)
            expected = sample(
                LOGITS[b],
                temperature=one.temperature,
                top_k=one.top_k,
                top_p=one.top_p,
                presence_penalty=one.presence_penalty,
                output=sequence.output[:step],
                seed=sequence.seed,
                position=step,
                logprob_tokens=tokens[b] if np.ndim(tokens[0]) else tokens,
                engine="reference",
                **how,
            )
            assert int(found.tokens[b]) == int(expected.tokens)
            count = expected.token_ranks.shape[-1]
            for name in ("token_logprobs", "token_ranks"):
                mine = getattr(found, name)[..., b, :count]
                assert same_bits(np.ascontiguousarray(mine), getattr(expected, name)), name


@each("tokens", [[[4], [V]], [[4], [-2, 1]]])
def test_a_sampler_marks_a_row_with_a_bad_token(engine: Engine, tokens: Any) -> None:
    params = [SamplingParams(**CHAIN, seed=seed) for seed in (5, 6)]
    sampler = Sampler(params, engine=engine.name, isa=engine.isa)
    found = sampler.sample(LOGITS[:2], logprob_tokens=tokens, on_invalid="mark")
    alone = sample_on(engine, LOGITS[0], **CHAIN, seed=5, position=0, stream=0)
    assert found.status.tolist() == [0, Status.BAD_PARAM]
    assert found.tokens.tolist() == [int(alone.tokens), -1]
    assert np.isnan(found.token_logprobs[:, 0]).tolist() == [False, True]
    assert [sampler.sequence(number).position for number in sampler.ids] == [1, 0]
    with pytest.raises(ValueError, match=r"must hold tokens in \[0, 300\), got .* at row 1 \("):
        sampler.sample(LOGITS[:2], logprob_tokens=tokens)


# ---------------------------------------------------------------- several draws


@each("mode", ["raw", "processed", MODES])
@pytest.mark.parametrize("draw", [None, "inverse"])
def test_logprobs_of_several_draws(engine: Engine, mode: Any, draw: str | None) -> None:
    """Those of the draws of as many calls, one on each stream."""
    how = {**CHAIN, **PROCESSORS, "logprobs_mode": mode, "logprobs": 4, "draw": draw}
    if draw is None and not engine.has_race:
        pytest.skip("no race")
    found = sample_on(engine, LOGITS, **how, n=3, stream=[0, 9, 20, 40], logprob_tokens=[7])
    for i in range(3):
        one = sample_on(engine, LOGITS, **how, stream=[0 + i, 9 + i, 20 + i, 40 + i])
        assert same_bits(found.tokens[:, i].copy(), one.tokens)
        assert same_bits(found.logprobs[..., i].copy(), one.logprobs)
        assert same_bits(found.ranks[..., i].copy(), one.ranks)
        assert same_bits(found.top_tokens, one.top_tokens)
        assert same_bits(found.top_logprobs, one.top_logprobs)
    before = () if isinstance(mode, str) else (3,)
    assert found.token_ranks.shape == (*before, B, 1)


def test_many_draws(engine: Engine) -> None:
    found = sample_on(engine, LOGITS[0], temperature=2.0, stream=0, n=200, logprobs=V)
    place = np.argsort(found.top_tokens)[found.tokens]
    assert same_bits(found.logprobs, found.top_logprobs[place])
    assert same_bits(found.ranks, place + 1)


@each("rows", [LOGITS[0], LOGITS, LOGITS[:0]])
@each("n", [1, 2])
def test_shapes_of_several_draws(engine: Engine, rows: np.ndarray, n: int) -> None:
    how: dict[str, Any] = {"stream": 0 if rows.ndim == 1 else "row", "n": n, "logprobs": 2}
    found = sample_on(engine, rows, **how, logprobs_mode=("processed", "raw"))
    shape = rows.shape[:-1]
    assert found.logprobs.shape == found.ranks.shape == (2, *shape, n)
    assert found.top_tokens.shape == found.top_logprobs.shape == (2, *shape, 2)


def test_margins_of_several_draws(engine: Engine) -> None:
    how = {**CHAIN, "margin": True}
    found = sample_on(engine, LOGITS, **how, n=2, stream=[0, 4, 8, 12]).margin
    assert found.shape == (B, 2)
    for i in range(2):
        one = sample_on(engine, LOGITS, **how, stream=[0 + i, 4 + i, 8 + i, 12 + i]).margin
        assert same_bits(found[:, i].copy(), one)
