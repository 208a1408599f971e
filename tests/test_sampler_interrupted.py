"""A `Sampler` whose calls and changes are cut short: what it draws next fits what it tells."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sampler_steps import STEPS

import fastsample
from fastsample import Sampler, SamplingParams, sample

PACKAGE = str(Path(fastsample.__file__).parent)


class CutShortError(Exception):
    """What a signal's handler raises."""


def cut_short(call: Callable[[], Any], instruction: int) -> bool:
    """Raise at one instruction of the package's Python code; False where there are not as many."""
    passed = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal passed
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            passed += 1
            if passed == instruction:
                raise CutShortError
        return trace

    tracer = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except CutShortError:
        return True
    finally:
        sys.settrace(tracer)
    return False


def made() -> Sampler:
    """Three sequences, with calls that are prepared."""
    sampler = Sampler([SamplingParams(seed=seed, temperature=2.0) for seed in range(3)])
    sampler(STEPS[0, :3])
    sampler(STEPS[1, :3])
    return sampler


def expected(sampler: Sampler, rows: np.ndarray) -> list[int]:
    """What `sample` draws from what the sampler tells of its sequences."""
    told = [sampler.sequence(number) for number in sampler.ids]
    return [
        int(sample(row, temperature=2.0, seed=one.seed, position=one.position).tokens)
        for row, one in zip(rows, told, strict=True)
    ]


CHANGES: dict[str, Callable[[Sampler], Any]] = {
    "reset forward": lambda sampler: sampler.reset(9),
    "reset back": lambda sampler: sampler.reset(1),
    "reset of one": lambda sampler: sampler.reset(9, sequences=1),
    "add": lambda sampler: sampler.add(seed=4, temperature=2.0),
    "remove": lambda sampler: sampler.remove(1),
    "call": lambda sampler: sampler(STEPS[2, :3], bias={0: 1.0}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_interrupt_leaves_no_step_that_is_out_of_date(name: str) -> None:
    instruction = 1
    sampler = made()
    while cut_short(lambda sampler=sampler: CHANGES[name](sampler), instruction):
        rows = STEPS[3, : len(sampler.ids)]
        tokens = expected(sampler, rows)
        assert sampler(rows).tolist() == tokens, instruction
        instruction += 1
        sampler = made()
    assert instruction > 20
