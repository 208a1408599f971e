"""`Sampler`: what it draws, how it is made, and what it tells."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from fastsample import Sampler, SamplingParams, sample
from tests.support.engines import Engine
from tests.support.sampler_steps import PARAMS, PENALISED, RNG, STEPS, on, tokens_of

# ---------------------------------------------------------------- what it draws


def test_steps_are_sample_at_each_position(engine: Engine) -> None:
    expected = [
        sample(
            logits,
            temperature=0.9,
            top_k=60,
            top_p=0.97,
            min_p=0.01,
            seed=21,
            position=position,
            stream="row",
        ).tokens.tolist()
        for position, logits in enumerate(STEPS)
    ]
    assert tokens_of(on(engine)) == expected


def test_one_row_gives_an_int(engine: Engine) -> None:
    sampler = on(engine)
    token = sampler(STEPS[0, 0])
    assert type(token) is int
    assert token == tokens_of(on(engine))[0][0]


def test_rows_give_an_array_of_their_own() -> None:
    sampler = Sampler(PARAMS, stream="row")
    first = sampler(STEPS[0])
    kept = first.copy()
    sampler(STEPS[1])
    assert first.dtype == np.int64
    assert np.array_equal(first, kept)


def test_greedy_steps_count_too() -> None:
    sampler = Sampler(temperature=0)
    sampler(STEPS[0, 0])
    assert sampler.position == 1


def test_an_empty_batch_does_not_fix_the_number_of_rows() -> None:
    sampler = Sampler(PARAMS, stream="row")
    assert sampler(STEPS[0, :0]).shape == (0,)
    assert sampler.position == 0
    assert tokens_of(sampler) == tokens_of(Sampler(PARAMS, stream="row"))


@pytest.mark.parametrize("name", ["float16", "columns apart"])
def test_rows_of_any_form(engine: Engine, name: str) -> None:
    halves = STEPS.astype(np.float16)
    steps = halves if name == "float16" else halves.astype(np.float32).transpose(2, 0, 1).copy()
    steps = steps if name == "float16" else steps.transpose(1, 2, 0)
    assert tokens_of(on(engine), steps) == tokens_of(on(engine), halves.astype(np.float32))


def test_padded_rows() -> None:
    padded = np.concatenate([STEPS, np.full((8, 4, 9), np.inf, np.float32)], axis=2)
    assert tokens_of(Sampler(PARAMS, stream="row", valid_vocab=200), padded) == tokens_of(
        Sampler(PARAMS, stream="row")
    )


def test_valid_vocab_is_read_once(engine: Engine) -> None:
    count = np.array(200)
    sampler = Sampler(PARAMS, stream="row", valid_vocab=count, engine=engine.name, isa=engine.isa)
    count[...] = 3
    copied = sampler.clone()
    assert tokens_of(sampler) == tokens_of(copied) == tokens_of(Sampler(PARAMS, stream="row"))


# ---------------------------------------------------------------- mask, bias, history


FIELDS = [field.name for field in fields(SamplingParams) if field.name != "seed"]


def by_sample(params: SamplingParams, logits: np.ndarray, **place: Any) -> list[int]:
    """Tokens of `sample`, with all arguments of a call."""
    chosen = {name: getattr(params, name) for name in FIELDS}
    return sample(logits, **chosen, seed=params.seed, stream="row", **place).tokens.tolist()


def test_mask_and_bias_of_a_call(engine: Engine) -> None:
    mask = RNG.random((4, 200)) < 0.3
    bias = [{3: 5.0}, None, {7: -np.inf}, {}]
    sampler = on(engine)
    sampler(STEPS[0], mask=mask)
    found = sampler(STEPS[1], mask=mask[0], bias=bias).tolist()
    assert found == by_sample(PARAMS, STEPS[1], position=1, mask=mask[0], bias=bias)


@pytest.mark.parametrize("prompt", [None, [5, 5, 9], [[5, 5, 9], [], [1], [2, 3]]])
def test_penalties_see_each_rows_own_tokens(engine: Engine, prompt: Any) -> None:
    sampler = Sampler(PENALISED, stream="row", prompt=prompt, engine=engine.name, isa=engine.isa)
    shared = prompt is None or isinstance(prompt[0], int)
    prompts = [prompt or []] * 4 if shared else prompt
    outputs: list[list[int]] = [[], [], [], []]
    for position, logits in enumerate(STEPS):
        history = {"prompt": prompts, "output": outputs}
        expected = by_sample(PENALISED, logits, position=position, **history)
        assert sampler(logits).tolist() == expected
        for output, token in zip(outputs, expected, strict=True):
            output.append(token)
    assert [sampler.sequence(b).output for b in range(4)] == outputs
    assert [sampler.sequence(b).prompt for b in range(4)] == prompts
    assert [sampler.sequence(b).stream for b in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["repetition", "frequency", "presence"])
def test_each_penalty_is_enough_for_a_history(name: str) -> None:
    row = np.zeros(3, np.float32)
    row[1] = 1.0
    sampler = Sampler(temperature=0, **{f"{name}_penalty": 9.0}, repetition_scope="output")
    assert [sampler(row), sampler(row)] == [1, 0 if name != "repetition" else 1]
    bare = Sampler(temperature=0)
    assert [bare(row), bare(row)] == [1, 1]


def test_accepted_tokens_count_as_drawn_ones(engine: Engine) -> None:
    sampler = Sampler(PENALISED, stream="row", engine=engine.name, isa=engine.isa)
    first = sampler(STEPS[0, 0])
    sampler.accept([8, 9])
    sampler.accept(8)
    assert sampler.position == 4
    assert sampler.sequence(0).output == [first, 8, 9, 8]
    expected = by_sample(PENALISED, STEPS[1, :1], position=4, output=[first, 8, 9, 8])
    assert sampler(STEPS[1, 0]) == expected[0]


def test_the_token_of_a_marked_row_is_skipped() -> None:
    spoilt = STEPS[0].copy()
    spoilt[2, 5] = np.nan
    drawn = Sampler(PARAMS, stream="row").sample(spoilt, on_invalid="mark").tokens
    other = Sampler(PARAMS, stream="row", prompt=[[]] * 4)
    other.accept(drawn)
    assert [other.sequence(b).output for b in range(4)] == [
        *([token] for token in drawn[:2].tolist()),
        [],
        [drawn[3]],
    ]
    assert [other.sequence(b).position for b in range(4)] == [1, 1, 0, 1]
    other.accept([-1, 8, -1], sequences=2)
    assert other.sequence(2).output == [8]


def test_continuations_accept_a_list_each() -> None:
    sampler = Sampler(PENALISED, stream="row")
    sampler.accept([4, 4])  # before the first call: they all continue it
    tokens = sampler(STEPS[0]).tolist()
    assert tokens == by_sample(PENALISED, STEPS[0], position=2, output=[[4, 4]] * 4)
    sampler.accept([1, [2, 2], [], np.array([3])])
    outputs = [[4, 4, tokens[0], 1], [4, 4, tokens[1], 2, 2], [4, 4, tokens[2]]]
    assert [sampler.sequence(b).output for b in range(3)] == outputs
    assert [sampler.sequence(b).position for b in range(4)] == [4, 5, 3, 4]
    with pytest.raises(ValueError, match=r"`position` must be the same for all sequences"):
        _ = sampler.position
    assert repr(sampler) == "Sampler(4 sequences)"
    expected = [
        by_sample(PENALISED, STEPS[1], position=len(output), output=[output] * 4)[b]
        for b, output in enumerate(outputs)
    ]
    assert sampler(STEPS[1]).tolist()[:3] == expected


def test_a_token_out_of_the_vocabulary_is_an_error_before_any_work() -> None:
    sampler = Sampler(PENALISED, stream="row", prompt=[3, 200])
    with pytest.raises(ValueError, match=r"sequence 0 must hold tokens in \[0, 200\), got 200"):
        sampler(STEPS[0, 0])
    assert sampler.position == 0
    Sampler(PARAMS, stream="row", prompt=[3, 200])(STEPS[0, 0])  # nothing looks at it


# ---------------------------------------------------------------- what it tells


@pytest.mark.parametrize("form", ["raw", ("processed", "tempered")])
def test_a_step_with_log_probabilities(engine: Engine, form: Any) -> None:
    sampler, expected = on(engine), tokens_of(on(engine))
    sampler(STEPS[0])
    result = sampler.sample(STEPS[1], logprobs=3, logprobs_mode=form, kept_count=True)
    assert result.tokens.tolist() == expected[1]
    chosen = {name: getattr(PARAMS, name) for name in FIELDS}
    place: dict[str, Any] = {"seed": 21, "position": 1, "stream": "row"}
    other = sample(STEPS[1], **chosen, **place, logprobs=3, logprobs_mode=form, kept_count=True)
    for name in ("logprobs", "ranks", "top_tokens", "top_logprobs", "kept_count", "status"):
        assert np.array_equal(getattr(result, name), getattr(other, name)), name
    assert result.seed == 21
    assert sampler(STEPS[2]).tolist() == expected[2]


def test_a_step_with_logits_alone() -> None:
    result = Sampler(PARAMS, stream="row").sample(STEPS[0, 0])
    assert result.tokens.shape == result.status.shape == ()
    assert result.logprobs is result.kept_count is result.margin is None
    assert Sampler(PARAMS, stream="row").sample(STEPS[0, :0]).tokens.shape == (0,)


def test_a_marked_row_stays_where_it_is(engine: Engine) -> None:
    sampler, expected = on(engine), tokens_of(on(engine))
    spoilt = STEPS[0].copy()
    spoilt[2, 5] = np.nan
    result = sampler.sample(spoilt, on_invalid="mark")
    assert result.status.tolist() == [0, 0, 1, 0]
    assert result.tokens.tolist() == [*expected[0][:2], -1, expected[0][3]]
    assert [sampler.sequence(b).position for b in range(4)] == [1, 1, 0, 1]
    assert sampler(STEPS[0, 2:3], sequences=2).tolist() == [expected[0][2]]
    assert tokens_of(sampler, STEPS[1:]) == expected[1:]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"on_invalid": "skip"}, "`on_invalid` must be"),
        ({"logprobs": 201}, "`logprobs` must be in"),
        ({"logprobs_mode": "cooked"}, "`logprobs_mode` must be some of"),
        ({"mask": np.zeros(200, bool)}, "is -inf at every token after mask"),
        ({"bias": {200: 1.0}}, "`bias` must hold tokens in"),
    ],
)
def test_an_error_in_a_step_changes_nothing(options: dict[str, Any], part: str) -> None:
    sampler, expected = Sampler(PARAMS, stream="row"), tokens_of(Sampler(PARAMS, stream="row"))
    sampler(STEPS[0])
    with pytest.raises(ValueError, match=part):
        sampler.sample(STEPS[1], **options)
    assert sampler.position == 1
    assert tokens_of(sampler, STEPS[1:]) == expected[1:]


# ---------------------------------------------------------------- how it is made


def test_keywords_win_over_params() -> None:
    assert Sampler(PARAMS, stream="row", top_k=3).params == replace(PARAMS, top_k=3)
    assert Sampler(temperature=0.5).params == SamplingParams(temperature=0.5)
    assert Sampler(PARAMS, stream="row").params == PARAMS


@pytest.mark.parametrize("name", ["temperature", "params", "seed", "topk"])
def test_parameters_are_fixed(name: str) -> None:
    sampler = Sampler(PARAMS, stream="row")
    with pytest.raises(AttributeError, match=rf"`{name}` .* are fixed \(make a new Sampler\)"):
        setattr(sampler, name, 0)
    assert sampler.params == PARAMS


def test_the_position_is_set_by_reset() -> None:
    with pytest.raises(AttributeError, match=r"call reset\(position\)"):
        Sampler(PARAMS, stream="row").position = 3


def test_a_seed_left_out_is_fresh_and_readable() -> None:
    one, other = Sampler(stream="row"), Sampler()
    assert one.seed != other.seed
    assert one.params.seed is None
    assert tokens_of(one) == tokens_of(Sampler(seed=one.seed, stream="row"))


def test_repr_shows_seed_and_position() -> None:
    sampler = Sampler(PARAMS, stream="row")
    sampler(STEPS[0])
    assert repr(sampler) == f"Sampler({PARAMS}, position=1)"
    fresh = Sampler()
    assert f"seed={fresh.seed}, " in repr(fresh)
