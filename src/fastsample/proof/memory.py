"""The same rows in other places: at other distances and alignments, and in narrower dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENTS = (0, 4, 12, 60)
_LINE = 64


def laid_out(rows: NDArray[Any], row_step: int, step: int, offset: int = 0) -> NDArray[Any]:
    """The same rows at these distances in bytes, in memory from `offset` past a cache line on.

    Negative steps lay them down backwards. Steps that make rows overlap are the caller's fault.
    """
    spans = [max(0, n - 1) * by for n, by in zip(rows.shape, (row_step, step), strict=True)]
    before = offset - sum(span for span in spans if span < 0)
    size = _LINE + before + sum(span for span in spans if span > 0) + rows.itemsize
    memory = np.full(size, 0xFF, dtype=np.uint8)
    start = -memory.ctypes.data % _LINE + before
    view: NDArray[Any] = np.ndarray(rows.shape, rows.dtype, memory, start, (row_step, step))
    view[...] = rows
    return view


def aligned(rows: NDArray[Any], offset: int) -> NDArray[Any]:
    """Rows end to end; the first starts so many bytes past a cache line."""
    return laid_out(rows, rows.shape[1] * rows.itemsize, rows.itemsize, offset)


def places(rows: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """The same rows, elsewhere."""
    n_rows, columns = rows.shape
    item = rows.itemsize
    for offset in ALIGNMENTS:
        yield f"offset {offset}", aligned(rows, offset)
    yield "padded rows", laid_out(rows, (columns + 3) * item, item)
    yield "every other column", laid_out(rows, 2 * columns * item, 2 * item)
    yield "columns first", laid_out(rows, item, n_rows * item)
    length = columns * item
    yield "backwards", laid_out(rows, -length, -item)
    odd = laid_out(rows, columns * item + 1, item, 1)
    odd.flags.writeable = False
    yield "unaligned, read-only", odd


def bfloat16_maker() -> str | None:
    """The library that can hold bfloat16 here, as NumPy cannot; None without one."""
    return next((name for name in ("ml_dtypes", "torch") if find_spec(name)), None)


def narrowed(rows: NDArray[np.float32], dtype: str) -> Any:
    """Rows in a dtype that holds their values; None where no library has it."""
    if dtype == "float16":
        return rows.astype(np.float16)
    bits = (rows.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    maker = bfloat16_maker()
    if maker == "ml_dtypes":
        import ml_dtypes

        return bits.view(ml_dtypes.bfloat16)
    if maker == "torch":
        import torch

        return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)
    return None
