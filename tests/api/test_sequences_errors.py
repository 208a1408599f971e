"""Errors with the sequences of a `Sampler`: they change no sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fastsample import Sampler
from tests.support.case_loop import each
from tests.support.engines import Engine
from tests.support.error_cases.sequences import OF_TWO, of_two
from tests.support.error_cases.sequences import ROWS as NARROW
from tests.support.sampler_steps import GREEDY, ROWS, WARM, used_by_another_thread


def made() -> Sampler:
    sampler = Sampler([GREEDY, WARM], prompt=[1])
    sampler(ROWS[:2])
    return sampler


@each(("call", "error", "part"), [case[:3] for case in OF_TWO])
def test_an_error_changes_nothing(
    call: Callable[[Sampler], Any], error: type[Exception], part: str
) -> None:
    sampler, other = of_two(), of_two()
    for one in (sampler, other):
        one(NARROW[:2])
    with pytest.raises(error) as raised:
        call(sampler)
    assert part in str(raised.value)
    assert sampler.ids == other.ids
    for _ in range(3):
        assert sampler(NARROW[:2]).tolist() == other(NARROW[:2]).tolist()
    assert sampler.add() == other.add() == 2


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
