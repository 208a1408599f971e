"""Prepared calls: equal to the general way in all but time, and declined where anything is odd."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jobs import DTYPES, anywhere
from sampler_steps import PARAMS, PENALISED, RNG, STEPS
from strategies import Rng, pick, random_filters
from support import Engine, same_bits, usable_engines

from fastsample import Sampler, SamplingParams, sample

try:
    import torch
except ModuleNotFoundError:
    torch = None
try:
    import ml_dtypes
except ModuleNotFoundError:
    ml_dtypes = None

pytest.importorskip("fastsample._native", reason="fastsample._native is not built")

ROW = STEPS[0, 0]


class Labelled(np.ndarray):
    """An array of somebody else's class."""


class ByDlpack:
    """Logits that are neither an array nor a tensor; `before` runs while they are looked at."""

    def __init__(self, array: np.ndarray, before: Callable[[], Any] = lambda: None) -> None:
        self.array, self.before = array, before

    def __dlpack__(self, **keywords: Any) -> Any:
        self.before()
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def refuse(*_: Any) -> None:
    pytest.fail("the general way was gone")


@pytest.fixture(params=usable_engines()[1:], ids=lambda engine: engine.isa)
def native(request: pytest.FixtureRequest) -> Engine:
    """The engine that prepares calls, on every instruction set."""
    return request.param


def pair(engine: Engine, first: Any, params: SamplingParams = PARAMS, **how: Any) -> list[Sampler]:
    """Two samplers after the same first call: one that only goes prepared ways, one that never."""
    samplers = []
    for is_prepared in (True, False):
        sampler = Sampler(params, engine=engine.name, isa=engine.isa, **how)
        if not is_prepared:
            sampler._make_step = None
        sampler(first)
        if is_prepared:
            sampler._draw = refuse
        samplers.append(sampler)
    return samplers


def equal_answers(one: Any, other: Any) -> bool:
    """Of the same type, and equal."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return same_bits(one, other)
    if torch is not None and isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return bool(one == other)


# ---------------------------------------------------------------- any rows


def in_some_form(rng: Rng, rows: np.ndarray, folder: Any) -> Any:
    """The same logits as one of the things that can hold them."""
    if rows.dtype == np.uint16:  # bfloat16
        forms = []
        if ml_dtypes is not None:
            forms.append(lambda: rows.view(ml_dtypes.bfloat16))
        if torch is not None:
            forms.append(lambda: torch.from_numpy(rows.view(np.int16).copy()).view(torch.bfloat16))
        if not forms:
            pytest.skip("needs ml_dtypes or torch for bfloat16")
        return pick(rng, forms)()

    def frozen() -> np.ndarray:
        copy = rows.copy()
        copy.flags.writeable = False
        return copy

    def mapped() -> np.ndarray:
        np.save(folder / "rows.npy", rows)
        return np.load(folder / "rows.npy", mmap_mode="r")

    forms = [
        *[lambda: anywhere(rng, rows)] * 3,
        *(frozen, mapped),
        lambda: rows.view(Labelled),
        lambda: ByDlpack(rows),
    ]
    if torch is not None:
        padded = np.concatenate([rows, rows], axis=-1)
        forms.append(lambda: torch.from_numpy(padded)[:, : rows.shape[1]])
        forms.append(lambda: torch.from_numpy(np.ascontiguousarray(rows.T)).T)
    return pick(rng, forms)()


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("seed", range(60))
def test_any_rows(native: Engine, seed: int, tmp_path: Any) -> None:
    rng = np.random.default_rng(seed)
    n_rows = int(rng.choice([1, 1, 2, 5]))
    columns = int(rng.choice([1, 2, 16, 129, 1_000, 5_000]))
    params = SamplingParams(**random_filters(rng, columns), seed=seed)
    make = pick(rng, list(DTYPES.values()))
    is_one = n_rows == 1 and rng.random() < 0.7
    how = {"valid_vocab": int(rng.integers(1, columns + 1)) if rng.random() < 0.3 else None}
    first = np.zeros((columns,) if is_one else (n_rows, columns), np.float32)
    prepared, general = pair(native, first, params, **how)
    for _ in range(4):
        logits = in_some_form(rng, make(rng, n_rows, columns), tmp_path)
        if is_one and not isinstance(logits, ByDlpack):
            logits = logits[0]
        elif is_one:
            logits.array = logits.array[0]
        try:
            expected = general(logits)
        except ValueError:
            with pytest.raises(pytest.fail.Exception, match="the general way was gone"):
                prepared(logits)
        else:
            assert equal_answers(prepared(logits), expected)
        assert [prepared.sequence(b).output for b in prepared.ids] == [
            general.sequence(b).output for b in general.ids
        ]


def test_rows_of_another_shape_go_the_general_way() -> None:
    sampler, expected = Sampler(PARAMS), Sampler(PARAMS)
    expected._make_step = None
    for logits in (ROW, ROW[None], ROW[:100], STEPS[1, :1, :150], ROW.astype(np.float16), ROW):
        assert equal_answers(sampler(logits), expected(logits))


def test_named_sequences() -> None:
    params = [SamplingParams(seed=seed) for seed in range(3)]
    sampler, expected = Sampler(params), Sampler(params)
    expected._make_step = None
    both = [[2, 0], (2, 0), range(2, -1, -2), np.array([2, 0])]
    calls: list[Any] = [None, None, *both, 1, [1], None]
    for position, ids in enumerate(calls):
        rows = STEPS[position % 8, : 3 if ids is None else np.size(ids)]
        assert equal_answers(sampler(rows, sequences=ids), expected(rows, sequences=ids))
    with pytest.raises(TypeError, match="must be numbers of sequences, got bool True"):
        sampler(STEPS[0, :1], sequences=True)
        sampler(STEPS[0, :1], sequences=(True,))


# ---------------------------------------------------------------- what is declined


def spoilt(value: float) -> np.ndarray:
    return np.where(np.arange(200) == 7, np.float32(value), STEPS[0])


def one_banned() -> np.ndarray:
    return np.arange(200) != 3


DECLINED: dict[str, dict[str, Any]] = {
    "mask": {"mask": one_banned()},
    "bias": {"bias": {3: 9.0}},
    "sequences": {"sequences": [3, 2, 1, 0]},
    "rows": {"logits": STEPS[0, :3]},
    "one row": {"logits": ROW},
    "columns": {"logits": STEPS[0, :, :100]},
    "dimensions": {"logits": STEPS},
    "nan": {"logits": spoilt(np.nan)},
    "inf": {"logits": spoilt(np.inf)},
    "empty": {"logits": np.full((4, 200), -np.inf, np.float32)},
}


@pytest.mark.parametrize("name", DECLINED)
def test_what_is_declined_changes_nothing(native: Engine, name: str) -> None:
    given = {"logits": STEPS[1], "sequences": None, "mask": None, "bias": None, **DECLINED[name]}
    sampler, twin = pair(native, STEPS[0])
    batch = sampler._roster.batch
    assert batch.step(*given.values()) is None
    assert [one.tolist() for one in batch.outputs] == [twin.sequence(b).output for b in twin.ids]
    assert equal_answers(sampler(STEPS[1]), twin(STEPS[1]))


def test_errors_are_those_of_the_general_way(native: Engine) -> None:
    sampler = Sampler(PARAMS, engine=native.name, isa=native.isa)
    for bad in (spoilt(np.nan), STEPS[0, :3], STEPS, STEPS[0].astype(np.float64), "row", None):
        sampler.reset()
        sampler(STEPS[0])
        with pytest.raises((TypeError, ValueError)) as prepared:
            sampler(bad)
        sampler._roster._take_batch()
        with pytest.raises(type(prepared.value)) as general:
            sampler(bad)
        assert str(prepared.value) == str(general.value)


def test_penalties_are_not_prepared() -> None:
    sampler = Sampler(PENALISED)
    sampler(STEPS[0])
    assert sampler._roster.batch.step is None


def test_the_reference_prepares_nothing() -> None:
    sampler = Sampler(PARAMS, engine="reference")
    sampler(STEPS[0])
    assert sampler._roster.batch.step is None


def test_the_last_position() -> None:
    sampler = Sampler(PARAMS)
    sampler.reset(2**64 - 2)
    sampler(ROW)
    step = sampler._roster.batch.step
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
def test_a_step_is_over_when_the_sequences_change(name: str) -> None:
    """A thread that holds it may be late: what it then does must be as if it came after."""
    sampler = Sampler([SamplingParams(seed=seed) for seed in range(4)])
    sampler(STEPS[0])
    step = sampler._roster.batch.step
    CHANGES[name](sampler)
    before = [sampler.sequence(number).output for number in sampler.ids]
    assert step(STEPS[1]) is None
    assert [sampler.sequence(number).output for number in sampler.ids] == before


def test_accepted_tokens_move_the_next_position() -> None:
    sampler, twin = Sampler(PARAMS), Sampler(PARAMS)
    twin._make_step = None
    for logits in STEPS:
        assert equal_answers(sampler(logits), twin(logits))
        sampler.accept([1, [2, 3], [], 4])
        twin.accept([1, [2, 3], [], 4])


def test_a_step_keeps_out_of_anothers_turn() -> None:
    sampler = Sampler(PARAMS)
    sampler(STEPS[0])
    step = sampler._roster.batch.step
    with sampler._turn:
        assert step(STEPS[1]) is None
    assert step(STEPS[1]) is not None


@pytest.mark.parametrize("name", ["reset", "call"])
def test_logits_that_use_the_sampler_while_they_are_looked_at(name: str) -> None:
    """As a signal's handler may: the call goes on from where that left the sampler."""
    sampler, twin = Sampler(PARAMS), Sampler(PARAMS)
    twin._make_step = None
    for one in (sampler, twin):
        one(ROW)
        uses = [(lambda one=one: one.reset(7)) if name == "reset" else (lambda one=one: one(ROW))]
        tokens = one(ByDlpack(ROW, lambda uses=uses: uses and uses.pop()()))
        assert tokens == one.sequence(0).output[-1]
    assert sampler.sequence(0).output == twin.sequence(0).output
    assert sampler.position == twin.position


def test_a_long_call_takes_the_turn() -> None:
    """It lets go of the GIL, so another thread can come; that one is refused."""
    sampler = Sampler(SamplingParams(top_p=0.999, temperature=3.0, seed=1), n_threads=1)
    rows = np.broadcast_to(RNG.normal(size=2**16).astype(np.float32), (64, 2**16))
    sampler(rows)
    sampler._draw = refuse
    done = threading.Event()

    def call_until_done() -> None:
        while not done.is_set():
            sampler(rows)

    thread = threading.Thread(target=call_until_done)
    thread.start()
    try:
        with pytest.raises(RuntimeError, match="another thread"):
            for _ in range(10_000):
                if sampler._turn.owner:
                    sampler.reset()
    finally:
        done.set()
        thread.join()
    assert sampler._turn.owner == {}


# ---------------------------------------------------------------- sample


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("seed", range(60))
def test_sample_of_any_row(native: Engine, seed: int, tmp_path: Any) -> None:
    rng = np.random.default_rng(seed)
    columns = int(rng.choice([1, 2, 16, 129, 5_000]))
    make = pick(rng, list(DTYPES.values()))
    logits = in_some_form(rng, make(rng, 1, columns), tmp_path)
    if isinstance(logits, ByDlpack):
        logits.array = logits.array[0]
    else:
        logits = logits[0]
    place = {"seed": int(rng.integers(2**64, dtype=np.uint64)), "position": int(rng.integers(99))}
    how = {**random_filters(rng, columns), **place, "engine": native.name, "isa": native.isa}
    general = sample(logits, **how, on_invalid="mark")
    if int(general.status):
        with pytest.raises(ValueError, match=r"`logits` (holds|is)"):
            sample(logits, **how)
        return
    prepared = sample(logits, **how)
    for name in ("tokens", "kept_count", "status"):
        assert equal_answers(getattr(prepared, name), getattr(general, name)), name
    assert prepared.seed == general.seed
    assert prepared.logprobs is prepared.ranks is prepared.top_tokens is None


def is_prepared(logits: Any, **arguments: Any) -> bool:
    """Whether a call of `sample` goes the prepared way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["fastsample.sample"], "as_rows", refuse)
        try:
            sample(logits, **arguments)
        except pytest.fail.Exception:
            return False
    return True


PLACE = {"seed": 1, "position": 2}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, True),
        ({"stream": 3, "temperature": 0, "top_k": None, "min_keep": 2}, True),
        ({"presence_penalty": 2, "repetition_scope": 8, "n_threads": 2}, True),
        ({"stages": ("top_k", "top_p", "temperature", "min_p")}, True),
        ({"temperature": np.float64(0.5)}, True),
        ({"temperature": np.float32(0.5)}, False),
        ({"stages": ["top_k", "top_p", "temperature", "min_p"]}, False),
        ({"position": np.int64(2)}, False),
        ({"temperature": [0.5]}, False),
        ({"seed": [1]}, False),
        ({"stream": "row"}, False),
        ({"mask": one_banned()}, False),
        ({"n": 1}, False),
        ({"logprobs": 0}, False),
        ({"valid_vocab": 100}, False),
        ({"engine": "reference"}, False),
    ],
)
def test_what_sample_prepares(arguments: dict[str, Any], expected: bool) -> None:
    assert is_prepared(ROW, **{**PLACE, **arguments}) is expected


def test_only_one_row_without_an_axis_is_prepared() -> None:
    assert is_prepared(ROW, **PLACE)
    assert not is_prepared(STEPS[0], **PLACE, stream="row")
    assert not is_prepared(ROW)  # a fresh seed


@pytest.mark.parametrize("name", ["top_k", "temperature", "min_keep", "seed", "position", "stream"])
def test_true_does_not_pass_for_1(name: str) -> None:
    given = {**PLACE, name: 1}
    sample(ROW, **given)
    with pytest.raises(TypeError, match=f"`{name}` must be a"):
        sample(ROW, **{**given, name: True})


@pytest.mark.parametrize("name", ["seed", "position", "stream"])
@pytest.mark.parametrize("value", [-1, 2**64, 2**70])
def test_places_out_of_range(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"`{name}` must be in \[0, 2\*\*"):
        sample(ROW, **{**PLACE, name: value})


def test_results_have_memory_of_their_own() -> None:
    first = sample(ROW, **PLACE)
    token = int(first.tokens)
    first.kept_count[...] = -5
    for position in range(50):
        assert sample(ROW, seed=1, position=position).kept_count == 200
    assert first.tokens == token
