"""Any array of logits -> rows that an engine reads where they lie; nothing is copied or changed."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_VOCABULARY = 2**22

_FLOAT32 = np.dtype(np.float32)
_PASS_AN_ARRAY = "pass `np.asarray(logits, dtype=np.float32)`"


class Rows(NamedTuple):
    """Logits as every engine takes them, and the form in which they came.

    Attributes
    ----------
    values : float32 array of shape (B, V)
        The caller's memory; column stride 4 bytes, any row stride and alignment.
    shape : tuple of int
        The shape that tokens have: ``logits.shape[:-1]``, so () for one row of shape (V,).
    torch : bool
        Whether the logits came as a torch tensor.
    """

    values: NDArray[np.float32]
    shape: tuple[int, ...]
    torch: bool


def as_rows(logits: Any) -> Rows:
    """Look at logits as rows, without a copy.

    Parameters
    ----------
    logits : float32 NumPy array or torch CPU tensor of shape (V,) or (B, V)
        1 <= V <= 2**22. Read-only and memory-mapped arrays are fine.

    Raises
    ------
    TypeError
        Not such an array, or another dtype or device.
    ValueError
        A shape or a column stride that is not a row's.
    """
    if type(logits) is np.ndarray:
        return _numpy_rows(logits, torch=False)
    if is_tensor(logits):
        return _numpy_rows(_tensor_memory(logits), torch=True)
    if isinstance(logits, np.ma.MaskedArray):
        raise TypeError(
            "`logits` must be a plain array, got a masked one (pass `logits.filled(-np.inf)`)"
        )
    if isinstance(logits, np.ndarray):
        return _numpy_rows(np.asarray(logits), torch=False)
    way_out = "pass `output.logits[:, -1]`" if hasattr(logits, "logits") else _PASS_AN_ARRAY
    raise TypeError(
        "`logits` must be a NumPy array or a torch CPU tensor, got "
        f"{type(logits).__name__} ({way_out})"
    )


def is_tensor(value: Any) -> bool:
    """Tell whether a value is a torch tensor, without loading torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _tensor_memory(logits: Any) -> NDArray[Any]:
    if logits.requires_grad:
        raise TypeError(
            "`logits` must not require grad, got a tensor that does (pass `logits.detach()`)"
        )
    if logits.device.type != "cpu":
        raise TypeError(
            f"`logits` must be on the CPU, got a tensor on {logits.device} (pass `logits.cpu()`)"
        )
    if str(logits.layout) != "torch.strided":
        raise TypeError(f"`logits` must be dense, got {logits.layout} (pass `logits.to_dense()`)")
    if str(logits.dtype) != "torch.float32":
        raise TypeError(f"`logits` must be float32, got {logits.dtype} (pass `logits.float()`)")
    memory: NDArray[Any] = logits.numpy()
    return memory


def _numpy_rows(array: NDArray[Any], *, torch: bool) -> Rows:
    if array.dtype != _FLOAT32:
        raise TypeError(
            f"`logits` must be float32, got {array.dtype} (pass `logits.astype(np.float32)`)"
        )
    shape = array.shape
    if len(shape) == 1:
        values = array[None]
    elif len(shape) == 2:
        values = array
    else:
        raise ValueError(_shape_message(shape))
    if not 1 <= shape[-1] <= MAX_VOCABULARY:
        raise ValueError(
            f"`logits` must have 1 to 2**22 tokens per row, got shape {shape} "
            "(the last axis is the vocabulary)"
        )
    if array.strides[-1] != 4:
        values = _one_column(values, torch=torch)
    return Rows(values, shape[:-1], torch)


def _shape_message(shape: tuple[int, ...]) -> str:
    way_out = "pass `logits[:, -1]`, the last step" if len(shape) == 3 else "one row per sequence"
    return f"`logits` must have shape (V,) or (B, V), got {shape} ({way_out})"


def _one_column(values: NDArray[np.float32], *, torch: bool) -> NDArray[np.float32]:
    """Let a stride pass that no second column and no row uses; refuse any other."""
    n_rows, vocabulary = values.shape
    if n_rows and vocabulary > 1:
        way_out = "logits.contiguous()" if torch else "np.ascontiguousarray(logits)"
        raise ValueError(
            "`logits` must have the tokens of a row side by side, got a column stride of "
            f"{values.strides[1]} bytes (pass `{way_out}`)"
        )
    # NumPy gives a new array without rows the stride 0, which no engine takes.
    side_by_side = np.empty((max(n_rows, 1), vocabulary), np.float32)[:n_rows]
    side_by_side[...] = values
    return side_by_side
