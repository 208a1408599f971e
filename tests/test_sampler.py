"""`Sampler`: what it counts, what it forgets, how it travels, and who may use it."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from support import Engine

from fastsample import Sampler, SamplingParams, sample

RNG = np.random.default_rng(12)
STEPS = (RNG.normal(size=(8, 4, 200)) * 2).astype(np.float32)
PARAMS = SamplingParams(temperature=0.9, top_k=60, top_p=0.97, min_p=0.01, seed=21)


def on(engine: Engine, params: SamplingParams = PARAMS) -> Sampler:
    return Sampler(params, engine=engine.name, isa=engine.isa)


def tokens_of(sampler: Sampler, steps: np.ndarray = STEPS) -> list[list[int]]:
    return [sampler(logits).tolist() for logits in steps]


@contextmanager
def used_by_another_thread(sampler: Sampler) -> Iterator[list[list[int]]]:
    """Hold a thread inside a call of the sampler; it appends its tokens when it is let go."""
    drawing, finish, run = threading.Event(), threading.Event(), sampler._run

    def slow_run(*arguments: Any, **keywords: Any) -> None:
        drawing.set()
        finish.wait(timeout=10)
        run(*arguments, **keywords)

    sampler._run = slow_run
    tokens: list[list[int]] = []
    thread = threading.Thread(target=lambda: tokens.append(sampler(STEPS[0]).tolist()))
    thread.start()
    drawing.wait(timeout=10)
    sampler._run = run
    yield tokens
    finish.set()
    thread.join()


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
    sampler = Sampler(PARAMS)
    first = sampler(STEPS[0])
    kept = first.copy()
    sampler(STEPS[1])
    assert first.dtype == np.int64
    assert np.array_equal(first, kept)


def test_greedy_steps_count_too() -> None:
    sampler = Sampler(temperature=0)
    sampler(STEPS[0, 0])
    assert sampler.position == 1


def test_no_rows() -> None:
    assert Sampler()(STEPS[0, :0]).shape == (0,)


# ---------------------------------------------------------------- how it is made


def test_keywords_win_over_params() -> None:
    assert Sampler(PARAMS, top_k=3).params == SamplingParams(0.9, 3, 0.97, 0.01, 21)
    assert Sampler(temperature=0.5).params == SamplingParams(temperature=0.5)
    assert Sampler(PARAMS).params == PARAMS


@pytest.mark.parametrize("name", ["temperature", "params", "seed", "topk"])
def test_parameters_are_fixed(name: str) -> None:
    sampler = Sampler(PARAMS)
    with pytest.raises(AttributeError, match=rf"`{name}` .* are fixed \(make a new Sampler\)"):
        setattr(sampler, name, 0)
    assert sampler.params == PARAMS


def test_the_position_is_set_by_reset() -> None:
    with pytest.raises(AttributeError, match=r"call reset\(position\)"):
        Sampler(PARAMS).position = 3


def test_a_seed_left_out_is_fresh_and_told() -> None:
    one, other = Sampler(), Sampler()
    assert one.seed != other.seed
    assert one.params.seed is None
    assert tokens_of(one) == tokens_of(Sampler(seed=one.seed))


def test_repr_tells_how_to_go_on() -> None:
    sampler = Sampler(PARAMS)
    sampler(STEPS[0])
    assert repr(sampler) == (
        "Sampler(SamplingParams(temperature=0.9, top_k=60, top_p=0.97, min_p=0.01, seed=21), "
        "position=1)"
    )


# ---------------------------------------------------------------- what it counts


def test_reset_goes_back() -> None:
    sampler = Sampler(PARAMS)
    first = tokens_of(sampler)
    sampler.reset()
    assert sampler.position == 0
    assert tokens_of(sampler) == first
    sampler.reset(position=5)
    assert tokens_of(sampler, STEPS[5:]) == first[5:]


def test_reset_forgets_the_number_of_rows() -> None:
    sampler = Sampler(PARAMS)
    sampler(STEPS[0])
    sampler.reset()
    sampler(STEPS[0, :2])
    assert sampler.position == 1


def test_one_row_of_either_shape() -> None:
    sampler = Sampler(PARAMS)
    sampler(STEPS[0, 0])
    assert sampler(STEPS[1, :1]).tolist() == [tokens_of(Sampler(PARAMS))[1][0]]


@pytest.mark.parametrize(
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
    sampler = Sampler(PARAMS)
    with pytest.raises(ValueError, match="nan"):
        sampler(np.full((2, 200), np.nan, np.float32))
    sampler(STEPS[0])
    assert sampler.position == 1


def test_the_last_position_is_drawn_and_none_after_it() -> None:
    sampler = Sampler(PARAMS)
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


# ---------------------------------------------------------------- how it travels


@pytest.mark.parametrize(
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


def test_a_copy_remembers_the_number_of_rows() -> None:
    sampler = Sampler(PARAMS)
    sampler(STEPS[0])
    with pytest.raises(ValueError, match="4 rows"):
        sampler.clone()(STEPS[1, :2])


def test_a_fresh_seed_travels() -> None:
    sampler = Sampler()
    assert pickle.loads(pickle.dumps(sampler)).seed == sampler.seed


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def holds_in_a_child(check: Callable[[], bool]) -> bool:
    """Ask a forked child, for a minute at most."""
    child = fork()
    if child == 0:
        failed = True
        try:
            signal.alarm(60)
            failed = not check()
        finally:
            os._exit(failed)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_draws_the_same(engine: Engine) -> None:
    """Threads of the parent's calls are not in the child; it must not wait for them."""
    sampler = Sampler(PARAMS, engine=engine.name, isa=engine.isa, n_threads=2)
    expected = tokens_of(sampler.clone())
    tokens_of(sampler, STEPS[:4])
    assert holds_in_a_child(lambda: tokens_of(sampler, STEPS[4:]) == expected[4:])
    assert tokens_of(sampler, STEPS[4:]) == expected[4:]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_child_may_use_what_another_thread_was_using(engine: Engine) -> None:
    """The thread is not in the child, so it would never let the sampler go."""
    sampler, expected = on(engine), tokens_of(on(engine))
    with used_by_another_thread(sampler) as tokens:
        assert holds_in_a_child(lambda: tokens_of(sampler) == expected)
        with pytest.raises(RuntimeError, match="another thread"):
            sampler(STEPS[0])
    assert tokens == expected[:1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_child_forked_inside_a_call_ends_the_call() -> None:
    """As a signal's handler may do: the child is in the call too, and its turn must end."""
    sampler = Sampler(PARAMS)
    children, run, failed = [], sampler._run, True

    def forking_run(*arguments: Any, **keywords: Any) -> None:
        run(*arguments, **keywords)
        children.append(fork())

    sampler._run = forking_run
    try:
        sampler(STEPS[0])
        sampler._run = run
        sampler(STEPS[1])
        failed = False
    finally:
        if children == [0]:
            os._exit(failed)
    assert os.waitpid(children[0], 0)[1] == 0


# ---------------------------------------------------------------- one thread at a time


def test_a_second_thread_is_refused_and_tears_nothing() -> None:
    sampler, expected = Sampler(PARAMS), tokens_of(Sampler(PARAMS))
    with used_by_another_thread(sampler) as tokens:
        for use in (
            lambda: sampler(STEPS[0]),
            sampler.reset,
            sampler.clone,
            lambda: pickle.dumps(sampler),
        ):
            with pytest.raises(RuntimeError, match="another thread"):
                use()
    assert tokens == expected[:1]
    assert sampler.position == 1
    assert tokens_of(sampler, STEPS[1:]) == expected[1:]


def test_a_call_that_was_interrupted_does_not_lock_the_sampler_for_ever() -> None:
    class TickError(Exception):
        pass

    def tick(*_: object) -> None:
        raise TickError

    def draw_until_interrupted(sampler: Sampler, row: np.ndarray, seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        while True:
            sampler(row)

    row = np.zeros(64, np.float32)
    before = signal.signal(signal.SIGALRM, tick)
    try:
        for i in range(300):
            sampler = Sampler(seed=1)
            with pytest.raises(TickError):
                draw_until_interrupted(sampler, row, 1e-4 + i % 40 * 1e-6)
            sampler.reset()
            assert sampler(row) == int(sample(row, seed=1, position=0).tokens)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
