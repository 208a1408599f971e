"""The same rows in other memory layouts, and in narrower dtypes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np

from .rows import Array

ALIGNMENTS = (0, 4, 12, 60)
_LINE = 64

# In dlpack.h the type code of a DLTensor follows a pointer and three int32.
_CODE_AT, _BFLOAT = 20, 4
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def laid_out(rows: Array, row_step: int, step: int, offset: int = 0) -> Array:
    """Copy rows to memory with these strides in bytes, `offset` bytes past a cache line.

    Negative strides store the rows backwards. The strides must not make elements overlap.
    """
    spans = [max(0, n - 1) * by for n, by in zip(rows.shape, (row_step, step), strict=True)]
    before = offset - sum(span for span in spans if span < 0)
    size = _LINE + before + sum(span for span in spans if span > 0) + rows.itemsize
    memory = np.full(size, 0xFF, dtype=np.uint8)
    start = -memory.ctypes.data % _LINE + before
    view: Array = np.ndarray(rows.shape, rows.dtype, memory, start, (row_step, step))
    view[...] = rows
    return view


def layouts(rows: Array) -> Iterator[tuple[str, Array]]:
    """Yield names of memory layouts, and copies of the rows in them."""
    item, length = rows.itemsize, rows.shape[1] * rows.itemsize
    for offset in ALIGNMENTS:
        yield f"offset {offset}", laid_out(rows, length, item, offset)
    yield "padded rows", laid_out(rows, length + 3 * item, item)
    yield "every other column", laid_out(rows, 2 * length, 2 * item)
    yield "columns first", laid_out(rows, item, len(rows) * item)
    yield "backwards", laid_out(rows, -length, -item)
    odd = laid_out(rows, length + 1, item, 1)
    odd.flags.writeable = False
    yield "unaligned, read-only", odd


class Bfloat16:
    """A bfloat16 array from its bits, a writable uint16 array, for functions that read DLPack."""

    dtype = "bfloat16"

    def __init__(self, bits: Array) -> None:
        self.bits, self.shape, self.ndim = bits, bits.shape, bits.ndim
        self.__dlpack_device__ = bits.__dlpack_device__

    def __dlpack__(self, **_: Any) -> Any:
        # NumPy's capsule of the bits, with another type code.
        capsule = self.bits.__dlpack__()
        start = _pointer_in(capsule, b"dltensor")
        ctypes.c_uint8.from_address(start + _CODE_AT).value = _BFLOAT
        return capsule


def narrowed(rows: Array, dtype: str) -> Any:
    """Convert float32 rows to "float16" or "bfloat16", which must hold their values."""
    if dtype == "float16":
        return rows.astype(np.float16)
    return Bfloat16((rows.view(np.uint32) >> np.uint32(16)).astype(np.uint16))
