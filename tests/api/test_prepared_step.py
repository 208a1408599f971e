"""Prepared calls of a `Sampler`: equal to the general path in all but time; what they decline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fastsample import Sampler, SamplingParams, sample
from tests.support import rounding_modes
from tests.support.case_loop import each
from tests.support.engines import Engine
from tests.support.prepared_calls import ByDlpack, equal_answers, in_some_form
from tests.support.random_requests import DTYPES
from tests.support.random_rows import pick, random_filters
from tests.support.sampler_steps import (
    PARAMS,
    PENALISED,
    STEPS,
    change_engine,
    forbid_general_path,
    prepared_tokens,
    used_by_another_thread,
)

pytest.importorskip("fastsample._native", reason="fastsample._native is not built")

ROW = STEPS[0, 0]


def pair(engine: Engine, first: Any, params: SamplingParams = PARAMS, **how: Any) -> list[Sampler]:
    """Two samplers after the same first call: one with prepared calls only, one with none."""
    prepared, general = (
        Sampler(params, stream="row", engine=engine.name, isa=engine.isa, **how) for _ in range(2)
    )
    change_engine(general, make_step=None)
    prepared(first)
    general(first)
    forbid_general_path(prepared)
    return [prepared, general]


def outputs_of(sampler: Sampler) -> list[list[int]]:
    return [sampler.sequence(number).output for number in sampler.ids]


def step_of(sampler: Sampler) -> Any:
    return sampler._step


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
    sampler, expected = Sampler(PARAMS, stream="row"), Sampler(PARAMS, stream="row")
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
    assert prepared_tokens(sampler, DECLINED[name]) is None
    assert outputs_of(sampler) == outputs_of(twin)
    assert equal_answers(sampler(STEPS[1]), twin(STEPS[1]))


ODD: dict[str, dict[str, Any]] = {
    "a mask that is a list": {"mask": [True] * 200},
    "a mask of integers": {"mask": np.ones(200, np.uint8)},
    "a mask whose columns are apart": {"mask": np.ones(400, bool)[::2]},
    "a mask of other rows": {"mask": np.ones((3, 200), bool)},
    "a mask that is too wide": {"mask": np.ones(201, bool)},
    "a mask without columns": {"mask": np.ones(0, bool)},
    "bits that are too many": {"mask": np.ones(8, np.int32)},
    "a bias at True": {"bias": {True: 1.0}},
    "a bias of a NumPy number": {"bias": {3: np.float32(1)}},
    "a bias of nan": {"bias": {3: float("nan")}},
    "a bias of inf in float32": {"bias": {3: 3.5e38}},
    "a bias of a large integer": {"bias": {3: 2**53 + 1}},
    "a bias past the end": {"bias": {200: 1.0}},
    "a bias below 0": {"bias": {-1: 1.0}},
    "biases of other rows": {"bias": [{3: 1.0}] * 3},
    "a bias that is a set": {"bias": {3}},
    "a bias of one array": {"bias": (np.arange(2),)},
    "a bias of lists": {"bias": ([1, 2], [1.0, 2.0])},
    "a bias of two lengths": {"bias": (np.arange(2), np.ones(3))},
    "a bias with a token twice": {"bias": (np.array([7, 3, 7]), np.ones(3))},
    "a sequence that is unknown": {"sequences": [0, 1, 2, 4]},
    "a sequence that occurs twice": {"sequences": [0, 1, 2, 2]},
    "a sequence below 0": {"sequences": [0, 1, 2, -1]},
    "a sequence of True": {"sequences": [0, True, 2, 3]},
    "a set of sequences": {"sequences": {0, 1, 2, 3}},
    "a step of rows": {"at": 0},
}


@each("name", ODD)
def test_odd_arguments_are_declined_and_change_nothing(native_engine: Engine, name: str) -> None:
    sampler, twin = pair(native_engine, STEPS[0])
    step, details = step_of(sampler), (3, "raw", None, True, "raise")
    arguments = {"at": None, "sequences": None, "mask": None, "bias": None, **ODD[name]}
    assert prepared_tokens(sampler, STEPS[1], **arguments) is None
    assert step.sample(STEPS[1], *arguments.values(), *details) is None
    assert outputs_of(sampler) == outputs_of(twin)
    assert equal_answers(sampler(STEPS[1]), twin(STEPS[1]))


ODD_DETAILS: list[tuple[Any, ...]] = [
    (201, "raw", None, False, "raise"),
    (-1, "raw", None, False, "raise"),
    (True, "raw", None, False, "raise"),
    (np.int64(3), "raw", None, False, "raise"),
    (3, "cooked", None, False, "raise"),
    (None, "cooked", None, False, "raise"),
    (3, ("raw", "raw"), None, False, "raise"),
    (3, (), None, False, "raise"),
    (3, ["raw"], None, False, "raise"),
    (3, ("raw", 1), None, False, "raise"),
    (3, "raw", None, np.True_, "raise"),
    (3, "raw", None, 1, "raise"),
    (3, "raw", None, False, "ignore"),
    (3, "raw", None, False, None),
    (3, "raw", (1, 2), False, "raise"),
    (3, "raw", [200], False, "raise"),
    (3, "raw", [-2], False, "raise"),
    (3, "raw", [True], False, "raise"),
    (3, "raw", [2**70], False, "raise"),
    (3, "raw", [None, [1]], False, "raise"),
    (3, "raw", [[1], [1], [1]], False, "raise"),
    (3, "raw", [[1], [1], [1], [1, 2]], False, "raise"),
    (3, "raw", [[1], [1], [1], 1], False, "raise"),
    (None, "raw", 5, False, "raise"),
    (None, "raw", "yes", False, "raise"),
    (None, "raw", np.array([1.0]), False, "raise"),
    (None, "raw", np.array([[200]] * 4), False, "raise"),
    (None, "raw", np.array([[1]] * 3), False, "raise"),
    (None, "raw", np.array(1), False, "raise"),
    (None, "raw", np.zeros((4, 1, 1), np.int64), False, "raise"),
]


@each("number", range(len(ODD_DETAILS)))
def test_odd_details_are_declined_and_change_nothing(native_engine: Engine, number: int) -> None:
    sampler, twin = pair(native_engine, STEPS[0])
    nothing = (None, None, None, None)
    assert step_of(sampler).sample(STEPS[1], *nothing, *ODD_DETAILS[number]) is None
    assert outputs_of(sampler) == outputs_of(twin)


STEPS_OF_THREE = np.stack([STEPS[1], STEPS[2], STEPS[3]], 1)

PREPARED: dict[str, dict[str, Any]] = {
    "mask": {"mask": np.arange(200) != 3},
    "mask of rows": {"mask": np.arange(800).reshape(4, 200) % 7 != 3},
    "bits": {"mask": np.full((1, 7), 0x55555555, np.int32)},
    "bias": {"bias": {3: 9.0, 4: -3}},
    "biases": {"bias": [{3: 9.0}, None, {}, {5: float("-inf")}]},
    "bias of arrays": {"bias": (np.array([3, 9], np.int32), np.array([9.0, 1.0]))},
    "sequences": {"sequences": [3, 2, 1, 0]},
    "sequences of an array": {"sequences": np.array([3, 2, 1, 0])},
    "at": {"logits": STEPS_OF_THREE, "at": -2},
    "at of rows": {"logits": STEPS_OF_THREE, "at": [0, -1, 1, 2]},
    "at of an array": {"logits": STEPS_OF_THREE, "at": np.array([0, -1, 1, 2], np.int32)},
}


@each("name", PREPARED)
def test_arguments_of_prepared_calls(native_engine: Engine, name: str) -> None:
    for how in ({}, {"valid_vocab": 100}):
        sampler, twin = pair(native_engine, STEPS[0], **how)
        arguments = {"logits": STEPS[1], **PREPARED[name]}
        assert equal_answers(sampler(**arguments), twin(**arguments))
        details = {"logprobs": 3, "logprobs_mode": ("processed", "raw"), "kept_count": True}
        details["logprob_tokens"] = [[1, -1], [99, 3], [0, 0], [5, 6]]
        prepared, general = (one.sample(**arguments, **details) for one in (sampler, twin))
        for field in prepared.__slots__:
            assert equal_answers(getattr(prepared, field), getattr(general, field)), field
        assert outputs_of(sampler) == outputs_of(twin)


def test_marked_rows_of_a_prepared_call(native_engine: Engine) -> None:
    sampler, twin = pair(native_engine, STEPS[0])
    rows = np.where(np.arange(4)[:, None] == 2, np.float32(np.nan), STEPS[1])
    prepared, general = (one.sample(rows, logprobs=2, on_invalid="mark") for one in (sampler, twin))
    for field in prepared.__slots__:
        assert equal_answers(getattr(prepared, field), getattr(general, field)), field
    assert outputs_of(sampler) == outputs_of(twin)
    assert [len(output) for output in outputs_of(sampler)] == [2, 2, 1, 2]


@pytest.mark.skipif(not rounding_modes.KNOWN, reason="the rounding mode cannot be set here")
@each(("mode", "excess", "token"), [("zero", 2.0**-24 + 2.0**-40, 1), ("up", 2.0**-25, 0)])
def test_a_bias_is_rounded_to_nearest(mode: str, excess: float, token: int) -> None:
    """Of two equal logits the lower token is drawn."""
    sampler = Sampler([SamplingParams(temperature=0)])
    bias = {0: 1.0, 1: 1.0 + excess}
    with rounding_modes.rounding(mode):
        found = prepared_tokens(sampler, np.zeros(2, np.float32), bias=bias)
    assert found == token


def test_no_rows_of_continuations_have_the_seed_of_all() -> None:
    sampler, twin = Sampler(PARAMS, stream="row"), Sampler(PARAMS, stream="row")
    change_engine(twin, make_step=None)
    for one in (sampler, twin):
        one(STEPS[0])
        found = one.sample(STEPS[1, :0], sequences=[])
        assert (found.seed, found.tokens.shape) == (PARAMS.seed, (0,))
        assert [len(output) for output in outputs_of(one)] == [1] * 4


def test_a_vocabulary_beyond_the_columns_is_declined(native_engine: Engine) -> None:
    (sampler, _) = pair(native_engine, STEPS[0], valid_vocab=100)
    assert prepared_tokens(sampler, STEPS[1, :, :99]) is None


def test_a_call_without_memory_moves_all_rows_or_none(native_engine: Engine) -> None:
    memory = pytest.importorskip("_testcapi", reason="a Python without its test modules")
    sampler, _ = pair(native_engine, STEPS[0])
    failed = 0
    for start in range(60):
        memory.set_nomemory(start, start + 1)
        try:
            prepared_tokens(sampler, STEPS[1])
        except MemoryError:
            failed += 1
        finally:
            memory.remove_mem_hooks()
        assert len(set(map(len, outputs_of(sampler)))) == 1
    assert failed


def test_errors_are_those_of_the_general_path(native_engine: Engine) -> None:
    sampler = Sampler(PARAMS, stream="row", engine=native_engine.name, isa=native_engine.isa)
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
    sampler, twin = pair(native_engine, STEPS[0], PENALISED)
    for logits in (*STEPS[1:4], STEPS[4].astype(np.float16)):
        assert equal_answers(sampler(logits), twin(logits))
        for one in (sampler, twin):
            one.accept([[5, 6], [], [7], 8])
            one.rewind(1, sequences=0)


def test_a_token_of_the_history_beyond_the_columns_is_declined(native_engine: Engine) -> None:
    sampler, _ = pair(native_engine, STEPS[0], PENALISED)
    sampler.accept([[1], [2], [199], [3]])
    assert prepared_tokens(sampler, STEPS[1, :, :199]) is None
    assert prepared_tokens(sampler, STEPS[1]) is not None


def test_the_reference_engine_prepares_no_calls() -> None:
    sampler = Sampler(PARAMS, stream="row", engine="reference")
    sampler(STEPS[0])
    assert step_of(sampler) is None


def test_the_last_position() -> None:
    sampler = Sampler(PARAMS, stream="row")
    sampler.reset(2**64 - 2)
    sampler(ROW)
    expected = sample(
        ROW, temperature=0.9, top_k=60, top_p=0.97, min_p=0.01, seed=21, position=2**64 - 1
    )
    assert prepared_tokens(sampler, ROW) == expected.tokens
    assert prepared_tokens(sampler, ROW) is None
    assert sampler.position == 2**64


# ---------------------------------------------------------------- changes from outside


CHANGES: dict[str, Callable[[Sampler], Any]] = {
    "reset": lambda sampler: sampler.reset(5),
    "reset of one": lambda sampler: sampler.reset(3, sequences=0),
    "add": lambda sampler: sampler.add(seed=4),
    "remove": lambda sampler: sampler.remove(1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_step_follows_the_sequences(name: str) -> None:
    """Another thread may hold the step and call it late."""
    params = [SamplingParams(seed=seed) for seed in range(4)]
    sampler, twin = Sampler(params), Sampler(params)
    change_engine(twin, make_step=None)
    for one in (sampler, twin):
        one(STEPS[0])
        CHANGES[name](one)
    rows = np.concatenate([STEPS[1], STEPS[2]])[: len(sampler.ids)]
    assert prepared_tokens(sampler, rows[1:]) is None
    assert equal_answers(prepared_tokens(sampler, rows), twin(rows))
    assert outputs_of(sampler) == outputs_of(twin)


def test_accepted_tokens_move_the_next_position() -> None:
    sampler, twin = Sampler(PARAMS, stream="row"), Sampler(PARAMS, stream="row")
    change_engine(twin, make_step=None)
    for logits in STEPS:
        assert equal_answers(sampler(logits), twin(logits))
        sampler.accept([1, [2, 3], [], 4])
        twin.accept([1, [2, 3], [], 4])


def test_a_step_declines_during_another_call() -> None:
    sampler = Sampler(PARAMS, stream="row")
    sampler(STEPS[0])
    with used_by_another_thread(sampler, STEPS[1]):
        assert prepared_tokens(sampler, STEPS[2]) is None
    assert sampler.position == 2
    assert prepared_tokens(sampler, STEPS[2]) is not None


@pytest.mark.parametrize("name", ["reset", "call"])
def test_logits_that_use_the_sampler_when_they_are_read(name: str) -> None:
    """They are read before the call begins, which continues from there."""
    sampler, twin = Sampler(PARAMS, stream="row"), Sampler(PARAMS, stream="row")
    change_engine(twin, make_step=None)
    for one in (sampler, twin):
        one(ROW)
        uses = [(lambda one=one: one.reset(7)) if name == "reset" else (lambda one=one: one(ROW))]
        tokens = one(ByDlpack(ROW, lambda uses=uses: uses and uses.pop()()))
        assert tokens == one.sequence(0).output[-1]
    assert sampler.sequence(0).output == twin.sequence(0).output
    assert sampler.position == twin.position
