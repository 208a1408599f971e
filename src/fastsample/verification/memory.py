"""The same rows in other places: at other distances and alignments, and in narrower dtypes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENTS = (0, 4, 12, 60)
_LINE = 64

# In dlpack.h: the code of a DLTensor's type lies behind a pointer and three int32.
_CODE_AT, _BFLOAT = 20, 4
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


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


class Bfloat16:
    """An array of bfloat16, which NumPy lacks, for whoever reads DLPack.

    It is lent as NumPy lends its bits, but for the code of their type.

    Parameters
    ----------
    bits : uint16 array, writable, as NumPy lends no other

    Examples
    --------
    >>> from fastsample import logsumexp
    >>> float(logsumexp(Bfloat16(np.array([0x4040], np.uint16))))
    3.0
    """

    dtype = "bfloat16"

    def __init__(self, bits: NDArray[np.uint16]) -> None:
        self._bits = bits
        self.shape, self.ndim = bits.shape, bits.ndim

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._bits.__dlpack_device__()

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self._bits.__dlpack__()
        start = _pointer_in(capsule, b"dltensor")
        ctypes.c_uint8.from_address(start + _CODE_AT).value = _BFLOAT
        return capsule


def narrowed(rows: NDArray[np.float32], dtype: str) -> Any:
    """Rows in float16 or bfloat16, which holds their values."""
    if dtype == "float16":
        return rows.astype(np.float16)
    return Bfloat16((rows.view(np.uint32) >> np.uint32(16)).astype(np.uint16))
