"""`Sampler`: how many sequences it has, and on which streams."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from fastsample import Sampler, SamplingParams, sample
from tests.support.engines import Engine
from tests.support.sampler_steps import PARAMS, STEPS, change_engine

ROWS = STEPS[0]


def streams_of(sampler: Sampler) -> list[int]:
    return [sampler.sequence(number).stream for number in sampler.ids]


@pytest.mark.parametrize("is_prepared", [True, False])
def test_a_sampler_of_one_sequence_refuses_more_rows(engine: Engine, is_prepared: bool) -> None:
    """A draft's k + 1 rows are positions: drawn as continuations, its tokens would be wrong."""
    sampler = Sampler(PARAMS, engine=engine.name, isa=engine.isa)
    if not is_prepared:
        change_engine(sampler, make_step=None)
    for position in range(2):
        for draw in (sampler, sampler.sample):
            with pytest.raises(ValueError, match="must have one row for a Sampler of one sequ"):
                draw(ROWS)
        assert (sampler.ids, sampler.position) == ((0,), position)
        expected = sample(ROWS[0], **settings(), position=position).tokens
        assert sampler(ROWS[0]) == expected
    assert sampler(ROWS[:1]).shape == (1,)
    with pytest.raises(ValueError, match="must have 0 rows"):
        sampler(ROWS, sequences=[])
    sampler.reset()
    with pytest.raises(ValueError, match="got 4 "):
        sampler.clone()(ROWS)


def settings() -> dict[str, Any]:
    names = ("temperature", "top_k", "top_p", "min_p", "seed")
    return {name: getattr(PARAMS, name) for name in names}


def test_the_way_out_for_drafts_draws_the_positions_of_the_sampler() -> None:
    sampler, plain = Sampler(PARAMS, stream=5), Sampler(PARAMS, stream=5)
    sampler(ROWS[0])
    with pytest.raises(ValueError, match="must have one row") as error:
        sampler(STEPS[1])
    hint = "seed=sampler.seed, stream=5, position=np.arange(1, 5)"
    assert f"fastsample.sample(logits, {hint})" in str(error.value)
    options = eval(f"dict({hint})", {"sampler": sampler, "np": np})
    drawn = sample(STEPS[1], **settings() | options).tokens.tolist()
    plain(ROWS[0])
    assert drawn == [plain(row) for row in STEPS[1]]
    sampler.accept(drawn)
    assert sampler.sequence(0).output == plain.sequence(0).output
    assert sampler.position == plain.position == 5


def test_stream_row_makes_continuations(engine: Engine) -> None:
    sampler = Sampler(PARAMS, stream="row", engine=engine.name, isa=engine.isa)
    expected = sample(ROWS, **settings(), position=0, stream="row").tokens.tolist()
    assert sampler(ROWS).tolist() == expected
    assert streams_of(sampler) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"must have 4 rows.*reset\(\) starts again"):
        sampler(ROWS[:2])
    sampler.reset()
    assert sampler(ROWS[:2]).tolist() == expected[:2]
    twin = pickle.loads(pickle.dumps(sampler))
    twin.reset()
    assert twin(ROWS).tolist() == expected


def test_prompts_say_how_many_continuations_there_are() -> None:
    sampler = Sampler(PARAMS, stream="row", prompt=[[1], [2]])
    for _ in range(2):
        with pytest.raises(ValueError, match=r"must have 2 rows") as caught:
            sampler(ROWS)
        assert "reset()" not in str(caught.value)
        sampler.reset()


def test_a_number_is_the_stream_of_all_sequences() -> None:
    one = Sampler(PARAMS, stream=7)
    expected = sample(ROWS[0], **settings(), position=0, stream=7).tokens
    assert (one(ROWS[0]), streams_of(one)) == (expected, [7])
    several = Sampler([PARAMS, SamplingParams(seed=1)], stream=np.uint32(7), prompt=[[1], [2]])
    assert streams_of(several) == [7, 7]
    assert several(ROWS[[0, 0]])[0] == expected


def test_sequences_of_a_list_may_be_on_streams_of_their_own() -> None:
    sampler = Sampler([PARAMS] * 4, stream="row")
    assert streams_of(sampler) == [0, 1, 2, 3]
    assert sampler(ROWS).tolist() == Sampler(PARAMS, stream="row")(ROWS).tolist()
    assert sampler.sequence(sampler.add(PARAMS)).stream == 0


def test_prompts_of_continuations_need_stream_row() -> None:
    with pytest.raises(ValueError, match='`stream` must be "row" for 2 prompts'):
        Sampler(PARAMS, prompt=[[1], [2]])
    assert streams_of(Sampler(PARAMS, prompt=[[1], [2]], stream="row")) == [0, 1]
    assert streams_of(Sampler(PARAMS, prompt=[[1]])) == [0]
