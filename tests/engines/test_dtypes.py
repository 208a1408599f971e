"""float16, bfloat16, rows of other libraries, padded ones: equal values have equal answers."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fastsample import SampleResult, sample
from fastsample.inputs.logits import as_rows
from tests.support.case_loop import each
from tests.support.engines import Engine

try:
    import torch
except ModuleNotFoundError:
    torch = None

try:
    import ml_dtypes
except ModuleNotFoundError:
    ml_dtypes = None

# Values that bfloat16 and float16 both hold exactly.
HALVES = np.random.default_rng(3).integers(-40, 40, (5, 300)).astype(np.float32) / 4
HALVES[0, :7] = -np.inf
SETTINGS: dict[str, Any] = {
    "temperature": [0.0, 0.7, 1.0, 1.5, 0.9],
    "top_k": [0, 40, 0, 100, 7],
    "top_p": [1.0, 0.9, 0.8, 1.0, 0.95],
    "min_p": [0.0, 0.01, 0.0, 0.05, 0.0],
    "seed": [1, 2, 3, 4, 5],
    "position": 6,
    "logprobs": 12,
    "kept_count": True,
    "logprobs_mode": ("raw", "tempered", "processed"),
}


def bfloat16_bits(rows: np.ndarray) -> np.ndarray:
    return (rows.view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def by_ml_dtypes(rows: np.ndarray) -> Any:
    return rows.astype(ml_dtypes.bfloat16)


def by_torch(dtype: str) -> Callable[[np.ndarray], Any]:
    return lambda rows: torch.from_numpy(rows).to(getattr(torch, dtype))


def apart(rows: Any) -> Any:
    """The same tensor with the tokens of a row apart."""
    return rows.t().contiguous().t()


class Foreign:
    """An array of which only DLPack is known."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class OfOldLibrary(Foreign):
    """The same before version 1.0 of the protocol: no keywords but the stream."""

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.array.__dlpack__()


needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")
needs_ml_dtypes = pytest.mark.skipif(ml_dtypes is None, reason="ml_dtypes is not installed")
FORMS = [
    pytest.param(lambda rows: rows.astype(np.float16), id="float16"),
    pytest.param(lambda rows: np.asfortranarray(rows), id="columns apart"),
    pytest.param(lambda rows: rows[:, ::-1].copy()[:, ::-1], id="columns reversed"),
    pytest.param(lambda rows: np.asfortranarray(rows.astype(np.float16)), id="float16 apart"),
    pytest.param(lambda rows: Foreign(rows), id="dlpack"),
    pytest.param(lambda rows: Foreign(rows.astype(np.float16)), id="dlpack float16"),
    pytest.param(lambda rows: OfOldLibrary(rows), id="old dlpack"),
    pytest.param(by_ml_dtypes, id="ml_dtypes", marks=needs_ml_dtypes),
    *(
        pytest.param(make, id=name, marks=[needs_torch, pytest.mark.torch])
        for name, make in {
            "torch float16": by_torch("float16"),
            "torch bfloat16": by_torch("bfloat16"),
            "torch columns apart": lambda rows: apart(by_torch("bfloat16")(rows)),
            "dlpack bfloat16": lambda rows: Foreign(by_torch("bfloat16")(rows)),
            "dlpack bfloat16 apart": lambda rows: Foreign(apart(by_torch("bfloat16")(rows))),
            "old dlpack bfloat16": lambda rows: OfOldLibrary(by_torch("bfloat16")(rows)),
        }.items()
    ),
]


def answers(result: SampleResult) -> list[Any]:
    fields = (result.tokens, result.logprobs, result.ranks, result.top_tokens)
    more = (result.top_logprobs, result.kept_count, result.status)
    return [np.asarray(field).tolist() for field in (*fields, *more)]


@pytest.mark.parametrize("make", FORMS)
def test_equal_values_have_equal_answers(engine: Engine, make: Callable[..., Any]) -> None:
    how = {**SETTINGS, "engine": engine.name, "isa": engine.isa}
    expected = answers(sample(HALVES, **how))
    assert answers(sample(make(HALVES), **how)) == expected
    one_row = {name: value[1] if isinstance(value, list) else value for name, value in how.items()}
    assert answers(sample(make(HALVES[1:2]), **one_row))[0][0] == expected[0][1]


@pytest.mark.parametrize("make", FORMS)
def test_rows_are_not_copied(make: Callable[..., Any]) -> None:
    """What changes in the caller's memory afterwards shows."""
    made = make(HALVES.copy())
    values = as_rows(made).values
    memory = made.array if isinstance(made, Foreign) else made
    before = values[2, 3]
    memory[2, 3] = 77
    assert values[2, 3] != before


def test_bfloat16_is_read_by_its_bits() -> None:
    if ml_dtypes is None:
        pytest.skip("ml_dtypes is not installed")
    rows = as_rows(by_ml_dtypes(HALVES))
    assert rows.values.dtype == np.uint16
    assert np.array_equal(rows.values, bfloat16_bits(HALVES))


@needs_torch
@pytest.mark.torch
@pytest.mark.parametrize("wrap", [Foreign, OfOldLibrary])
def test_memory_is_kept_while_a_call_reads_it(wrap: type[Foreign]) -> None:
    memory = bfloat16_bits(HALVES).view(np.int16)
    ended = weakref.ref(memory)
    rows = as_rows(wrap(torch.from_numpy(memory).view(torch.bfloat16)))
    del memory
    gc.collect()
    assert ended() is not None
    assert np.array_equal(rows.values, bfloat16_bits(HALVES))
    del rows
    gc.collect()
    assert ended() is None


@needs_torch
@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_tensors_in_tensors_out(dtype: str) -> None:
    result = sample(by_torch(dtype)(HALVES), **SETTINGS)
    assert result.tokens.dtype == result.ranks.dtype == result.top_tokens.dtype == torch.int64
    assert result.logprobs.dtype == result.top_logprobs.dtype == torch.float64
    assert result.kept_count.dtype == torch.int64
    assert result.status.dtype == torch.uint8
    assert tuple(result.top_tokens.shape) == (3, 5, 12)


# ---------------------------------------------------------------- padded vocabularies


@each("dtype", [np.float32, np.float16])
@each("valid", [1, 7, 128, 299, 300])
def test_columns_past_the_vocabulary_are_ignored(engine: Engine, dtype: Any, valid: int) -> None:
    rows = HALVES[1:].astype(dtype)
    how = {"engine": engine.name, "isa": engine.isa, "seed": 5, "position": 1, "stream": "row"}
    how.update(
        temperature=0.9, top_p=0.95, logprobs=1, logprobs_mode=("raw", "tempered", "processed")
    )
    expected = answers(sample(rows[:, :valid].copy(), **how))
    padded = rows.copy()
    padded[:, valid:] = np.nan
    padded[0, valid:] = np.inf
    assert answers(sample(padded, valid_vocab=valid, **how)) == expected
