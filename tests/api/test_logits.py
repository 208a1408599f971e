"""Rows: which arrays are taken as they lie."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastsample.inputs.logits import as_rows

LOGITS = np.arange(24, dtype=np.float32).reshape(4, 6)


class Labelled(np.ndarray):
    """An array of somebody else's class."""


def unaligned(array: np.ndarray) -> np.ndarray:
    """Equal values, one byte off any float's alignment."""
    memory = np.zeros(array.nbytes + 1, np.uint8)
    moved = memory[1:].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


def test_one_row() -> None:
    rows = as_rows(LOGITS[0])
    assert rows.values.shape == (1, 6)
    assert rows.shape == ()
    assert not rows.torch


@pytest.mark.parametrize(
    "array",
    [
        LOGITS,
        LOGITS[::-1],
        LOGITS[::2, 1:5],
        np.broadcast_to(LOGITS[0], (3, 6)),
        unaligned(LOGITS),
        LOGITS.view(Labelled),
        LOGITS[:0],
        LOGITS[:, :1].copy(),
        LOGITS[:, ::-2],
        LOGITS.T,
        LOGITS[:, 3:4],
        np.broadcast_to(LOGITS[:, :1], (4, 6)),
        LOGITS.astype(np.float16),
        unaligned(LOGITS.astype(np.float16))[::-1, 1:],
    ],
    ids=[
        *("plain", "reversed", "part", "broadcast", "unaligned", "subclass", "no rows"),
        *("one token", "columns", "transposed", "one column", "equal columns", "halves"),
        "unaligned halves",
    ],
)
def test_memory_is_shared(array: np.ndarray) -> None:
    rows = as_rows(array)
    assert np.array_equal(rows.values, array)
    assert rows.values.strides == array.strides
    assert rows.values.ctypes.data == array.ctypes.data
    assert type(rows.values) is np.ndarray
    assert rows.shape == array.shape[:-1]


def test_memory_maps(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", LOGITS)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert np.shares_memory(as_rows(mapped).values, mapped)


def test_the_largest_vocabulary() -> None:
    assert as_rows(np.zeros(2**22, np.float32)).values.shape == (1, 2**22)


def test_a_larger_array_may_hold_a_smaller_vocabulary() -> None:
    rows = as_rows(np.zeros(2**22 + 1, np.float32), 2**22)
    assert (rows.values.shape, rows.vocabulary) == ((1, 2**22 + 1), 2**22)


@pytest.mark.parametrize("valid", [1, 5, 6, np.int16(3)])
def test_valid_vocab(valid: int) -> None:
    rows = as_rows(LOGITS, valid)
    assert rows.values.shape == (4, 6)
    assert rows.vocabulary == valid
    assert type(rows.vocabulary) is int
    assert as_rows(LOGITS).vocabulary == 6
