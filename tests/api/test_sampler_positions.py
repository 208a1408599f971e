"""`Sampler`: the position and the tokens that it counts, kept by reset and by errors."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fastsample import Sampler, sample
from tests.support.case_loop import each
from tests.support.engines import Engine
from tests.support.sampler_steps import PARAMS, PENALISED, STEPS, on, tokens_of


def test_reset_goes_back() -> None:
    sampler = Sampler(PARAMS, stream="row")
    first = tokens_of(sampler)
    sampler.reset()
    assert sampler.position == 0
    assert tokens_of(sampler) == first
    sampler.reset(position=5)
    assert tokens_of(sampler, STEPS[5:]) == first[5:]


def test_reset_forgets_the_number_of_rows() -> None:
    sampler = Sampler(PARAMS, stream="row")
    sampler(STEPS[0])
    sampler.reset()
    sampler(STEPS[0, :2])
    assert sampler.position == 1


def test_one_row_of_either_shape() -> None:
    sampler = Sampler(PARAMS, stream="row")
    sampler(STEPS[0, 0])
    assert sampler(STEPS[1, :1]).tolist() == [tokens_of(Sampler(PARAMS, stream="row"))[1][0]]


def test_reset_forgets_the_output_and_keeps_the_prompt() -> None:
    sampler = Sampler(PENALISED, stream="row", prompt=[4, 5])
    first = tokens_of(sampler)
    sampler.reset()
    assert (sampler.sequence(0).output, sampler.sequence(0).prompt) == ([], [4, 5])
    assert tokens_of(sampler) == first


def test_reset_goes_back_in_the_output() -> None:
    sampler = Sampler(PENALISED, stream="row")
    first = tokens_of(sampler)
    sampler.reset(position=3)
    assert sampler.sequence(1).output == [tokens[1] for tokens in first[:3]]
    assert tokens_of(sampler, STEPS[3:]) == first[3:]


def where(sampler: Sampler) -> tuple[int, list[int]]:
    return sampler.position, sampler.sequence(0).output


@pytest.mark.parametrize("position", [2, 3, 5])
def test_reset_forward_and_back_keeps_earlier_tokens(position: int) -> None:
    sampler = Sampler(PENALISED, stream="row")
    sampler.accept([3, 4])
    sampler.reset(5)
    assert where(sampler) == (5, [3, 4])
    sampler.reset(position)
    assert where(sampler) == (position, [3, 4])
    sampler.reset(1)
    assert where(sampler) == (1, [3])
    sampler.reset(0)
    assert where(sampler) == (0, [])


@pytest.mark.parametrize("duplicate", [copy.copy, lambda s: pickle.loads(pickle.dumps(s))])
def test_skipped_positions_stay(duplicate: Callable[[Sampler], Sampler]) -> None:
    made = Sampler(PENALISED, stream="row")
    made.accept([1, 2])
    made.reset(5)
    made.accept([3, 4, 5])
    made.reset(10)
    made.reset(20)
    made.accept(6)
    assert where(made) == (21, [1, 2, 3, 4, 5, 6])
    expected = {
        20: [1, 2, 3, 4, 5],
        12: [1, 2, 3, 4, 5],
        8: [1, 2, 3, 4, 5],
        7: [1, 2, 3, 4],
        5: [1, 2],
        3: [1, 2],
        2: [1, 2],
        1: [1],
    }
    for position, output in expected.items():
        one = duplicate(made)
        one.reset(position)
        assert where(one) == (position, output)
    for position, output in expected.items():
        made.reset(position)
        assert where(made) == (position, output)
    made.accept(7)
    assert where(made) == (2, [1, 7])


def test_prompts_per_row_fix_the_number_of_rows() -> None:
    sampler = Sampler(PARAMS, stream="row", prompt=[[1], [2]])
    assert sampler.ids == (0, 1)
    for _ in range(2):
        with pytest.raises(ValueError, match="must have 2 rows"):
            sampler(STEPS[0])
        sampler(STEPS[0, :2])
        sampler.reset()


@each(
    "bad",
    [
        np.full((4, 200), np.nan, np.float32),
        np.full((4, 200), -np.inf, np.float32),
        STEPS[0, :3],
        STEPS,
        STEPS[0].astype(np.float64),
        "row",
    ],
    ids=["invalid", "empty", "another B", "3 dimensions", "float64", "text"],
)
def test_an_error_changes_nothing(engine: Engine, bad: Any) -> None:
    sampler, expected = on(engine), tokens_of(on(engine))
    sampler(STEPS[0])
    with pytest.raises((TypeError, ValueError)):
        sampler(bad)
    assert sampler.position == 1
    assert tokens_of(sampler, STEPS[1:]) == expected[1:]


def test_a_first_call_that_fails_does_not_fix_the_number_of_rows() -> None:
    sampler = Sampler(PARAMS, stream="row")
    with pytest.raises(ValueError, match="nan"):
        sampler(np.full((2, 200), np.nan, np.float32))
    sampler(STEPS[0])
    assert sampler.position == 1


def test_the_last_position_is_drawn_and_none_after_it() -> None:
    sampler = Sampler(PARAMS, stream="row")
    sampler.reset(2**64 - 1)
    expected = sample(
        STEPS[0, 0],
        temperature=0.9,
        top_k=60,
        top_p=0.97,
        min_p=0.01,
        seed=21,
        position=2**64 - 1,
    )
    assert sampler(STEPS[0, 0]) == expected.tokens
    with pytest.raises(ValueError, match="position"):
        sampler(STEPS[0, 0])
    assert sampler.position == 2**64
