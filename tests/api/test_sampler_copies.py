"""`Sampler`: how it travels (copies, pickles, forks), and one thread at a time."""

from __future__ import annotations

import copy
import os
import pickle
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from unittest import mock

import pytest

from fastsample import RULE_VERSION, Sampler
from tests.support.case_loop import each
from tests.support.engines import Engine
from tests.support.forks import fork, holds_in_a_child
from tests.support.sampler_steps import (
    PARAMS,
    PENALISED,
    STEPS,
    change_engine,
    on,
    tokens_of,
    used_by_another_thread,
)

# ---------------------------------------------------------------- how it travels


@each(
    "duplicate",
    [
        Sampler.clone,
        copy.copy,
        copy.deepcopy,
        *(
            lambda sampler, protocol=protocol: pickle.loads(pickle.dumps(sampler, protocol))
            for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)
        ),
    ],
)
def test_copies_go_on_alone(engine: Engine, duplicate: Callable[[Sampler], Sampler]) -> None:
    expected = tokens_of(on(engine))
    sampler = on(engine)
    tokens_of(sampler, STEPS[:3])
    twin = duplicate(sampler)
    assert (twin.params, twin.seed, twin.position) == (sampler.params, sampler.seed, 3)
    assert tokens_of(twin, STEPS[3:]) == expected[3:]
    assert sampler.position == 3
    assert tokens_of(sampler, STEPS[3:]) == expected[3:]


@pytest.mark.parametrize("duplicate", [Sampler.clone, copy.deepcopy])
def test_copies_have_a_history_of_their_own(duplicate: Callable[[Sampler], Sampler]) -> None:
    expected = tokens_of(Sampler(PENALISED, stream="row", prompt=[7]))
    sampler = Sampler(PENALISED, stream="row", prompt=[7])
    tokens_of(sampler, STEPS[:3])
    twin = duplicate(sampler)
    sampler.accept([[1], [2], [3], [4]])
    assert twin.sequence(2).output == [tokens[2] for tokens in expected[:3]]
    assert twin.sequence(2).prompt == [7]
    assert tokens_of(twin, STEPS[3:]) == expected[3:]


def test_pickling_carries_everything() -> None:
    sampler = Sampler(PENALISED, stream="row", prompt=[7], valid_vocab=150, n_threads=2)
    tokens_of(sampler, STEPS[:3])
    twin = pickle.loads(pickle.dumps(sampler))
    assert tokens_of(twin, STEPS[3:]) == tokens_of(sampler, STEPS[3:])
    assert repr(twin) == repr(sampler)
    assert twin.sequence(3).output == sampler.sequence(3).output


@pytest.mark.parametrize("version", [1, RULE_VERSION + 1, None])
def test_pickles_of_another_rule_are_refused(version: int | None) -> None:
    """Version 0.1.0 wrote none."""
    sampler = Sampler(PARAMS, stream="row")
    assert sampler.__getstate__()["rule_version"] == RULE_VERSION
    state = {**sampler.__getstate__(), "rule_version": version}
    if version is None:
        del state["rule_version"]
    message = f"must be of rule version {RULE_VERSION}, got {version or 1}: its tokens would be"
    with pytest.raises(ValueError, match=message):
        Sampler.__new__(Sampler).__setstate__(state)
    with mock.patch.object(sys.modules["fastsample.api.sampler"], "RULE_VERSION", version or 1):
        pickled = pickle.dumps(sampler)
    with pytest.raises(ValueError, match=message):
        pickle.loads(pickled)


def test_a_copy_remembers_the_number_of_rows() -> None:
    sampler = Sampler(PARAMS, stream="row")
    sampler(STEPS[0])
    with pytest.raises(ValueError, match="4 rows"):
        sampler.clone()(STEPS[1, :2])


def test_a_fresh_seed_is_pickled() -> None:
    sampler = Sampler()
    assert pickle.loads(pickle.dumps(sampler)).seed == sampler.seed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_draws_the_same(engine: Engine) -> None:
    """Threads of the parent's calls are not in the child; it must not wait for them."""
    sampler = Sampler(PARAMS, stream="row", engine=engine.name, isa=engine.isa, n_threads=2)
    expected = tokens_of(sampler.clone())
    tokens_of(sampler, STEPS[:4])
    assert holds_in_a_child(lambda: tokens_of(sampler, STEPS[4:]) == expected[4:])
    assert tokens_of(sampler, STEPS[4:]) == expected[4:]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_may_use_a_sampler_in_use(engine: Engine) -> None:
    """The thread is not in the child, so it would never let the sampler go."""
    sampler, expected = on(engine), tokens_of(on(engine))
    with used_by_another_thread(sampler) as tokens:
        assert holds_in_a_child(lambda: tokens_of(sampler) == expected)
        with pytest.raises(RuntimeError, match="this Sampler is in use"):
            sampler(STEPS[0])
    assert tokens == expected[:1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_child_forked_inside_a_call_ends_the_call() -> None:
    """As a signal handler may do: the call goes on in the child too."""
    sampler = Sampler(PARAMS, stream="row")
    children, run, failed = [], sampler._execution.engine.run, True

    def forking_run(*arguments: Any, **keywords: Any) -> None:
        run(*arguments, **keywords)
        children.append(fork())

    change_engine(sampler, run=forking_run)
    try:
        sampler(STEPS[0])
        change_engine(sampler, run=run)
        sampler(STEPS[1])
        failed = False
    finally:
        if children == [0]:
            os._exit(failed)
    assert os.waitpid(children[0], 0)[1] == 0


# ---------------------------------------------------------------- one use at a time


def test_a_use_during_a_call_of_another_thread_is_refused() -> None:
    sampler, expected = Sampler(PARAMS, stream="row"), tokens_of(Sampler(PARAMS, stream="row"))
    with used_by_another_thread(sampler) as tokens:
        for use in (
            lambda: sampler(STEPS[0]),
            sampler.reset,
            sampler.clone,
            lambda: sampler.sample(STEPS[0]),
            lambda: sampler.accept(1),
            lambda: pickle.dumps(sampler),
        ):
            with pytest.raises(RuntimeError, match="this Sampler is in use"):
                use()
    assert tokens == expected[:1]
    assert sampler.position == 1
    assert tokens_of(sampler, STEPS[1:]) == expected[1:]


def test_threads_that_share_a_sampler_draw_each_position_once() -> None:
    sampler, row, drawn = Sampler(PARAMS, stream="row"), STEPS[0, 0], []

    def draw(_: int) -> None:
        for _ in range(300):
            with suppress(RuntimeError):
                drawn.append(sampler(row, bias={}))
            with suppress(RuntimeError):
                drawn.append(sampler(row))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(draw, range(4)))
    assert sampler.position == len(drawn) > 300
    sampler.reset()
    expected = [sampler(row) for _ in drawn]
    assert sorted(drawn) == sorted(expected)
