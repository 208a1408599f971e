"""Memory of arrays and torch tensors as NumPy arrays, with bfloat16 as uint16, and back."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.params.foreign import is_tensor


def memory_of(array: Any) -> NDArray[Any]:
    """Return the memory of a NumPy array or a torch CPU tensor, with bfloat16 as uint16."""
    memory: NDArray[Any]
    if is_tensor(array):
        torch = sys.modules["torch"]
        if array.dtype is not torch.bfloat16:
            memory = array.detach().numpy()
            return memory
        memory = array.detach().view(torch.int16).numpy()
        return memory.view(np.uint16)
    memory = array
    return memory.view(np.uint16) if memory.dtype.name == "bfloat16" else memory


def dtype_of(logits: Any, values: NDArray[Any]) -> str:
    """Return the name of the dtype of logits, or of their memory where they have no NumPy dtype."""
    has_dtype = is_tensor(logits) or isinstance(logits, np.ndarray)
    return str(logits.dtype).removeprefix("torch.") if has_dtype else str(values.dtype)


def in_type_of(logits: Any, memory: NDArray[Any]) -> Any:
    """Return memory in the array type and dtype of logits: the inverse of `memory_of`.

    NumPy has no bfloat16: if logits are neither an array nor a tensor, uint16 remains.
    """
    if is_tensor(logits):
        torch = sys.modules["torch"]
        if memory.dtype != np.uint16:
            return torch.from_numpy(memory)
        return torch.from_numpy(memory.view(np.int16)).view(torch.bfloat16)
    is_bfloat16 = memory.dtype == np.uint16 and isinstance(logits, np.ndarray)
    return memory.view(logits.dtype) if is_bfloat16 else memory


def minus_inf(dtype: np.dtype[Any]) -> Any:
    """Return -inf as it is in memory of this dtype."""
    return np.uint16(0xFF80) if dtype == np.uint16 else -np.inf


def widened(bfloat16: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Widen bfloat16, given as its bits.

    Examples
    --------
    >>> widened(np.array([0x3F80, 0xFF80], np.uint16)).tolist()
    [1.0, -inf]
    """
    bits: NDArray[np.uint32] = bfloat16.astype(np.uint32) << np.uint32(16)
    return bits.view(np.float32)


def nearest_float32(numbers: NDArray[Any]) -> NDArray[np.float32]:
    """Round numbers to float32, to nearest, ties to even, in a new array.

    The rounding mode and flush-to-zero of the calling thread change nothing.

    Examples
    --------
    >>> nearest_float32(np.array([0.3, 1e-45, -1e40])).tolist()
    [0.30000001192092896, 1.401298464324817e-45, -inf]
    """
    if numbers.dtype == np.float32:
        return np.array(numbers)
    wide = np.array(numbers, np.float64)
    is_nearest = _ONE + _HALF_ULP == _ONE and _ONE + 1.5 * _HALF_ULP > _ONE
    if not is_nearest or (np.abs(wide) < 2.0**-126).any():
        return _nearest_by_bits(wide.view(np.uint64))
    with np.errstate(over="ignore"):
        return wide.astype(np.float32)


_ONE, _HALF_ULP = 1.0, 2.0**-53


def _nearest_by_bits(bits: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Round float64, given as bits, with integer operations."""
    sign = (bits >> np.uint64(32)).astype(np.uint32) & np.uint32(0x80000000)
    exponent = (bits >> np.uint64(52)).astype(np.int64) & 0x7FF
    fraction = (bits & np.uint64(2**52 - 1)).astype(np.int64)
    # The exponent field of the result; 1 for denormals, which have the same unit as it.
    field = np.maximum(exponent - 896, 1)
    dropped = np.minimum(field - exponent + 925, 62)
    significand = fraction | 2**52
    kept = significand >> dropped
    half = (significand & ((np.int64(1) << dropped) - 1)) - (np.int64(1) << (dropped - 1))
    kept += (half > 0) | ((half == 0) & (kept % 2 == 1))
    magnitude = np.minimum(((field - 1) << 23) + kept, 0x7F800000)
    magnitude[(exponent == 0x7FF) & (fraction > 0)] = 0x7FC00000
    rounded: NDArray[np.float32] = (magnitude.astype(np.uint32) | sign).view(np.float32)
    return rounded
