"""Mistakes with sequences that come and go: each is named, and moves none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fastsample import Sampler
from tests.support.case_loop import each
from tests.support.engines import Engine
from tests.support.sampler_steps import GREEDY, ROWS, WARM, used_by_another_thread


def made(calls: int = 1) -> Sampler:
    sampler = Sampler([GREEDY, WARM], prompt=[1])
    for _ in range(calls):
        sampler(ROWS[:2])
    return sampler


@each(
    ("call", "error", "part"),
    [
        (lambda s: s(ROWS[:1], sequences=[7]), ValueError, "numbers of sequences, got 7"),
        (lambda s: s(ROWS[:2], sequences=[1, 1]), ValueError, "got 1 more than once"),
        (lambda s: s(ROWS[:3]), ValueError, "`logits` must have 2 rows, one for each sequence"),
        (lambda s: s(ROWS[:2], sequences=[1]), ValueError, "`logits` must have 1 rows"),
        (lambda s: s(ROWS[:1], sequences=1.0), TypeError, "numbers of sequences, got float 1.0"),
        (lambda s: s(ROWS[:1], sequences=[True]), TypeError, "got bool True"),
        (lambda s: s(ROWS[:1], sequences=["0"]), TypeError, "got str '0'"),
        (lambda s: s.sequence(2), ValueError, "numbers of sequences, got 2"),
        (lambda s: s.sequence([0]), TypeError, "got list"),
        (lambda s: s.remove(5), ValueError, "numbers of sequences, got 5"),
        (lambda s: s.reset(sequences=[0, 5]), ValueError, "numbers of sequences, got 5"),
        (lambda s: s.reset(-1), ValueError, "`position` must be in"),
        (lambda s: s.accept([1]), ValueError, "`tokens` must have an entry for each of the 2"),
        (lambda s: s.accept(1), TypeError, "`tokens` must be a list with an entry for each"),
        (lambda s: s.accept([1, 2**22]), ValueError, r"tokens in \[0, 4194304\), got 4194304 at"),
        (lambda s: s.accept([-2], sequences=1), ValueError, r"tokens in \[0, 4194304\), got -2 \("),
        (
            lambda s: s.accept([1, [2.5]]),
            TypeError,
            "`tokens` must hold lists of integers, got list of",
        ),
        (lambda s: s.accept([1, True]), TypeError, "and dtype bool at row 1"),
        (
            lambda s: s.accept([1, [[2], [3, 4]]]),
            TypeError,
            "`tokens` must hold lists of integers, got",
        ),
        (lambda s: s.accept([1, 2], sequences=[0, 9]), ValueError, "numbers of sequences, got 9"),
        (lambda s: s.add(0.8), TypeError, "`params` must be a SamplingParams"),
        (lambda s: s.add(top_q=1), TypeError, "`top_q` must be a field"),
        (lambda s: s.add(stream=2**32), ValueError, "`stream` must be in"),
        (lambda s: s.add(prompt=["a"]), TypeError, "`prompt` must hold lists of integers"),
    ],
)
def test_an_error_changes_nothing(
    call: Callable[[Sampler], Any], error: type[Exception], part: str
) -> None:
    sampler, other = made(), made()
    with pytest.raises(error, match=part):
        call(sampler)
    assert sampler.ids == other.ids
    for _ in range(3):
        assert sampler(ROWS[:2]).tolist() == other(ROWS[:2]).tolist()
    assert sampler.add() == other.add() == 2


@each(
    ("call", "error", "part"),
    [
        (lambda: Sampler([GREEDY, 0.8]), TypeError, "`params` must be a SamplingParams"),
        (lambda: Sampler([GREEDY], prompt=[[1], [2]]), ValueError, "each of the 1 sequences"),
        (lambda: Sampler([GREEDY, WARM], prompt=[[1]]), ValueError, "each of the 2 sequences"),
        (lambda: Sampler(GREEDY, prompt=["a"]), TypeError, "`prompt` must hold lists of integers"),
        (lambda: Sampler(GREEDY).add(), TypeError, "`add` needs a Sampler made from a list"),
        (lambda: Sampler(GREEDY).remove(0), TypeError, "`remove` needs a Sampler made from a list"),
    ],
)
def test_invalid_constructor_arguments(
    call: Callable[[], Any], error: type[Exception], part: str
) -> None:
    with pytest.raises(error, match=part):
        call()


def test_a_bad_row_changes_no_sequence(engine: Engine) -> None:
    sampler = Sampler([WARM, GREEDY], engine=engine.name, isa=engine.isa)
    expected = sampler.clone()(ROWS[:2]).tolist()
    spoilt = ROWS[:2].copy()
    spoilt[1, 3] = np.inf
    with pytest.raises(ValueError, match="row 1 holds inf at token 3"):
        sampler(spoilt)
    assert [sampler.sequence(n).position for n in (0, 1)] == [0, 0]
    assert sampler(ROWS[:2]).tolist() == expected


def test_the_last_position_of_one_stops_the_batch() -> None:
    sampler = Sampler([WARM, GREEDY])
    sampler.reset(2**64 - 1, sequences=1)
    sampler(ROWS[:2])
    with pytest.raises(ValueError, match=r"`position` must be in \[0, 2\*\*64\)"):
        sampler(ROWS[:2])
    assert [sampler.sequence(n).position for n in (0, 1)] == [1, 2**64]


def test_the_last_position_of_one_stops_what_is_accepted() -> None:
    sampler = made()
    sampler.reset(2**64 - 1, sequences=1)
    before = [sampler.sequence(number).output for number in sampler.ids]
    with pytest.raises(ValueError, match="must end before position 2"):
        sampler.accept([[1, 2]] * len(before))
    assert [sampler.sequence(number).output for number in sampler.ids] == before
    sampler.accept([[1]] * len(before))
    assert sampler.sequence(1).position == 2**64


def test_changes_during_a_call_are_refused() -> None:
    sampler = made()
    with used_by_another_thread(sampler, ROWS[:2]):
        for use in (sampler.add, lambda: sampler.remove(0), lambda: sampler.accept([1, 2])):
            with pytest.raises(RuntimeError, match="this Sampler is in use"):
                use()
    assert sampler.ids == (0, 1)
    assert sampler.sequence(0).position == 2
