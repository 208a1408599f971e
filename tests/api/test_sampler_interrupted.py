"""A `Sampler` whose calls are cut short, or stand in one another: it draws what it tells."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastsample
from fastsample import Sampler, SamplingParams, sample
from tests.support.prepared_calls import ByDlpack
from tests.support.sampler_steps import STEPS

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


# ---------------------------------------------------------------- a call inside a call


def masked(before: Callable[[], Any]) -> ByDlpack:
    """A mask that allows all tokens; `before` runs while it is looked at."""
    return ByDlpack(np.ones(STEPS.shape[-1], bool), before)


INSIDE: dict[str, Callable[[Sampler], Any]] = {
    "call": lambda sampler: sampler(STEPS[4, :3]),
    "calls": lambda sampler: [sampler(STEPS[4, :3]) for _ in range(3)],
    "call of some": lambda sampler: sampler(STEPS[4, :1], sequences=[1]),
    "sample": lambda sampler: sampler.sample(STEPS[4, :3]),
    "accept": lambda sampler: sampler.accept([[3], [], []]),
    "reset": lambda sampler: sampler.reset(9),
    "add": lambda sampler: sampler.add(seed=4, temperature=2.0),
    "remove": lambda sampler: sampler.remove(1),
}


def told(sampler: Sampler) -> list[tuple[int, int, list[int]]]:
    each = [(number, sampler.sequence(number)) for number in sampler.ids]
    return [(number, one.position, one.output) for number, one in each]


@pytest.mark.parametrize("outer", [Sampler.__call__, Sampler.sample])
@pytest.mark.parametrize("name", INSIDE)
def test_a_call_inside_a_call_is_independent(name: str, outer: Callable[..., Any]) -> None:
    sampler, twin = made(), made()
    with pytest.raises(RuntimeError, match="used while one of its calls was under way"):
        outer(sampler, STEPS[5, :3], mask=masked(lambda: INSIDE[name](sampler)))
    INSIDE[name](twin)
    assert told(sampler) == told(twin)
    for logits in STEPS[6:]:
        rows = logits[: len(sampler.ids)]
        tokens = expected(sampler, rows)
        assert sampler(rows).tolist() == tokens


def test_a_first_call_inside_a_first_call_fixes_the_number_of_rows() -> None:
    sampler, twin = Sampler(seed=1), Sampler(seed=1)
    with pytest.raises(RuntimeError, match="under way"):
        sampler(STEPS[0], mask=masked(lambda: sampler(STEPS[1, :2])))
    twin(STEPS[1, :2])
    assert told(sampler) == told(twin)
    assert sampler(STEPS[2, :2]).tolist() == twin(STEPS[2, :2]).tolist()


def test_looking_and_copying_inside_a_call_do_not_stop_it() -> None:
    sampler, twin, copies = made(), made(), []
    tokens = sampler(STEPS[2, :3], mask=masked(lambda: copies.append(sampler.clone())))
    assert tokens.tolist() == twin(STEPS[2, :3]).tolist()
    assert copies[0](STEPS[2, :3]).tolist() == tokens.tolist()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that signals")
def test_a_handler_that_draws_shares_no_position() -> None:
    row, mask = STEPS[0, 0], np.ones(STEPS.shape[-1], bool)
    sampler, drawn, refused = Sampler(seed=3), [], 0

    def handler(*_: object) -> None:
        with suppress(RuntimeError):  # a handler may itself be interrupted by the next
            drawn.append(sampler(row, mask=mask))

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 3e-4, 3e-4)
    try:
        for _ in range(3_000):
            try:
                sampler(row, mask=mask)
            except RuntimeError:
                refused += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert drawn
    assert sampler.position == 3_000 - refused + len(drawn)
    places = np.arange(sampler.position)
    tokens = sample(
        np.broadcast_to(row, (len(places), len(row))), seed=3, position=places, stream=0
    )
    assert sampler.sequence(0).output == tokens.tokens.tolist()
