"""Masks: which tokens may be drawn, as a bool for each or as bits of 32-bit words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.params.foreign import array_of_tensor, at, brief, is_tensor, spelled

from . import dlpack
from .arrays import widened
from .logits import Rows
from .mask_hints import dtype_hint, list_hint, width_hint

SHORT_MASKS = ("raise", "ban")


def is_short_allowed(short_mask: Any) -> bool:
    """Check `short_mask`; return whether a bool mask may lack columns."""
    if isinstance(short_mask, str) and short_mask in SHORT_MASKS:
        return short_mask == "ban"
    raise ValueError(
        f'`short_mask` must be "raise" or "ban", got {brief(short_mask)} ("ban" bans the tokens '
        "past the end of a bool mask)"
    )


def parse_mask(mask: Any, rows: Rows, *, allow_short: bool) -> NDArray[Any] | None:
    """Check a mask, or a list with one or None for each row; None if no row has one.

    Returns
    -------
    bool array of shape (B or 1, M), or uint32 array of shape (B or 1, W), C-contiguous
    """
    if isinstance(mask, (list, tuple)) and any(one is None or _is_array(one) for one in mask):
        return _by_row(mask, rows, allow_short)
    array = _array_of(mask, rows, None)
    require_mask_shape(array.shape, rows, array, mask, allow_short=allow_short)
    return np.ascontiguousarray(array[None] if array.ndim == 1 else array)


def require_mask_shape(
    shape: tuple[int, ...],
    rows: Rows,
    array: Any,
    mask: Any,
    *,
    allow_short: bool,
    row: int | None = None,
) -> None:
    """Check the shape of a mask of bools or words, of one row if it is given.

    The message may look at `array`: an array of NumPy, or a tensor that is not read. `mask` is the
    argument that it comes from.
    """
    n_rows, columns = rows.values.shape
    is_bits = not str(array.dtype).endswith("bool")
    width = -(-columns // 32) if is_bits else columns
    least = 1 if is_bits or allow_short else min(rows.vocabulary, columns)
    has_axes = len(shape) == 1 or (row is None and len(shape) == 2 and shape[0] in (1, n_rows))
    if has_axes and least <= shape[-1] <= width:
        return
    expected = f"({width},)" if row is not None else f"({width},) or ({n_rows}, {width})"
    raise ValueError(
        f"`mask` must have shape {expected}, got {tuple(shape)}{at(row)} "
        f"({width_hint(array, rows, width, spelled('mask', mask), has_axes=has_axes)})"
    )


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "__dlpack__")


def _array_of(mask: Any, rows: Rows, row: int | None) -> NDArray[Any]:
    """Return the memory of a mask, as bool or uint32."""
    memory = _memory_of(mask, rows, row)
    if memory.dtype == np.int32:
        memory = memory.view(np.uint32)
    if memory.dtype in (np.bool_, np.uint32):
        return memory
    dtype = str(mask.dtype).removeprefix("torch.") if is_tensor(mask) else memory.dtype
    raise TypeError(
        f"`mask` must be bool, or int32 with a bit per token, got {dtype}{at(row)} "
        f"({dtype_hint(mask, memory, rows)})"
    )


def _memory_of(mask: Any, rows: Rows, row: int | None) -> NDArray[Any]:
    if isinstance(mask, np.ma.MaskedArray):
        fill = "-np.inf" if mask.dtype.kind == "f" and (mask.compressed() <= 0).all() else "0"
        raise TypeError(
            f"`mask` must be a plain array, got a masked one{at(row)} (pass `mask.filled({fill})`)"
        )
    if isinstance(mask, np.ndarray):
        return mask
    if is_tensor(mask):
        return array_of_tensor("mask", mask.detach() if mask.requires_grad else mask, row)
    if hasattr(mask, "__dlpack__"):
        memory, is_bfloat16 = dlpack.memory_of(mask, "mask")
        return widened(memory) if is_bfloat16 else memory
    raise TypeError(
        f"`mask` must be an array, got {type(mask).__name__}{at(row)} ({list_hint(mask, rows)})"
    )


# ---------------------------------------------------------------- a list


def _by_row(masks: Any, rows: Rows, allow_short: bool) -> NDArray[Any] | None:
    n_rows = len(rows.values)
    if len(masks) != n_rows:
        raise ValueError(
            f"`mask` must have one entry for each of the {n_rows} rows, got {len(masks)} "
            "(one per row of `logits`, in their order; None allows all tokens)"
        )
    arrays: list[NDArray[Any] | None] = []
    for b, mask in enumerate(masks):
        array = None if mask is None else _array_of(mask, rows, b)
        if array is not None:
            require_mask_shape(array.shape, rows, array, mask, allow_short=allow_short, row=b)
        arrays.append(array)
    given = [array for array in arrays if array is not None]
    if not given:
        return None
    are_bits = all(array.dtype == np.uint32 for array in given)
    columns = int(rows.values.shape[1])
    width = -(-columns // 32) if are_bits else columns
    stacked = np.zeros((n_rows, width), np.uint32 if are_bits else np.bool_)
    for target, array in zip(stacked, arrays, strict=True):
        if array is None:
            target[:] = np.uint32(0xFFFFFFFF) if are_bits else True
            continue
        plain = array if array.dtype == stacked.dtype else _bools_of(array)[:width]
        target[: len(plain)] = plain
    return stacked


def _bools_of(words: NDArray[np.uint32]) -> NDArray[np.bool_]:
    bits = (words[:, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
    return np.asarray(bits.ravel(), np.bool_)
