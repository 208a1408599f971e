"""A `Sampler` that is interrupted, or used again during a call: its state stays consistent."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastsample
from fastsample import Sampler, SamplingParams, sample
from tests.support.case_loop import each
from tests.support.prepared_calls import ByDlpack
from tests.support.sampler_steps import STEPS

PACKAGE = str(Path(fastsample.__file__).parent)
ALLOW_ALL = np.ones(STEPS.shape[-1], bool)
NOT_PREPARED = {"bias": {0: np.float32(0)}}
"""An argument with which a call takes the general path, most of which is Python code."""
needs_timer = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="needs a timer that sends signals"
)


class InterruptedError(Exception):
    """What a signal handler raises."""


def interrupt(call: Callable[[], Any], instruction: int) -> bool:
    """Raise at one instruction of the package's Python code; False if there are fewer."""
    passed = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal passed
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            passed += 1
            if passed == instruction:
                raise InterruptedError
        return trace

    tracer = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except InterruptedError:
        return True
    finally:
        sys.settrace(tracer)
    return False


def unlock(sampler: Sampler) -> None:
    """Trace functions also raise where signal handlers cannot: just before the lock's release."""
    if sampler._exclusive.lock.locked():
        sampler._exclusive.lock.release()


def made() -> Sampler:
    """Three sequences, for which calls are prepared."""
    sampler = Sampler([SamplingParams(seed=seed, temperature=2.0) for seed in range(3)])
    sampler(STEPS[0, :3])
    sampler(STEPS[1, :3])
    return sampler


def expected(sampler: Sampler, rows: np.ndarray) -> list[int]:
    """Tokens of `sample` for the seeds and positions of the sequences."""
    sequences = [sampler.sequence(number) for number in sampler.ids]
    return [
        int(sample(row, temperature=2.0, seed=one.seed, position=one.position).tokens)
        for row, one in zip(rows, sequences, strict=True)
    ]


def state_of(sampler: Sampler) -> list[tuple[int, int, list[int]]]:
    each = [(number, sampler.sequence(number)) for number in sampler.ids]
    return [(number, one.position, one.output) for number, one in each]


KNOWN = SamplingParams(seed=4, temperature=2.0)
"""Parameters that a sequence has had."""
Sampler([KNOWN])

USES: dict[str, Callable[[Sampler], Any]] = {
    "call": lambda sampler: sampler(STEPS[2, :3], **NOT_PREPARED),
    "prepared call": lambda sampler: sampler(STEPS[2, :3], bias={0: 1.0}),
    "call of one": lambda sampler: sampler(STEPS[4, 0], sequences=1, **NOT_PREPARED),
    "sample": lambda sampler: sampler.sample(STEPS[4, :3], **NOT_PREPARED),
    "accept": lambda sampler: sampler.accept([[3], [4], [5]]),
    "rewind": lambda sampler: sampler.rewind(2),
    "reset forward": lambda sampler: sampler.reset(9),
    "reset back": lambda sampler: sampler.reset(1),
    "reset of one": lambda sampler: sampler.reset(9, sequences=1),
    "add": lambda sampler: sampler.add(seed=4, temperature=2.0),
    "prepared add": lambda sampler: sampler.add(KNOWN, prompt=[1, 2]),
    "remove": lambda sampler: sampler.remove(np.int64(1)),
    "prepared remove": lambda sampler: sampler.remove(1),
    "clone": Sampler.clone,
}
MOVES_ALL = (
    *("call", "prepared call", "call of one", "sample"),
    *("accept", "rewind", "add", "prepared add", "remove", "prepared remove", "clone"),
)


@each("name", USES)
def test_an_interrupted_use_has_moved_all_sequences_or_none(name: str) -> None:
    before, after = state_of(made()), made()
    USES[name](after)
    instruction = 1
    sampler = made()
    while interrupt(lambda sampler=sampler: USES[name](sampler), instruction):
        unlock(sampler)
        if name in MOVES_ALL:
            assert state_of(sampler) in (before, state_of(after)), instruction
        rows = STEPS[3, : len(sampler.ids)]
        tokens = expected(sampler, rows)
        assert sampler(rows).tolist() == tokens, instruction
        instruction += 1
        sampler = made()
    if name.startswith("prepared"):
        assert instruction == 1  # it has no Python code
    else:
        assert instruction > 20


@needs_timer
def test_an_interrupted_use_leaves_the_sampler_to_other_threads() -> None:
    signals = 0

    def handler(*_: object) -> None:
        nonlocal signals
        signals += 1
        raise InterruptedError

    sampler, row, refused, interrupts = Sampler(seed=1), STEPS[0, 0], 0, 0
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with ThreadPoolExecutor(1) as another:
            for i in range(2_000):
                try:
                    # A second signal ends the loop, and counts, where the first exception was lost.
                    signal.setitimer(signal.ITIMER_REAL, 2e-5 + i % 97 * 1e-6, 5)
                    while True:
                        sampler(row, **NOT_PREPARED)
                        sampler.accept([1, 2])
                        sampler.reset()
                except InterruptedError:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    interrupts += 1
                try:
                    another.submit(sampler.clone).result()
                except RuntimeError:
                    refused += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert (interrupts, signals, refused) == (2_000, 2_000, 0)
    sampler.reset()
    assert sampler(row) == int(sample(row, seed=1, position=0).tokens)


# ---------------------------------------------------------------- a use during a call


@each("outer", [Sampler.__call__, Sampler.sample])
@each("name", USES)
def test_a_use_during_a_call_is_refused(name: str, outer: Callable[..., Any]) -> None:
    sampler, twin, errors = made(), made(), []

    def use() -> None:
        try:
            USES[name](sampler)
        except RuntimeError as error:
            errors.append(str(error))

    result = outer(sampler, STEPS[5, :3], mask=ByDlpack(ALLOW_ALL, use))
    tokens = result.tokens if outer is Sampler.sample else result
    assert [error[:23] for error in errors] == ["this Sampler is in use,"]
    assert tokens.tolist() == twin(STEPS[5, :3]).tolist()
    assert state_of(sampler) == state_of(twin)
    assert sampler(STEPS[6, :3]).tolist() == twin(STEPS[6, :3]).tolist()


def test_a_call_that_fails_with_the_use_inside_it_changes_nothing() -> None:
    sampler = made()
    before = state_of(sampler)
    with pytest.raises(TypeError, match=r"`mask` must be .* this Sampler is in use"):
        sampler(STEPS[5, :3], mask=ByDlpack(ALLOW_ALL, lambda: sampler.reset(1)))
    assert state_of(sampler) == before


def test_a_sampler_may_be_read_during_a_call() -> None:
    sampler, seen = made(), []
    mask = ByDlpack(ALLOW_ALL, lambda: seen.append((state_of(sampler), repr(sampler))))
    before = state_of(sampler), repr(sampler)
    sampler(STEPS[2, :3], mask=mask)
    assert seen == [before]


@needs_timer
def test_a_handler_that_draws_repeats_no_position() -> None:
    row, sampler, drawn = STEPS[0, 0], Sampler(seed=3), []

    def handler(*_: object) -> None:
        with suppress(RuntimeError):
            drawn.append(sampler(row, **NOT_PREPARED))

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 3e-4, 3e-4)
    try:
        for _ in range(3_000):
            sampler(row, **NOT_PREPARED)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    positions = np.arange(sampler.position)
    assert len(positions) == 3_000 + len(drawn) > 3_000
    rows = np.broadcast_to(row, (len(positions), len(row)))
    tokens = sample(rows, seed=3, position=positions, stream=0).tokens
    assert sampler.sequence(0).output == tokens.tolist()
