"""Logits in every form that prepared calls take, and comparisons of their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.engines import same_bits
from tests.support.random_requests import in_random_layout
from tests.support.random_rows import Rng, pick

try:
    import torch
except ModuleNotFoundError:
    torch = None
try:
    import ml_dtypes
except ModuleNotFoundError:
    ml_dtypes = None


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
    pytest.fail("the general path was taken")


def equal_answers(one: Any, other: Any) -> bool:
    """Of the same type, and equal."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return same_bits(one, other)
    if torch is not None and isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return bool(one == other)


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
        # A file of its own: another case may still have its file mapped.
        path = folder / f"rows-{len(list(folder.iterdir()))}.npy"
        np.save(path, rows)
        return np.load(path, mmap_mode="r")

    forms = [
        *[lambda: in_random_layout(rng, rows)] * 3,
        *(frozen, mapped),
        lambda: rows.view(Labelled),
        lambda: ByDlpack(rows),
    ]
    if torch is not None:
        padded = np.concatenate([rows, rows], axis=-1)
        forms.append(lambda: torch.from_numpy(padded)[:, : rows.shape[1]])
        forms.append(lambda: torch.from_numpy(np.ascontiguousarray(rows.T)).T)
    return pick(rng, forms)()
