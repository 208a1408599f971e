"""What error messages say to do about a mask of the wrong kind, by its dtype, width and values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.params.foreign import is_tensor, way_to_array

from .logits import Rows

_FORBIDDING = -1e4
"""Numbers from here down ban a token where they are added to its logit."""

_BY_TOKEN = "a bool for each token, True where it is allowed"


def dtype_hint(mask: Any, memory: NDArray[Any], rows: Rows) -> str:
    """Say how to make a mask of bools or words from an array of another dtype."""
    if memory.dtype.name.startswith(("bfloat", "float8", "float4")):  # of ml_dtypes
        memory = memory.astype(np.float32)
    is_readable = isinstance(mask, np.ndarray) or is_tensor(mask)
    code = "mask" if is_readable else "np.from_dlpack(mask)"
    if not is_readable and str(getattr(mask, "dtype", "")).endswith(
        "bfloat16"
    ):  # which NumPy lacks
        code = "(mask != 0)" if (memory == 1).any() else "(mask == 0)"
        return f"pass `{code}`" if _of_numbers(memory, False, code) else f"pass {_BY_TOKEN}"
    return _hint(memory, rows, is_tensor(mask), code)


def list_hint(mask: Any, rows: Rows) -> str:
    """Say how to make a mask from what is not an array."""
    if isinstance(mask, (bytes, bytearray, memoryview)) and memoryview(mask).format == "B":
        return _hint(np.frombuffer(mask, np.uint8), rows, False, "np.frombuffer(mask, np.uint8)")
    is_set = isinstance(mask, (set, frozenset))
    way_out = "" if is_set else way_to_array("mask", mask)
    if way_out and "np.asarray" not in way_out:
        return way_out
    if not is_set and not way_out:
        return f"pass {_BY_TOKEN}"
    try:
        array = np.asarray(list(mask) if is_set else mask)
    except (TypeError, ValueError, OverflowError):
        return f"pass an array of {_BY_TOKEN}"
    if array.dtype == np.bool_ and not is_set:
        return "pass `np.asarray(mask)`"
    name = "list(mask)" if is_set else "np.asarray(mask)"
    if is_set:
        return _tokens_hint(array, rows, name) or f"pass {_BY_TOKEN}"
    return _hint(array, rows, False, name)


def device_hint() -> str:
    """Say how to make a mask of a tensor whose values are not read."""
    return (
        "pass `mask.bool()` where 1 allows a token; `mask == 0` where 0 does, as in a mask that is "
        "added to logits"
    )


def width_hint(array: Any, rows: Rows, width: int, code: str, *, has_axes: bool) -> str:
    """Say what to do about a mask of bools or words whose shape is wrong; `code` is the mask."""
    n_rows = int(rows.values.shape[0])
    if not has_axes:
        last = int(array.shape[-1]) if array.ndim else 0
        if array.ndim > 2 and last == width and np.prod(array.shape) == n_rows * width:
            return f"pass `{code}.reshape({n_rows}, {width})`"
        return "one for all rows, or one for each row of `logits`"
    if not array.shape[-1]:
        return f"leave it out where all tokens are allowed, else pass {_BY_TOKEN}"
    if array.shape[-1] < width:
        return 'short_mask="ban" bans the tokens past its end'
    cut = f"`{code}[..., :{width}]`"
    if str(array.dtype).endswith("bool") or not _is_by_token(array.shape[-1], rows):
        return f"pass {cut}"
    if not isinstance(array, np.ndarray):
        return f"pass {cut} where it has words; {device_hint()}"
    values = array.view(np.int32)
    expression = _of_numbers(values, False, code)
    return f"pass {expression}" if expression else f"pass {cut}"


def _is_by_token(width: int, rows: Rows) -> bool:
    return rows.vocabulary <= width <= int(rows.values.shape[1])


def _hint(array: NDArray[Any], rows: Rows, torch: bool, name: str) -> str:
    if array.dtype.kind not in "fiu" or array.ndim == 0:
        return f"pass {_BY_TOKEN}"
    width = int(array.shape[-1])
    if _is_by_token(width, rows):
        expression = _of_numbers(array, torch, name)
        if expression:
            return f"pass {expression}"
        return f"add it to the logits instead, or pass {_BY_TOKEN}"
    if array.dtype.kind == "f":
        return f"pass {_BY_TOKEN}"
    words, tokens = _of_words(array, rows, torch, name), _tokens_hint(array, rows, name)
    if words and tokens:
        return f"it holds words: {words}; tokens: {tokens}"
    return words or tokens or f"pass {_BY_TOKEN}"


def _of_numbers(array: NDArray[Any], torch: bool, name: str) -> str:
    """The mask of numbers for each token: 1 and 0, or 0 and what bans where it is added."""
    is_zero, is_one = array == 0, array == 1
    if (is_zero | is_one).all() and is_one.any():
        return f"`{name}.bool()`" if torch else f"`{name}.astype(bool)`"
    if (is_zero | (array <= _FORBIDDING)).all():
        return f"`{name} == 0`"
    return ""


def _of_words(array: NDArray[Any], rows: Rows, torch: bool, name: str) -> str:
    """The mask of integers that hold 32 bits each, or are bytes of words."""
    width, size = int(array.shape[-1]), array.dtype.itemsize
    words = {-(-rows.vocabulary // 32), -(-int(rows.values.shape[1]) // 32)}
    if size < 4:
        if width * size not in {4 * count for count in words}:
            return _of_packed_bits(array, rows)
        if torch and array.flags.c_contiguous and array.ctypes.data % 4 == 0:
            return "pass `mask.view(torch.int32)`"
        copied = "" if not torch and array.flags.c_contiguous else ".copy()"
        return f"pass `{'np.asarray(mask)' if torch else name}{copied}.view(np.int32)`"
    if width in words:
        return f"pass `{name}.int()`" if torch else f"pass `{name}.astype(np.int32)`"
    return ""


def _of_packed_bits(array: NDArray[Any], rows: Rows) -> str:
    if array.dtype != np.uint8 or array.shape[-1] != -(-rows.vocabulary // 8):
        return ""
    call = f"np.unpackbits(np.asarray(mask), axis=-1, count={rows.vocabulary}"
    return (
        f'pass `{call}, bitorder="little").astype(bool)` where the lowest bit is first; '
        f"`{call}).astype(bool)` where the highest is, as np.packbits writes them"
    )


def _tokens_hint(array: NDArray[Any], rows: Rows, name: str) -> str:
    """The mask of a list of the allowed tokens."""
    if array.ndim != 1 or array.dtype.kind not in "iu" or not array.size:
        return ""
    if array.min() < 0 or array.max() >= rows.vocabulary or len(np.unique(array)) < len(array):
        return ""
    return f"pass `np.isin(np.arange({rows.vocabulary}), {name})`"
