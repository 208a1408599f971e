"""`Sampler` in a forked child: seeds that nobody gave are new there, all else is as it was."""

from __future__ import annotations

import json
import os
import pickle
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

from fastsample import Sampler, SamplingParams, sample
from tests.support.engines import Engine
from tests.support.forks import fork, holds_in_a_child
from tests.support.sampler_steps import STEPS, change_engine

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

FLAT = np.zeros(1 << 16, np.float32)  # Two seeds give equal tokens once in 65,536 draws.


def in_a_child(task: Callable[[], Any]) -> Any:
    """What a task returns in a forked child, by way of JSON."""
    source, sink = os.pipe()
    child = fork()
    if child == 0:
        try:
            signal.alarm(60)
            os.write(sink, json.dumps(task()).encode())
        finally:
            os._exit(0)
    os.close(sink)
    with os.fdopen(source) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


def draw(sampler: Sampler, steps: int = 3) -> list[Any]:
    return [np.asarray(sampler(FLAT)).tolist() for _ in range(steps)]


WORKER_SAMPLER: list[Sampler] = []


def draw_in_a_worker(_: int) -> tuple[int, list[int]]:
    tokens = draw(WORKER_SAMPLER[0])
    return WORKER_SAMPLER[0].seed, tokens


def test_workers_of_a_pool_draw_other_texts() -> None:
    WORKER_SAMPLER[:] = [Sampler()]
    pools = [ProcessPoolExecutor(1, get_context("fork")) for _ in range(4)]
    texts = [pool.submit(draw_in_a_worker, 0).result() for pool in pools]
    for pool in pools:
        pool.shutdown()
    assert len({seed for seed, _ in texts} | {WORKER_SAMPLER[0].seed}) == 5
    assert len({tuple(tokens) for _, tokens in texts}) == 4


@pytest.mark.parametrize("first", ["seed", "call", "sample", "clone", "pickle", "repr"])
@pytest.mark.parametrize("is_prepared", [True, False])
@pytest.mark.parametrize("is_used", [True, False])
def test_a_child_shows_the_seed_that_it_draws_with(
    first: str, is_prepared: bool, is_used: bool
) -> None:
    """Whatever it does first: its tokens are those of the seed that it shows."""
    sampler = Sampler(temperature=0.9)
    if not is_prepared:
        change_engine(sampler, make_step=None)
    before = draw(sampler, 2) if is_used else []

    def task() -> tuple[list[int], list[int], int, list[int]]:
        seeds, tokens, used = [], [], sampler
        if first == "seed":
            seeds = [sampler.seed, sampler.sequence(0).seed]
        elif first == "call":
            tokens = draw(sampler, 1)
        elif first == "sample":
            result = sampler.sample(FLAT)
            seeds, tokens = [int(result.seed)], [int(result.tokens)]
        elif first == "repr":
            seeds = [int(repr(sampler).split("seed=")[1].split(",")[0])]
        else:
            used = sampler.clone() if first == "clone" else pickle.loads(pickle.dumps(sampler))
            seeds = [used.seed]
        tokens += draw(used)
        seeds += [used.seed, sampler.seed, used.sequence(0).seed]
        return seeds, tokens, used.position, used.sequence(0).output

    seeds, tokens, position, output = in_a_child(task)
    assert len(set(seeds)) == 1 and seeds[0] != sampler.seed
    start = len(before)
    assert (position, output) == (start + len(tokens), before + tokens)
    assert tokens == [
        int(sample(FLAT, temperature=0.9, seed=seeds[0], position=start + i).tokens)
        for i in range(len(tokens))
    ]
    # The parent goes on as before.
    assert draw(sampler, 1) == [
        int(sample(FLAT, temperature=0.9, seed=sampler.seed, position=start).tokens)
    ]


def test_given_seeds_stay(engine: Engine) -> None:
    params = [SamplingParams(seed=5), SamplingParams(), SamplingParams(seed=7)]
    sampler = Sampler(params, engine=engine.name, isa=engine.isa)
    sampler(STEPS[0, :3])
    seeds = [sampler.sequence(i).seed for i in range(3)]

    def task() -> list[Any]:
        found = [sampler.sequence(i).seed for i in range(3)]
        result = sampler.sample(STEPS[1, :3])
        return [found, result.seed.tolist(), result.tokens.tolist()]

    found, of_result, tokens = in_a_child(task)
    assert found == of_result
    assert (found[0], found[2]) == (5, 7) and found[1] != seeds[1]
    for seed, row, token in zip(found, STEPS[1], tokens, strict=False):
        assert sample(row, seed=seed, position=1).tokens == token
    assert [sampler.sequence(i).seed for i in range(3)] == seeds


def test_continuations_still_share_a_seed() -> None:
    sampler = Sampler(stream="row", prompt=[[1], [2], [3]])
    seeds = in_a_child(lambda: [sampler.sequence(i).seed for i in range(3)] + [sampler.seed])
    assert len(set(seeds)) == 1


def test_copies_go_on_alike_in_a_child_too() -> None:
    sampler = Sampler()
    twins = [sampler.clone(), pickle.loads(pickle.dumps(sampler))]
    texts = in_a_child(lambda: [draw(one) for one in (sampler, *twins)])
    assert texts[0] == texts[1] == texts[2] != draw(sampler)


def test_a_pickle_of_a_child_carries_its_seed() -> None:
    sampler = Sampler()

    def task() -> tuple[int, str]:
        return sampler.seed, pickle.dumps(sampler).hex()

    seed, pickled = in_a_child(task)
    assert pickle.loads(bytes.fromhex(pickled)).seed == seed != sampler.seed


def test_a_sequence_that_a_child_adds_keeps_its_seed_there() -> None:
    sampler = Sampler([])

    def task() -> tuple[int, int]:
        number = sampler.add()
        seed = sampler.sequence(number).seed
        draw(sampler, 1)
        return seed, sampler.sequence(number).seed

    seeds = in_a_child(task)
    assert seeds[0] == seeds[1]


def test_a_child_of_a_child_has_a_seed_of_its_own() -> None:
    sampler = Sampler()

    def task() -> list[int]:
        return [sampler.seed, *in_a_child(lambda: [sampler.seed, *draw(sampler)])]

    seeds = in_a_child(task)
    assert len({sampler.seed, *seeds[:2]}) == 3


def test_a_result_has_the_seed_that_its_tokens_were_drawn_with() -> None:
    """Also in a child that is forked inside the call, as a signal handler may do."""
    sampler = Sampler()
    change_engine(sampler, make_step=None)
    children, run = [], sampler._execution.engine.run

    def forking_run(*arguments: Any, **keywords: Any) -> None:
        run(*arguments, **keywords)
        children.append(fork())

    change_engine(sampler, run=forking_run)
    result, failed = sampler.sample(FLAT), True
    try:
        expected = sample(FLAT, seed=result.seed, position=0).tokens
        failed = bool(expected != result.tokens)
    finally:
        if children == [0]:
            os._exit(failed)
    assert os.waitpid(children[0], 0)[1] == 0 and not failed


def test_the_check_of_children_can_fail() -> None:
    assert not holds_in_a_child(lambda: False)
