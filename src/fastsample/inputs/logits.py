"""Any array of logits -> rows that an engine reads where they lie; nothing is copied or changed."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import dlpack
from .arrays import is_tensor, memory_of, require_cpu

MAX_VOCABULARY = 2**22

_FLOAT32 = np.dtype(np.float32)


class Floats(NamedTuple):
    """What an argument that is an array of floats is called in messages, and what it may be.

    Attributes
    ----------
    name : str
    dtypes : str
        All that it may be, in words.
    chars : str
        NumPy's letters for them, bfloat16 aside.
    cast : str
        The dtype that others are to be cast to, and what torch calls that.
    fill : str
        What a masked array's gaps are to be filled with.
    """

    name: str
    dtypes: str
    chars: str
    cast: tuple[str, str]
    fill: str


LOGITS = Floats(
    "logits", "float32, float16 or bfloat16", "fe", ("np.float32", "float()"), "-np.inf"
)


class Rows(NamedTuple):
    """Logits as every engine takes them, and the form in which they came.

    Attributes
    ----------
    values : float32, float16 or uint16 array of shape (B, columns)
        The caller's memory, whatever its strides and alignment; uint16 holds bfloat16.
    shape : tuple of int
        The shape that tokens have: ``logits.shape[:-1]``, so () for one row of shape (V,).
    torch : bool
        Whether the logits came as a torch tensor.
    vocabulary : int
        How many columns are tokens: all, or `valid_vocab`.
    """

    values: NDArray[Any]
    shape: tuple[int, ...]
    torch: bool
    vocabulary: int


def as_rows(logits: Any, valid_vocab: Any = None) -> Rows:
    """Look at logits as rows, without a copy.

    Parameters
    ----------
    logits : array of shape (V,) or (B, V), float32, float16 or bfloat16, on the CPU
        A NumPy array (bfloat16 as the ml_dtypes package has it), a torch tensor, or anything with
        ``__dlpack__``; any strides; read-only and memory-mapped arrays are fine.
    valid_vocab : int, optional
        How many columns are tokens, where the rest is padding. 1 to 2**22, and at most V.

    Raises
    ------
    TypeError
        Not such an array, or another dtype or device.
    ValueError
        A shape that is not a row's, or a `valid_vocab` that is not within it.
    """
    memory, torch = memory_of_logits(logits)
    shape = memory.shape
    if len(shape) == 1:
        values = memory[None]
    elif len(shape) == 2:
        values = memory
    else:
        raise ValueError(shape_message(shape))
    vocabulary = shape[-1] if valid_vocab is None else check_valid(valid_vocab, shape[-1])
    if not 1 <= vocabulary <= MAX_VOCABULARY:
        raise ValueError(
            f"`logits` must have 1 to 2**22 tokens per row, got shape {shape} "
            "(the last axis is the vocabulary)"
        )
    return Rows(values, shape[:-1], torch, vocabulary)


def memory_of_logits(logits: Any) -> tuple[NDArray[Any], bool]:
    """View logits as an array of any shape; return whether they are a torch tensor, too.

    Returns
    -------
    memory : float32, float16 or uint16 array
    torch : bool
    """
    if type(logits) is np.ndarray and logits.dtype is _FLOAT32:
        return logits, False
    return memory_of_floats(logits, LOGITS)


def memory_of_floats(value: Any, floats: Floats) -> tuple[NDArray[Any], bool]:
    """View floats as an array of any shape; return whether they are a torch tensor, too.

    Returns
    -------
    memory : array of one of the dtypes that they may be, uint16 for bfloat16
    torch : bool
    """
    name = floats.name
    if type(value) is np.ndarray:
        return _readable(value, floats), False
    if is_tensor(value):
        return _tensor_memory(value, floats), True
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"`{name}` must be a plain array, got a masked one "
            f"(pass `{name}.filled({floats.fill})`)"
        )
    if isinstance(value, np.ndarray):
        return _readable(np.asarray(value), floats), False
    if hasattr(value, "__dlpack__"):
        memory, is_bfloat16 = dlpack.memory_of(value, name)
        return (memory if is_bfloat16 else _readable(memory, floats)), False
    way_out = f"pass `np.asarray({name}, dtype={floats.cast[0]})`"
    if hasattr(value, "logits"):
        way_out = "pass `output.logits[:, -1]`"
    raise TypeError(
        f"`{name}` must be a NumPy array, a torch CPU tensor or an array with __dlpack__, got "
        f"{type(value).__name__} ({way_out})"
    )


def _tensor_memory(tensor: Any, floats: Floats) -> NDArray[Any]:
    """Look at a tensor's memory, or refuse what no engine reads.

    Reasons for which torch refuses a tensor are checked only after it did: each check takes 50 ns.
    """
    torch = sys.modules["torch"]
    is_bfloat16 = tensor.dtype is torch.bfloat16
    memory: NDArray[Any]
    try:
        memory = (tensor.view(torch.int16) if is_bfloat16 else tensor).numpy()
    except (TypeError, RuntimeError) as error:
        raise _refusal(tensor, floats.name) or error from None
    if is_bfloat16 and not tensor.requires_grad:
        return memory.view(np.uint16)
    if memory.dtype.char not in floats.chars:
        way_out = f"pass `{floats.name}.{floats.cast[1]}`"
        raise _refusal(tensor, floats.name) or wrong_dtype(tensor.dtype, floats, way_out)
    return memory


def _refusal(tensor: Any, name: str) -> TypeError | None:
    """Make the error for a tensor that is no plain one; None where it is."""
    torch = sys.modules["torch"]
    if tensor.requires_grad:
        return TypeError(
            f"`{name}` must not require grad, got a tensor that does (pass `{name}.detach()`)"
        )
    require_cpu(name, tensor)
    if tensor.layout is not torch.strided:
        return TypeError(f"`{name}` must be dense, got {tensor.layout} (pass `{name}.to_dense()`)")
    return None


def _readable(array: NDArray[Any], floats: Floats) -> NDArray[Any]:
    """Refuse a dtype that no engine reads; show bfloat16 as the uint16 that it is to them."""
    dtype, name = array.dtype, floats.name
    if dtype.char in floats.chars and dtype.isnative:
        return array
    if dtype.name == "bfloat16" and dtype.itemsize == 2:
        return memory_of(array)
    if not dtype.isnative:
        raise TypeError(
            f"`{name}` must be in this machine's byte order, got {dtype.str!r} "
            f"(pass `{name}.astype({name}.dtype.newbyteorder('='))`)"
        )
    raise wrong_dtype(dtype, floats, f"pass `{name}.astype({floats.cast[0]})`")


def wrong_dtype(dtype: Any, floats: Floats, way_out: str) -> TypeError:
    """Make the error for an array or tensor of another dtype."""
    return TypeError(f"`{floats.name}` must be {floats.dtypes}, got {dtype} ({way_out})")


def check_valid(valid_vocab: Any, columns: int) -> int:
    """Check how many columns are tokens."""
    if isinstance(valid_vocab, bool) or not isinstance(valid_vocab, (int, np.integer)):
        raise TypeError(
            f"`valid_vocab` must be an integer, got {type(valid_vocab).__name__} {valid_vocab!r} "
            "(how many columns of `logits` are tokens)"
        )
    if not 1 <= valid_vocab <= columns:
        raise ValueError(
            f"`valid_vocab` must be in [1, V] = [1, {columns}], got {valid_vocab} "
            "(how many columns of `logits` are tokens; leave it out for all)"
        )
    return int(valid_vocab)


def shape_message(shape: tuple[int, ...]) -> str:
    """Say what shape logits must have."""
    way_out = "pass `logits[:, -1]`, the last step" if len(shape) == 3 else "one row per sequence"
    return f"`logits` must have shape (V,) or (B, V), got {shape} ({way_out})"
