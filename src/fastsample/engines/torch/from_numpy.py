"""Plans and logits processors, checked as arrays, as tensors on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastsample.engines import contract
from fastsample.params.ops import DrawMethod
from fastsample.params.table import PENALTY_SCOPES, RNG_POSITION

from .penalties import TensorProcessors
from .prepare_params import FIXED

_RNG_POSITION = tuple(parameter.name for parameter in RNG_POSITION)


def tensor_of(array: NDArray[Any]) -> Tensor:
    """A tensor of an array that is not written again; a constant in a graph that is being made."""
    if torch.compiler.is_compiling():
        dtypes = {"?": torch.bool, "f": torch.float32, "d": torch.float64, "i": torch.int32}
        dtype = dtypes.get(array.dtype.char, torch.int64)
        return torch.tensor(array.tolist(), dtype=dtype, device="cpu").reshape(array.shape)
    return torch.from_numpy(array)


def ops_of(plan: NDArray[np.void]) -> tuple[int, ...]:
    """What the stages of a plan do, which must be the same for all its rows."""
    return tuple(bytes(plan["ops"][0])) if len(plan) else ()


def method_of(plan: NDArray[np.void]) -> DrawMethod:
    """How the rows of a plan are drawn, which must be the same for all."""
    return DrawMethod(int(plan["draw"][0])) if len(plan) else DrawMethod.INVERSE


def numbers_of(plan: NDArray[np.void]) -> NDArray[np.float64]:
    """The numbers of a plan as `TensorRequest` has them."""
    fixed = [plan[name].astype(np.float64) for name in FIXED]
    return np.column_stack([*fixed, plan["values"][:, : len(ops_of(plan))]])


def rng_position_of(plan: NDArray[np.void]) -> NDArray[np.int64]:
    """The seed, position and stream of each row, as int64."""
    return np.column_stack([plan[name].astype(np.int64) for name in _RNG_POSITION])


def scopes_of(plan: NDArray[np.void]) -> tuple[int, ...]:
    """The scopes of the penalties, which must be the same for all rows of a plan."""
    return tuple(int(plan[scope.name][0]) if len(plan) else 0 for scope in PENALTY_SCOPES)


def _padded(lists: contract.TokenLists, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor | None]:
    """The lists of some rows, padded with -1."""
    starts, ends = lists.offsets[rows], lists.offsets[rows + 1]
    width = int((ends - starts).max()) if len(rows) else 0
    tokens = np.full((len(rows), width), -1, np.int64)
    values = None if lists.values is None else np.zeros(tokens.shape, np.float32)
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        tokens[row, : end - start] = lists.tokens[start:end]
        if values is not None and lists.values is not None:
            values[row, : end - start] = lists.values[start:end]
    return tensor_of(tokens), None if values is None else tensor_of(values)


def processors_of(
    processors: contract.LogitsProcessors | None, rows: NDArray[np.int64], scopes: tuple[int, ...]
) -> TensorProcessors:
    """The logits processors of some rows, on the CPU."""
    if processors is None:
        return TensorProcessors(None, None, None, None, None, scopes)
    mask, bias, prompt, output = processors
    if mask is not None:
        mask = np.array(mask if len(mask) == 1 else mask[rows])
        mask = mask.view(np.int32) if mask.dtype == np.uint32 else mask
    tokens, values = (None, None) if bias is None else _padded(bias, rows)
    return TensorProcessors(
        None if mask is None else tensor_of(mask),
        tokens,
        values,
        None if prompt is None else _padded(prompt, rows)[0],
        None if output is None else _padded(output, rows)[0],
        scopes,
    )
