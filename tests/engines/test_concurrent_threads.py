"""Sixteen threads at once: one sampler gives each step to one of them, clones give each its own."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.support.engines import Engine
from tests.support.sampler_steps import STEPS, on, tokens_of

N_THREADS = 16


def side_by_side(task: Callable[[int], Any]) -> list[Any]:
    """What each thread's task returns; all of them begin at once."""
    answers: list[Any] = [None] * N_THREADS
    gate = threading.Barrier(N_THREADS)

    def run(n: int) -> None:
        gate.wait(60)
        answers[n] = task(n)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(N_THREADS)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that calls are left in their midst
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    finally:
        sys.setswitchinterval(interval)
    assert not any(thread.is_alive() for thread in threads)
    return answers


def test_clones_in_threads_draw_what_each_would_alone(engine: Engine) -> None:
    sampler = on(engine)
    expected = tokens_of(on(engine))
    assert tokens_of(sampler, STEPS[:2]) == expected[:2]
    clones = [sampler.clone() for _ in range(N_THREADS)]
    found = side_by_side(lambda n: tokens_of(clones[n], STEPS[2:]))
    assert found == [expected[2:]] * N_THREADS
    assert sampler.position == 2


def test_threads_share_the_steps_of_one_sampler(engine: Engine) -> None:
    """A thread that meets another's call is refused, and the step is the other's alone."""
    sampler, row = on(engine), np.ascontiguousarray(STEPS[0])

    def draw(_: int) -> tuple[list[tuple[int, ...]], int]:
        drawn, refused = [], 0
        for _ in range(60):
            try:
                drawn.append(tuple(sampler(row).tolist()))
            except RuntimeError as error:
                assert "another thread" in str(error)
                refused += 1
        return drawn, refused

    found = side_by_side(draw)
    drawn = [tokens for of_thread, _ in found for tokens in of_thread]
    assert len(drawn) + sum(refused for _, refused in found) == 60 * N_THREADS
    assert sampler.position == len(drawn) > 0
    alone = on(engine)
    expected = [tuple(alone(row).tolist()) for _ in drawn]
    assert Counter(drawn) == Counter(expected)
