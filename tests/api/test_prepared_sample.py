"""Prepared calls of `sample`: the general way's answers, and which calls they are."""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import numpy as np
import pytest

from fastsample import sample
from fastsample.engines.plan import CHOICES
from tests.support.case_loop import each
from tests.support.engines import Engine
from tests.support.prepared_calls import ByDlpack, equal_answers, in_some_form, refuse
from tests.support.random_requests import DTYPES
from tests.support.random_rows import pick, random_filters
from tests.support.sampler_steps import STEPS

pytest.importorskip("fastsample._native", reason="fastsample._native is not built")

ROW = STEPS[0, 0]


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@each("seed", range(60))
def test_sample_of_any_row(native_engine: Engine, seed: int, tmp_path: Any) -> None:
    rng = np.random.default_rng(seed)
    columns = int(rng.choice([1, 2, 16, 129, 5_000]))
    make = pick(rng, list(DTYPES.values()))
    logits = in_some_form(rng, make(rng, 1, columns), tmp_path)
    if isinstance(logits, ByDlpack):
        logits.array = logits.array[0]
    else:
        logits = logits[0]
    place = {"seed": int(rng.integers(2**64, dtype=np.uint64)), "position": int(rng.integers(99))}
    how = {
        **random_filters(rng, columns),
        **place,
        "engine": native_engine.name,
        "isa": native_engine.isa,
    }
    general = sample(logits, **how, on_invalid="mark")
    if int(general.status):
        with pytest.raises(ValueError, match=r"`logits` (holds|is)"):
            sample(logits, **how)
        return
    prepared = sample(logits, **how)
    for name in ("tokens", "status"):
        assert equal_answers(getattr(prepared, name), getattr(general, name)), name
    assert prepared.seed == general.seed
    assert prepared.logprobs is prepared.ranks is prepared.top_tokens is None
    assert prepared.kept_count is prepared.margin is None


def test_each_parameter_has_its_own_place() -> None:
    """Values are passed in the order of CHOICES."""
    given = {name: 1 + place for place, name in enumerate(CHOICES)}
    module = sys.modules["fastsample.api.sample"]
    prepare = mock.Mock(return_value=None)
    with mock.patch.object(module, "_prepare", prepare), pytest.raises(ValueError, match="must be"):
        sample(ROW, **given, seed=1, position=0)
    assert prepare.call_args.args[-len(CHOICES) :] == tuple(given.values())


def is_prepared(logits: Any, **arguments: Any) -> bool:
    """Whether a call of `sample` goes the prepared way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["fastsample.api.sample"], "as_rows", refuse)
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
        ({"stream": "row"}, True),
        ({"seed": None, "position": None}, True),
        ({"seed": None, "position": 3, "stream": 2}, True),
        ({"mask": np.arange(200) != 3}, True),
        ({"mask": (np.arange(200) != 3).tolist()}, False),
        ({"bias": {3: 1.0, 4: -2}}, True),
        ({"bias": {3: np.float32(1)}}, False),
        ({"n": 1}, False),
        ({"logprobs": 0}, True),
        ({"kept_count": False, "margin": False}, True),
        ({"kept_count": True}, True),
        ({"margin": True}, False),
        ({"valid_vocab": 100}, True),
        ({"valid_vocab": np.int64(100)}, False),
        ({"logprobs": 3, "logprobs_mode": ("processed", "raw")}, True),
        ({"logprob_tokens": [3, -1, 199]}, True),
        ({"logprob_tokens": [[3, 199]], "logprobs": 2, "logprobs_mode": ("tempered",)}, True),
        ({"logprob_tokens": np.array([3, 4], np.int32)}, True),
        ({"logprob_tokens": (3, 4)}, False),
        ({"logprob_tokens": [np.int64(3)]}, False),
        ({"output": [1]}, True),
        ({"prompt": [[3, 4]], "output": np.array([5, 6], np.int32)}, True),
        ({"prompt": np.array([[3, 4]]), "output": []}, True),
        ({"output": (1, 2)}, False),
        ({"output": [True]}, False),
        ({"output": np.array([1], np.uint8)}, False),
        ({"output": [1], "ignore_tokens": [2]}, False),
        ({"engine": "reference"}, False),
    ],
)
def test_what_sample_prepares(arguments: dict[str, Any], expected: bool) -> None:
    assert is_prepared(ROW, **{**PLACE, **arguments}) is expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"stream": "row"}, True),
        ({"seed": None, "position": None}, True),
        ({"seed": [1, 2, 2**64 - 1, 4]}, True),
        ({"position": [5, 0, 5, 1], "stream": [1, 2, 3, 2**32 - 1]}, True),
        ({"stream": "row", "output": [[1], [], [3, 3], [199]]}, True),
        ({"stream": "row", "prompt": np.arange(8).reshape(4, 2)}, True),
        ({}, False),
        ({"stream": "rows"}, False),
        ({"seed": [1, 2, 3]}, False),
        ({"seed": (1, 2, 3, 4)}, False),
        ({"seed": [1, 2, 3, 2**64]}, False),
        ({"seed": [1, 2, 3, True]}, False),
        ({"stream": [0, 1, 2, 2**32]}, False),
        ({"stream": [0, 1, 2, 2**64 - 1]}, False),
        ({"stream": "row", "output": [1, 2, 3, 4]}, False),
        ({"stream": "row", "output": [[1], [], [3]]}, False),
        ({"stream": "row", "output": [[1], [], [3], [200]]}, False),
        ({"stream": "row", "output": [[1], [], [3], [-1]]}, False),
        ({"stream": "row", "output": np.zeros((1, 4, 2), np.int64)}, False),
    ],
)
def test_which_calls_of_several_rows_are_prepared(
    arguments: dict[str, Any], expected: bool
) -> None:
    assert is_prepared(STEPS[0], **{**PLACE, **arguments}) is expected


def histories(rng: np.random.Generator, n_rows: int, columns: int) -> list[Any]:
    lengths = rng.integers(0, 9, n_rows)
    lists = [rng.integers(0, columns, length) for length in lengths]
    forms = [
        lists,
        [one.tolist() for one in lists],
        [one.astype(np.int32) for one in lists],
        rng.integers(0, columns, (n_rows, 5)),
    ]
    return [*forms, *([lists[0], lists[0].tolist()] if n_rows == 1 else [])]


@each("seed", range(60))
def test_any_rows_and_histories(native_engine: Engine, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_rows, columns = int(rng.choice([1, 2, 5])), int(rng.choice([2, 129, 3_000]))
    logits = pick(rng, list(DTYPES.values()))(rng, n_rows, columns)
    if logits.dtype == np.uint16:
        logits = (rng.normal(size=(n_rows, columns)) * 3).astype(np.float32)
    seeds = rng.integers(2**64, size=n_rows, dtype=np.uint64).tolist()
    positions, streams = (rng.integers(99, size=n_rows).tolist() for _ in range(2))
    how = {
        **random_filters(rng, columns),
        "seed": pick(rng, [seeds, seeds[0]]),
        "position": pick(rng, [positions, 7]),
        "stream": pick(rng, ["row", streams, 3]),
        "prompt": pick(rng, [None, *histories(rng, n_rows, columns)]),
        "output": pick(rng, [None, *histories(rng, n_rows, columns)]),
        "repetition_penalty": 1.3,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.2,
        "repetition_scope": pick(rng, ["all", "prompt", 3]),
        "logprobs": int(rng.integers(2)),
        "logprobs_mode": ("raw", "processed"),
        "engine": native_engine.name,
        "isa": native_engine.isa,
    }
    general = sample(logits, **how, on_invalid="mark")
    if general.status.any():
        with pytest.raises(ValueError, match=r"`logits` row \d (holds|is)"):
            sample(logits, **how)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["fastsample.api.sample"], "as_rows", refuse)
        prepared = sample(logits, **how)
    for name in prepared.__slots__:
        assert equal_answers(getattr(prepared, name), getattr(general, name)), name


def test_rows_without_a_seed_get_fresh_ones() -> None:
    first, second = sample(STEPS[0]), sample(STEPS[0])
    assert first.seed != second.seed
    again = sample(STEPS[0], seed=first.seed, position=0, stream="row")
    assert equal_answers(again.tokens, first.tokens)


def test_no_rows_are_prepared() -> None:
    found = sample(STEPS[0][:0], seed=1, position=0)
    assert (found.tokens.shape, found.status.shape) == ((0,), (0,))


def test_settings_that_are_the_same_objects_are_not_prepared_again() -> None:
    module = sys.modules["fastsample.api.sample"]
    cold, warm = float("0.5"), float("1.5")
    expected = [sample(ROW, **PLACE, temperature=t, on_invalid="mark") for t in (cold, warm)]
    with mock.patch.object(module, "_prepare", wraps=module._prepare) as prepare:
        for _ in range(3):
            found = sample(ROW, **PLACE, temperature=cold)
            assert found.tokens == expected[0].tokens
        assert prepare.call_count == 1
        for t, one in zip((warm, cold, warm, cold), (*reversed(expected),) * 2, strict=True):
            assert sample(ROW, **PLACE, temperature=t).tokens == one.tokens
        assert prepare.call_count == 5


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
    first.status[...] = 5
    for position in range(50):
        assert sample(ROW, seed=1, position=position).status == 0
    assert first.tokens == token
