"""The call of a `Sampler` as compiled code: what Python sees, and what subclasses make of it."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

from fastsample import Sampler
from tests.support.forks import holds_in_a_child
from tests.support.sampler_steps import PARAMS, RNG, STEPS, forbid_general_path

pytest.importorskip("fastsample._native", reason="fastsample._native is not built")

ROW = STEPS[0, 0]


class Doubled(Sampler):
    """A sampler of somebody else, who changes the tokens."""

    def __call__(self, logits: Any, **arguments: Any) -> Any:
        return 2 * super().__call__(logits, **arguments)


class Named(Sampler):
    """A sampler of somebody else, who adds an attribute."""

    _name = "one"


def expected(n: int) -> list[int]:
    sampler = Sampler(PARAMS, stream="row", engine="reference")
    return [sampler(row) for row in STEPS[:n, 0]]


@pytest.mark.smoke
def test_a_call_shows_its_documentation_and_signature() -> None:
    sampler = Sampler(PARAMS, stream="row")
    sampler(ROW)
    assert (Sampler.__call__.__doc__ or "").startswith("Draw the next token of each row")
    names = ["logits", "at", "sequences", "mask", "bias"]
    assert list(inspect.signature(sampler).parameters) == names
    assert list(inspect.signature(Sampler.__call__).parameters) == ["self", *names]


def test_a_subclass_may_have_its_own_call() -> None:
    sampler = Doubled(PARAMS)
    assert [sampler(row) for row in STEPS[:3, 0]] == [2 * token for token in expected(3)]


@pytest.mark.parametrize("kind", [Sampler, Named])
def test_a_copy_and_a_pickle_go_on(kind: type[Sampler]) -> None:
    first, second, *rest = expected(4)
    sampler = kind(PARAMS)
    assert [sampler(row) for row in STEPS[:2, 0]] == [first, second]
    for twin in (copy.copy(sampler), copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))):
        assert type(twin) is kind
        forbid_general_path(twin)
        assert [twin(row) for row in STEPS[2:4, 0]] == rest


def test_an_assigned_call_is_called() -> None:
    program = """
import numpy as np
from fastsample import Sampler
row, sampler, named = np.zeros(4, np.float32), Sampler(), type("Named", (Sampler,), {})()
assert isinstance(sampler(row), int)
Sampler.__call__ = lambda self, logits: type(self).__name__
assert (sampler(row), named(row)) == ("Sampler", "Named")
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_keywords_are_those_of_the_documentation() -> None:
    sampler = Sampler(PARAMS, stream="row")
    for arguments in ({"is_checked": True}, {"memory": ROW}, {"seed": 3}):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            sampler(ROW, **arguments)
    with pytest.raises(TypeError, match="positional argument"):
        sampler(ROW, 0)
    with pytest.raises(TypeError, match="argument"):
        sampler()
    assert sampler(logits=ROW, at=None) == expected(1)[0]


def test_a_call_of_a_sampler_that_is_not_set_up() -> None:
    with pytest.raises(AttributeError, match="no attribute"):
        Sampler.__new__(Sampler)(ROW)


def test_other_engines_have_calls_of_their_own() -> None:
    native, reference = Sampler(PARAMS, stream="row"), Sampler(PARAMS, engine="reference")
    for row in STEPS[:3, 0]:
        assert native(row) == reference(row)
    assert reference._step is None


# ---------------------------------------------------------------- calls that release the GIL


@contextmanager
def long_calls(sampler: Sampler, rows: np.ndarray) -> Iterator[None]:
    """Let another thread call a sampler, one call after the other."""
    done = threading.Event()

    def call_until_done() -> None:
        while not done.is_set():
            with suppress(RuntimeError):  # the test is using it
                sampler(rows)

    thread = threading.Thread(target=call_until_done)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def slow() -> tuple[Sampler, np.ndarray]:
    """A sampler after its first call, and rows of which a call takes milliseconds."""
    sampler = Sampler(top_p=0.999, temperature=3.0, seed=1, stream="row", n_threads=1)
    rows = np.broadcast_to(RNG.normal(size=2**16).astype(np.float32), (64, 2**16))
    sampler(rows)
    return sampler, rows


def until_true(holds: Callable[[], bool]) -> None:
    assert any(holds() for _ in range(10_000))


USES: dict[str, Callable[[Sampler, np.ndarray], Any]] = {
    "call": lambda sampler, rows: sampler(rows),
    "sample": lambda sampler, rows: sampler.sample(rows, margin=True),
    "reset": lambda sampler, _: sampler.reset(sampler.sequence(0).position),
    "clone": lambda sampler, _: sampler.clone(),
}


@pytest.mark.parametrize("name", USES)
def test_a_use_during_a_long_call_of_another_thread_is_refused(name: str) -> None:
    sampler, rows = slow()

    def is_refused() -> bool:
        try:
            USES[name](sampler, rows[:, :1] if name == "call" else rows)
        except RuntimeError as error:
            return str(error).startswith("this Sampler is in use")
        return False

    with long_calls(sampler, rows):
        until_true(is_refused)
    assert not is_refused()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_child_forked_during_a_long_call_may_use_the_sampler() -> None:
    sampler, rows = slow()
    with long_calls(sampler, rows):
        for _ in range(5):
            assert holds_in_a_child(lambda: isinstance(sampler.clone(), Sampler))
            assert holds_in_a_child(lambda: len(sampler(rows)) == len(rows))
