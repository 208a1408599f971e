"""What was checked as arrays, laid out as tensors: plans by columns, lists side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastsample.engines import contract as checked
from fastsample.params.table import BY_NAME, STAGES

from .penalties import Adjustments

REALS = (
    *("temperature", "top_p", "min_p"),
    *("repetition_penalty", "frequency_penalty", "presence_penalty"),
)
WHOLES = ("top_k", "min_keep")
PLACE = ("seed", "position", "stream")
SCOPES = ("repetition_scope", "frequency_scope", "presence_scope")


def tensor_of(array: NDArray[Any]) -> Tensor:
    """A tensor of an array that nobody else writes; a constant in a graph that is being made."""
    if torch.compiler.is_compiling():
        dtypes = {"?": torch.bool, "f": torch.float32, "d": torch.float64, "i": torch.int32}
        dtype = dtypes.get(array.dtype.char, torch.int64)
        return torch.tensor(array.tolist(), dtype=dtype, device="cpu").reshape(array.shape)
    return torch.from_numpy(array)


def arrays_of(plan: NDArray[np.void], names: tuple[str, ...]) -> list[NDArray[Any]]:
    """Columns of a plan: float64, or int64 with the bits of what is unsigned.

    All rows have the same stages; a stage that is in none of them has its off value.
    """
    dtype = np.float64 if names is REALS else np.int64
    return [_column(plan, name).astype(dtype) for name in names]


def _column(plan: NDArray[np.void], name: str) -> NDArray[Any]:
    values: NDArray[np.float64]
    if name in (plan.dtype.names or ()):
        return plan[name]
    stages = bytes(plan["stages"][0]) if len(plan) else b""
    place = stages.find(1 + STAGES.index(name))
    if place < 0:
        return np.full(len(plan), BY_NAME[name].off[0], np.float64)
    values = np.minimum(plan["values"][:, place], 2.0**53)
    return values


def stages_code(names: tuple[str, ...]) -> int:
    """An order of stages as the operator takes it: four bits each, the first lowest."""
    return sum((1 + STAGES.index(name)) << (4 * place) for place, name in enumerate(names))


def columns(plan: NDArray[np.void], names: tuple[str, ...]) -> Tensor:
    """Columns of a plan beside each other, as `arrays_of` has them."""
    return tensor_of(np.stack(arrays_of(plan, names), axis=1))


def scopes_of(plan: NDArray[np.void]) -> tuple[int, int, int]:
    """The scopes of the penalties, which are the same for all rows of a plan."""
    r, f, s = (int(plan[name][0]) if len(plan) else 0 for name in SCOPES)
    return r, f, s


def padded(lists: checked.Csr, some: NDArray[np.int64]) -> tuple[Tensor, Tensor | None]:
    """The lists of some rows side by side, -1 where they are short."""
    starts, ends = lists.offsets[some], lists.offsets[some + 1]
    width = int((ends - starts).max()) if len(some) else 0
    tokens = np.full((len(some), width), -1, np.int64)
    values = None if lists.values is None else np.zeros(tokens.shape, np.float32)
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        tokens[row, : end - start] = lists.tokens[start:end]
        if values is not None and lists.values is not None:
            values[row, : end - start] = lists.values[start:end]
    return tensor_of(tokens), None if values is None else tensor_of(values)


def adjustments_of(
    given: checked.Adjustments | None, some: NDArray[np.int64], scopes: tuple[int, int, int]
) -> Adjustments:
    """The adjustments of some rows, on the CPU."""
    if given is None:
        return Adjustments(None, None, None, None, None, scopes)
    mask, bias, prompt, output = given
    if mask is not None:
        mask = np.array(mask if len(mask) == 1 else mask[some])
        mask = mask.view(np.int32) if mask.dtype == np.uint32 else mask
    tokens, values = (None, None) if bias is None else padded(bias, some)
    return Adjustments(
        None if mask is None else tensor_of(mask),
        tokens,
        values,
        None if prompt is None else padded(prompt, some)[0],
        None if output is None else padded(output, some)[0],
        scopes,
    )


def require_exact(reduction: str) -> None:
    """Refuse the reductions that these engines have no order for."""
    if reduction != "exact":
        raise ValueError(
            f"`reduction` must be \"exact\" for engines 'torch' and 'triton', got {reduction!r} "
            '(another engine has it: engine="native" for logits on the CPU)'
        )
