"""Logits as rows that engines read in place."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsample.params.foreign import (
    error_of_tensor,
    fault_of_host_tensor,
    is_tensor,
    spelled,
    way_to_array,
)
from fastsample.params.validation import IntParameter, vocabulary_parameter

from . import dlpack
from .arrays import memory_of

MAX_VOCABULARY = 2**22

_FLOAT32 = np.dtype(np.float32)


class Floats(NamedTuple):
    """An argument that is an array of floats, and the dtypes it may have."""

    name: str
    dtypes: str  # in words
    chars: str  # NumPy's, except for bfloat16
    cast: tuple[str, str]  # what to cast others to, in NumPy and in torch
    fill: str  # for masked arrays


LOGITS = Floats(
    "logits", "float32, float16 or bfloat16", "fe", ("np.float32", "float()"), "-np.inf"
)


class Rows(NamedTuple):
    """Logits as rows in memory, and how results are returned to the caller."""

    # The caller's memory, of shape (B, columns), with any strides and alignment: float32, float16,
    # or uint16, which is bfloat16; or a tensor on a device.
    values: Any
    shape: tuple[int, ...]  # logits.shape[:-1]: () for one row of shape (V,)
    torch: bool  # whether the logits are a torch tensor
    vocabulary: int  # how many columns are tokens: all, or `valid_vocab`


def as_rows(logits: Any, valid_vocab: Any = None, at: Any = None) -> Rows:
    """Check logits on the CPU, as `sample` takes them, and return them as rows.

    They are not copied, unless `at` has a step for each row.
    """
    memory, torch = memory_of_logits(logits)
    if at is not None:
        memory = take_steps(memory, at)
    return rows_of(memory, torch, valid_vocab, logits)


def take_steps(logits: Any, at: Any) -> Any:
    """Take one step of each sequence, of an array or tensor of shape (B, T, V)."""
    shape = tuple(logits.shape)
    if len(shape) != 3:
        raise ValueError(
            f"`at` must select from `logits` of shape (B, T, V), got shape {shape} (leave it out "
            "for rows; of one sequence, of shape (T, V), pass `logits[at]`)"
        )
    n_rows, steps, _ = shape
    place = _step_parameter(int(steps)).values(at, n_rows)
    return logits[np.arange(n_rows), place] if isinstance(place, np.ndarray) else logits[:, place]


def _step_parameter(steps: int) -> IntParameter:
    return IntParameter(
        name="at",
        rule=f"in [-T, T) = [{-steps}, {steps})",
        way_out="a step of `logits` of shape (B, T, V): -1 is the last",
        low=-steps,
        high=steps - 1,
    )


def rows_of(memory: Any, torch: bool, valid_vocab: Any, logits: Any = None) -> Rows:
    """Check the shape of an array or tensor of logits, and return it as rows.

    `logits` is the argument that it is read from, for messages.
    """
    shape = tuple(memory.shape)
    if len(shape) not in (1, 2):
        code = spelled("logits", memory if logits is None else logits)
        way_out = f"pass `{code}.reshape(-1, {shape[-1]})`" if shape else "pass all logits of a row"
        if len(shape) == 3:
            way_out = f"pass `{code}[:, -1]`, the last step, or at=-1 where the function has it"
        raise ValueError(f"`logits` must have shape (V,) or (B, V), got {shape} ({way_out})")
    columns = int(shape[-1])
    vocabulary = columns
    if valid_vocab is not None:
        vocabulary = check_valid_vocab(valid_vocab, columns)
    if not 1 <= vocabulary <= MAX_VOCABULARY:
        raise ValueError(
            f"`logits` must have 1 to 2**22 tokens per row, got shape {shape} "
            "(the last axis is the vocabulary; valid_vocab ends a longer one)"
        )
    return Rows(memory[None] if len(shape) == 1 else memory, shape[:-1], torch, vocabulary)


def check_valid_vocab(valid_vocab: Any, columns: int) -> int:
    """Check how many of so many columns are tokens."""
    way_out = "how many columns of `logits` are tokens; leave it out for all"
    return int(vocabulary_parameter("valid_vocab", 1, columns, way_out).one(valid_vocab))


def memory_of_logits(logits: Any) -> tuple[NDArray[Any], bool]:
    """Return the memory of logits of any shape, and whether they are a torch tensor."""
    if type(logits) is np.ndarray and logits.dtype is _FLOAT32:
        return logits, False
    return memory_of_floats(logits, LOGITS)


def memory_of_floats(value: Any, floats: Floats) -> tuple[NDArray[Any], bool]:
    """Return the memory of an array of floats of any shape, as `memory_of_logits` does."""
    name = floats.name
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"`{name}` must be a plain array, got a masked one "
            f"(pass `{name}.filled({floats.fill})`)"
        )
    if isinstance(value, np.ndarray):
        return _readable(np.asarray(value), floats), False
    if is_tensor(value):
        return memory_of_tensor(value, floats), True
    if hasattr(value, "__dlpack__"):
        memory, is_bfloat16 = dlpack.memory_of(value, name, floats.cast[0])
        if not is_bfloat16:
            memory = _readable(memory, floats, f"np.from_dlpack({name})")
        return memory, False
    way_out = way_to_array(name, value, floats.cast[0]) or "pass an array of NumPy with numbers"
    if hasattr(value, "logits"):
        way_out = "pass `output.logits[:, -1]`"
    raise TypeError(
        f"`{name}` must be a NumPy array, a torch CPU tensor or an array with __dlpack__, got "
        f"{type(value).__name__} ({way_out})"
    )


def memory_of_tensor(tensor: Any, floats: Floats = LOGITS) -> NDArray[Any]:
    """Return the memory of a tensor, or refuse it.

    Reading an attribute of a tensor takes 50 ns: the cause of an error is looked for afterwards.
    """
    torch = sys.modules["torch"]
    is_bfloat16 = tensor.dtype is torch.bfloat16
    memory: NDArray[Any]
    try:
        memory = (tensor.view(torch.int16) if is_bfloat16 else tensor).numpy()
    except Exception as error:
        _require_dtype(tensor, floats)
        raise error_of_tensor(floats.name, tensor, error) from error
    if is_bfloat16 and not tensor.requires_grad:
        return memory.view(np.uint16)
    if memory.dtype.char not in floats.chars:
        _require_dtype(tensor, floats)
    return memory


def _require_dtype(tensor: Any, floats: Floats) -> None:
    """Refuse a tensor of another dtype, and any that requires grad or is not dense."""
    name, (_, cast) = floats.name, floats.cast
    fault = fault_of_host_tensor(name, tensor)
    if fault is not None and not tensor.is_conj():
        raise fault.error(name)
    if str(tensor.dtype).removeprefix("torch.") not in floats.dtypes.replace(",", "").split():
        way_out = f"pass `{name}.real.{cast}`" if tensor.is_complex() else f"pass `{name}.{cast}`"
        raise wrong_dtype(tensor.dtype, floats, way_out)


def _readable(array: NDArray[Any], floats: Floats, code: str = "") -> NDArray[Any]:
    """Return an array with a dtype that engines read, bfloat16 as uint16; refuse others.

    `code` is how hints write the array, where it is not by the name of the argument.
    """
    dtype, code = array.dtype, code or floats.name
    if dtype.char in floats.chars and dtype.isnative:
        return array
    if dtype.name == "bfloat16" and dtype.itemsize == 2:
        return memory_of(array)
    if not dtype.isnative:
        raise TypeError(
            f"`{floats.name}` must be in this machine's byte order, got {dtype.str!r} "
            f"(pass `{code}.astype({code}.dtype.newbyteorder('='))`)"
        )
    raise wrong_dtype(dtype, floats, _way_to_floats(array, code, floats.cast[0]))


def _way_to_floats(array: NDArray[Any], code: str, cast: str) -> str:
    """Say how to make floats of an array of another dtype."""
    if array.dtype.kind == "c":
        return f"pass `{code}.real.astype({cast})`"
    if array.dtype.kind not in "biuf":
        try:
            array.astype(np.float32, casting="same_kind" if array.dtype.kind in "mM" else "unsafe")
        except Exception:  # of any object in it
            return "pass an array of numbers"
    if array.dtype == np.uint16:
        return (
            f"pass `{code}.astype({cast})`, or `({code}.astype(np.uint32) << 16).view(np.float32)` "
            "where it has the bits of bfloat16"
        )
    return f"pass `{code}.astype({cast})`"


def wrong_dtype(dtype: Any, floats: Floats, way_out: str) -> TypeError:
    """Make the error for an array or tensor of another dtype."""
    return TypeError(f"`{floats.name}` must be {floats.dtypes}, got {dtype} ({way_out})")
