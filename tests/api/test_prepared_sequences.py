"""Sequences that compiled code adds, removes and chooses: as the general path does it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastsample import Sampler, SamplingParams
from tests.support.case_loop import each
from tests.support.engines import Engine
from tests.support.prepared_calls import equal_answers, refuse
from tests.support.random_rows import random_filters
from tests.support.sampler_steps import PENALISED, STEPS, change_engine

pytest.importorskip("fastsample._native", reason="fastsample._native is not built")

COLUMNS = STEPS.shape[2]
PARAMS = [SamplingParams(temperature=1.5, seed=seed) for seed in (1, 2, 3)]
ROWS = (np.random.default_rng(6).normal(size=(40, COLUMNS)) * 2).astype(np.float32)


def pair(params: list[SamplingParams], **how: Any) -> list[Sampler]:
    """Two samplers of the same sequences: one with prepared methods only, one with none."""
    prepared, general = Sampler(params, **how), Sampler(params, **how)
    change_engine(general, make_step=None)
    prepared._suspend = refuse
    return [prepared, general]


def state_of(sampler: Sampler) -> list[Any]:
    each = [(number, sampler.sequence(number)) for number in sampler.ids]
    return [(number, one.seed, one.stream, one.prompt, one.output) for number, one in each]


@each("seed", range(12))
def test_random_sequences(native_engine: Engine, seed: int) -> None:
    """Sequences join, leave and are chosen in any order."""
    rng = np.random.default_rng([seed, 3])
    known = [
        SamplingParams(**random_filters(rng, COLUMNS), seed=int(rng.integers(2**63)))
        for _ in range(3)
    ]
    known += [PENALISED, SamplingParams(seed=5, ignore_tokens=[3, "outside"], presence_penalty=1)]
    sampler, twin = pair(known[:2], engine=native_engine.name, isa=native_engine.isa)
    for _ in range(60):
        ids = list(sampler.ids)
        use = rng.random()
        if use < 0.25 and len(ids) < 9:
            params, prompt = known[rng.integers(5)], rng.integers(0, COLUMNS, rng.integers(4))
            given = prompt if rng.random() < 0.5 else prompt.tolist()
            stream = int(rng.integers(2**32))
            added = [one.add(params, prompt=given, stream=stream) for one in (sampler, twin)]
            assert added[0] == added[1]
        elif use < 0.4 and ids:
            number = int(rng.choice(ids))
            gone = [one.remove(number) for one in (sampler, twin)]
            assert gone[0].output == gone[1].output
        elif use < 0.6:
            rows = ROWS[: len(ids)]
            assert equal_answers(sampler(rows), twin(rows))
        else:
            # Often those of the call before, but for the last.
            some = rng.permutation(ids) if use < 0.8 else np.array(ids, np.int64)
            some = some[: rng.integers(0, len(ids) + 1)].tolist()
            rows = ROWS[: len(some)]
            drawn = [one(rows, sequences=some) for one in (sampler, twin)]
            assert equal_answers(*drawn)
        assert state_of(sampler) == state_of(twin)


@pytest.mark.parametrize("chosen", [None, [0, 1, 2], [2, 0, 1]])
def test_a_sequence_that_was_removed_is_unknown(chosen: Any) -> None:
    sampler = Sampler(PARAMS)
    sampler(ROWS[:3], sequences=chosen)
    gone = sampler.remove(1)
    with pytest.raises(ValueError, match="must have 2 rows" if chosen is None else "got 1"):
        sampler(ROWS[:3], sequences=chosen)
    assert sampler.ids == (0, 2)
    assert len(gone.output) == 1


def test_added_sequences_have_numbers_and_seeds_of_their_own() -> None:
    params = SamplingParams()
    sampler = Sampler([params])
    sampler._suspend = refuse
    numbers = [sampler.add(params), sampler.add(params)]
    sampler.remove(2)
    numbers.append(sampler.add(params))
    assert numbers == [1, 2, 3]
    assert sampler.ids == (0, 1, 3)
    assert len({sampler.sequence(n).seed for n in sampler.ids}) == 3


ODD: dict[str, dict[str, Any]] = {
    "no parameters": {"params": None, "seed": 3},
    "a field": {"params": PARAMS[0], "seed": 9},
    "a tuple of parameters": {"params": (PARAMS[0],)},
    "a token past the end": {"params": PARAMS[0], "prompt": [100]},
    "a token below 0": {"params": PARAMS[0], "prompt": np.array([3, -1])},
    "a prompt of True": {"params": PARAMS[0], "prompt": [1, True]},
    "a prompt of None": {"params": PARAMS[0], "prompt": None},
    "one token": {"params": PARAMS[0], "prompt": 5},
    "a prompt of lists": {"params": PARAMS[0], "prompt": [[5]]},
    "text": {"params": PARAMS[0], "prompt": ["5"]},
    "a set": {"params": PARAMS[0], "prompt": {5}},
    "int32": {"params": PARAMS[0], "prompt": np.array([5], np.int32)},
    "floats": {"params": PARAMS[0], "prompt": np.array([5.0])},
    "a large stream": {"params": PARAMS[0], "stream": 2**32},
    "a stream below 0": {"params": PARAMS[0], "stream": -1},
    "a stream of NumPy": {"params": PARAMS[0], "stream": np.uint32(3)},
    "a race": {"params": SamplingParams(seed=1, draw="race")},
}


@pytest.mark.parametrize("reduction", ["exact", "fast"])
@each("name", ODD)
def test_odd_sequences_are_added_as_without_a_step(name: str, reduction: str) -> None:
    how: dict[str, Any] = {"valid_vocab": 100, "reduction": reduction}
    with_step, without = Sampler(PARAMS, **how), Sampler(PARAMS, **how)
    change_engine(without, make_step=None)
    outcomes: list[Any] = []
    for sampler in (with_step, without):
        sampler(ROWS[:3])
        try:
            outcomes.append(sampler.add(**ODD[name]))
        except (TypeError, ValueError) as error:
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]
    assert state_of(with_step) == state_of(without)
    rows = ROWS[: len(with_step.ids)]
    assert with_step(rows).tolist() == without(rows).tolist()


@pytest.mark.parametrize("number", [7, -1, True, "1", None, 1.0, 2**70])
def test_odd_numbers_are_removed_as_without_a_step(number: Any) -> None:
    with_step, without = Sampler(PARAMS), Sampler(PARAMS)
    change_engine(without, make_step=None)
    with pytest.raises((TypeError, ValueError)) as expected:
        without.remove(number)
    with pytest.raises(type(expected.value)) as found:
        with_step.remove(number)
    assert str(found.value) == str(expected.value)
    assert with_step.ids == (0, 1, 2)


def test_a_sampler_of_one_adds_and_removes_none() -> None:
    sampler = Sampler(PARAMS[0])
    sampler(ROWS[0])
    for use in (lambda: sampler.add(PARAMS[0]), lambda: sampler.remove(0)):
        with pytest.raises(TypeError, match="needs a Sampler made from a list"):
            use()


def test_a_sequence_is_added_without_memory_or_not_at_all() -> None:
    memory = pytest.importorskip("_testcapi", reason="a Python without its test modules")
    failed = 0
    for start in range(40):
        sampler = Sampler(PARAMS)
        sampler(ROWS[:3])
        prompt = list(range(20))
        memory.set_nomemory(start, start + 1)
        try:
            sampler.add(PARAMS[0], prompt=prompt)
        except MemoryError:
            failed += 1
        finally:
            memory.remove_mem_hooks()
        twin = sampler.clone()
        rows = ROWS[: len(sampler.ids)]
        assert sampler(rows).tolist() == twin(rows).tolist()
    assert failed
