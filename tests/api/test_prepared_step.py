"""Prepared calls of a `Sampler`: equal to the general path in all but time; what they decline."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fastsample import Sampler, SamplingParams, sample
from tests.support.case_loop import each
from tests.support.engines import Engine
from tests.support.prepared_calls import ByDlpack, equal_answers, in_some_form
from tests.support.random_requests import DTYPES
from tests.support.random_rows import pick, random_filters
from tests.support.sampler_steps import (
    PARAMS,
    PENALISED,
    RNG,
    STEPS,
    change_engine,
    forbid_general_path,
    used_by_another_thread,
)

pytest.importorskip("fastsample._native", reason="fastsample._native is not built")

ROW = STEPS[0, 0]


def pair(engine: Engine, first: Any, params: SamplingParams = PARAMS, **how: Any) -> list[Sampler]:
    """Two samplers after the same first call: one with prepared calls only, one with none."""
    prepared, general = (
        Sampler(params, engine=engine.name, isa=engine.isa, **how) for _ in range(2)
    )
    change_engine(general, make_step=None)
    prepared(first)
    general(first)
    forbid_general_path(prepared)
    return [prepared, general]


def step_of(sampler: Sampler) -> Any:
    return sampler._batch.step


# ---------------------------------------------------------------- any rows


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@each("seed", range(60))
def test_any_rows(native_engine: Engine, seed: int, tmp_path: Any) -> None:
    rng = np.random.default_rng(seed)
    n_rows = int(rng.choice([1, 1, 2, 5]))
    columns = int(rng.choice([1, 2, 16, 129, 1_000, 5_000]))
    params = SamplingParams(**random_filters(rng, columns), seed=seed)
    make = pick(rng, list(DTYPES.values()))
    is_one = n_rows == 1 and rng.random() < 0.7
    how = {"valid_vocab": int(rng.integers(1, columns + 1)) if rng.random() < 0.3 else None}
    first = np.zeros((columns,) if is_one else (n_rows, columns), np.float32)
    prepared, general = pair(native_engine, first, params, **how)
    for _ in range(4):
        logits = in_some_form(rng, make(rng, n_rows, columns), tmp_path)
        if is_one and not isinstance(logits, ByDlpack):
            logits = logits[0]
        elif is_one:
            logits.array = logits.array[0]
        try:
            expected = general(logits)
        except ValueError:
            with pytest.raises(pytest.fail.Exception, match="the general path was taken"):
                prepared(logits)
        else:
            assert equal_answers(prepared(logits), expected)
        assert [prepared.sequence(b).output for b in prepared.ids] == [
            general.sequence(b).output for b in general.ids
        ]


@pytest.mark.parametrize("valid_vocab", [None, 100])
def test_rows_of_any_number_of_columns(native_engine: Engine, valid_vocab: int | None) -> None:
    prepared, general = pair(native_engine, STEPS[0], valid_vocab=valid_vocab)
    for rows in (STEPS[1, :, :100], STEPS[2], STEPS[3, :, :150], STEPS[4, :, :101]):
        assert equal_answers(prepared(rows), general(rows))


def test_rows_of_another_shape() -> None:
    sampler, expected = Sampler(PARAMS), Sampler(PARAMS)
    change_engine(expected, make_step=None)
    for logits in (ROW, ROW[None], ROW[:100], STEPS[1, :1, :150], ROW.astype(np.float16), ROW):
        assert equal_answers(sampler(logits), expected(logits))


def test_named_sequences() -> None:
    params = [SamplingParams(seed=seed) for seed in range(3)]
    sampler, expected = Sampler(params), Sampler(params)
    change_engine(expected, make_step=None)
    both = [[2, 0], (2, 0), range(2, -1, -2), np.array([2, 0])]
    calls: list[Any] = [None, None, *both, 1, [1], None]
    for position, ids in enumerate(calls):
        rows = STEPS[position % 8, : 3 if ids is None else np.size(ids)]
        assert equal_answers(sampler(rows, sequences=ids), expected(rows, sequences=ids))


@pytest.mark.parametrize("ids", [True, (True,), [True]])
def test_true_is_not_the_number_1(ids: Any) -> None:
    sampler = Sampler([SamplingParams(seed=seed) for seed in range(3)])
    sampler(STEPS[0, :1], sequences=[1])
    with pytest.raises(TypeError, match="must be numbers of sequences, got bool True"):
        sampler(STEPS[0, :1], sequences=ids)


# ---------------------------------------------------------------- what is declined


def spoilt(value: float) -> np.ndarray:
    return np.where(np.arange(200) == 7, np.float32(value), STEPS[0])


DECLINED: dict[str, Any] = {
    "rows": STEPS[0, :3],
    "one row": ROW,
    "no columns": STEPS[0, :, :0],
    "too many columns": np.broadcast_to(np.float32(0), (4, 2**22 + 1)),
    "dimensions": STEPS,
    "nan": spoilt(np.nan),
    "inf": spoilt(np.inf),
    "empty": np.full((4, 200), -np.inf, np.float32),
    "float64": STEPS[0].astype(np.float64),
    "uint16": np.zeros((4, 200), np.uint16),
    "subclass": np.ma.array(STEPS[0]),
    "list": STEPS[0].tolist(),
}


@each("name", DECLINED)
def test_what_is_declined_changes_nothing(native_engine: Engine, name: str) -> None:
    sampler, twin = pair(native_engine, STEPS[0])
    assert step_of(sampler)(DECLINED[name]) is None
    assert [one.output_array().tolist() for one in sampler._batch.histories] == [
        twin.sequence(b).output for b in twin.ids
    ]
    assert equal_answers(sampler(STEPS[1]), twin(STEPS[1]))


@each("name", ["mask", "bias", "sequences"])
def test_calls_that_take_the_general_path(native_engine: Engine, name: str) -> None:
    arguments = {
        "mask": np.arange(200) != 3,
        "bias": {3: 9.0},
        "sequences": [3, 2, 1, 0],
    }
    sampler, _ = pair(native_engine, STEPS[0])
    with pytest.raises(pytest.fail.Exception, match="the general path was taken"):
        sampler(STEPS[1], **{name: arguments[name]})


def test_a_vocabulary_beyond_the_columns_is_declined(native_engine: Engine) -> None:
    (sampler, _) = pair(native_engine, STEPS[0], valid_vocab=100)
    assert step_of(sampler)(STEPS[1, :, :99]) is None


def test_a_call_without_memory_moves_all_rows_or_none(native_engine: Engine) -> None:
    memory = pytest.importorskip("_testcapi", reason="a Python without its test modules")
    sampler, _ = pair(native_engine, STEPS[0])
    batch, failed = sampler._batch, 0
    for start in range(60):
        memory.set_nomemory(start, start + 1)
        try:
            batch.step(STEPS[1])
        except MemoryError:
            failed += 1
        finally:
            memory.remove_mem_hooks()
        assert len({one.output_count for one in batch.histories}) == 1
    assert failed


def test_errors_are_those_of_the_general_path(native_engine: Engine) -> None:
    sampler = Sampler(PARAMS, engine=native_engine.name, isa=native_engine.isa)
    for bad in (spoilt(np.nan), STEPS[0, :3], STEPS, STEPS[0].astype(np.float64), "row", None):
        sampler.reset()
        sampler(STEPS[0])
        with pytest.raises((TypeError, ValueError)) as prepared:
            sampler(bad)
        sampler._suspend()
        with pytest.raises(type(prepared.value)) as general:
            sampler(bad)
        assert str(prepared.value) == str(general.value)


def test_penalties_are_prepared(native_engine: Engine) -> None:
    prepared, general = pair(native_engine, STEPS[0], PENALISED)
    for rows in (STEPS[1], STEPS[2].astype(np.float16), STEPS[3]):
        assert equal_answers(prepared(rows), general(rows))


def test_a_token_of_the_history_beyond_the_columns_is_declined(native_engine: Engine) -> None:
    sampler, _ = pair(native_engine, STEPS[0], PENALISED)
    sampler.accept([[1], [2], [199], [3]])
    assert step_of(sampler)(STEPS[1, :, :199]) is None
    assert step_of(sampler)(STEPS[1]) is not None


def test_the_reference_engine_prepares_no_calls() -> None:
    sampler = Sampler(PARAMS, engine="reference")
    sampler(STEPS[0])
    assert step_of(sampler) is None


def test_the_last_position() -> None:
    sampler = Sampler(PARAMS)
    sampler.reset(2**64 - 2)
    sampler(ROW)
    step = step_of(sampler)
    expected = sample(
        ROW, temperature=0.9, top_k=60, top_p=0.97, min_p=0.01, seed=21, position=2**64 - 1
    )
    assert step(ROW) == expected.tokens
    assert step(ROW) is None
    assert sampler.position == 2**64


# ---------------------------------------------------------------- changes from outside


CHANGES: dict[str, Callable[[Sampler], Any]] = {
    "reset": lambda sampler: sampler.reset(5),
    "reset of one": lambda sampler: sampler.reset(3, sequences=0),
    "add": lambda sampler: sampler.add(seed=4),
    "remove": lambda sampler: sampler.remove(1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_step_declines_after_the_sequences_have_changed(name: str) -> None:
    """Another thread may hold the step and call it late."""
    sampler = Sampler([SamplingParams(seed=seed) for seed in range(4)])
    sampler(STEPS[0])
    step = step_of(sampler)
    CHANGES[name](sampler)
    before = [sampler.sequence(number).output for number in sampler.ids]
    assert step(STEPS[1]) is None
    assert [sampler.sequence(number).output for number in sampler.ids] == before


def test_accepted_tokens_move_the_next_position() -> None:
    sampler, twin = Sampler(PARAMS), Sampler(PARAMS)
    change_engine(twin, make_step=None)
    for logits in STEPS:
        assert equal_answers(sampler(logits), twin(logits))
        sampler.accept([1, [2, 3], [], 4])
        twin.accept([1, [2, 3], [], 4])


def test_a_step_declines_during_another_call() -> None:
    sampler = Sampler(PARAMS)
    sampler(STEPS[0])
    step = step_of(sampler)
    with used_by_another_thread(sampler, STEPS[1]):
        assert step(STEPS[2]) is None
    assert sampler.position == 2
    assert step(STEPS[2]) is not None


@pytest.mark.parametrize("name", ["reset", "call"])
def test_logits_that_use_the_sampler_when_they_are_read(name: str) -> None:
    """They are read before the call begins, which continues from there."""
    sampler, twin = Sampler(PARAMS), Sampler(PARAMS)
    change_engine(twin, make_step=None)
    for one in (sampler, twin):
        one(ROW)
        uses = [(lambda one=one: one.reset(7)) if name == "reset" else (lambda one=one: one(ROW))]
        tokens = one(ByDlpack(ROW, lambda uses=uses: uses and uses.pop()()))
        assert tokens == one.sequence(0).output[-1]
    assert sampler.sequence(0).output == twin.sequence(0).output
    assert sampler.position == twin.position


def test_a_long_call_locks_the_sampler() -> None:
    """It releases the GIL, so another thread can use the sampler, and gets an error."""
    sampler = Sampler(SamplingParams(top_p=0.999, temperature=3.0, seed=1), n_threads=1)
    rows = np.broadcast_to(RNG.normal(size=2**16).astype(np.float32), (64, 2**16))
    sampler(rows)
    forbid_general_path(sampler)
    done = threading.Event()

    def call_until_done() -> None:
        while not done.is_set():
            sampler(rows)

    thread = threading.Thread(target=call_until_done)
    thread.start()
    try:
        with pytest.raises(RuntimeError, match="this Sampler is in use"):
            for _ in range(10_000):
                if sampler._exclusive.lock.locked():
                    sampler.reset()
    finally:
        done.set()
        thread.join()
    assert not sampler._exclusive.lock.locked()
