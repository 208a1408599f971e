"""What came as tensors: what the host can see of them is checked, the rest is looked at where it
lies, and a row that it is bad for is found there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastsample.inputs.logits import LOGITS, MAX_VOCABULARY, check_valid, shape_message, wrong_dtype
from fastsample.params.table import STAGES
from fastsample.params.validation import FloatParameter, Parameter

from .mass import nearest_float32, to_float32
from .penalties import exact

_WITHOUT_FLOAT64 = ("mps",)
_BITS = {"seed": (torch.int64, torch.uint64), "position": (torch.uint64,)}
"""The dtypes that are read as 64 bits, where none is below 0."""


class Shape(NamedTuple):
    """The shape of a batch."""

    n_rows: int
    columns: int
    vocabulary: int
    tokens: tuple[int, ...]


def require_plain(name: str, tensor: Tensor) -> None:
    """Refuse a tensor of another layout, and one that gradients are asked of."""
    if tensor.requires_grad:
        raise TypeError(
            f"`{name}` must not require grad, got a tensor that does (pass `{name}.detach()`)"
        )
    if tensor.is_nested:
        raise TypeError(
            f"`{name}` must be dense, got a nested tensor (pass `torch.stack({name}.unbind())`)"
        )
    if tensor.layout is not torch.strided:
        raise TypeError(f"`{name}` must be dense, got {tensor.layout} (pass `{name}.to_dense()`)")


def shape_of(logits: Tensor, valid_vocab: Any) -> Shape:
    """Check logits but for their values."""
    if logits.device.type in _WITHOUT_FLOAT64:
        raise TypeError(
            f"`logits` must be on a device with float64 and int64, got a tensor on {logits.device} "
            "(pass `logits.cpu()`)"
        )
    require_plain("logits", logits)
    if logits.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise wrong_dtype(logits.dtype, LOGITS, "pass `logits.float()`")
    shape = tuple(logits.shape)
    if len(shape) not in (1, 2):
        raise ValueError(shape_message(shape))
    columns = int(shape[-1])
    vocabulary = columns if valid_vocab is None else check_valid(valid_vocab, columns)
    if not 1 <= vocabulary <= MAX_VOCABULARY:
        raise ValueError(
            f"`logits` must have 1 to 2**22 tokens per row, got shape {shape} "
            "(the last axis is the vocabulary)"
        )
    return Shape(1 if len(shape) == 1 else shape[0], columns, vocabulary, shape[:-1])


# ---------------------------------------------------------------- numbers


def check_numbers(parameter: Parameter, value: Tensor, n_rows: int) -> None:
    """Check a tensor of numbers but for their values."""
    real = isinstance(parameter, FloatParameter)
    if value.dtype == torch.bool or value.is_complex() or (value.is_floating_point() and not real):
        raise parameter.wrong_kind(f"a tensor of {value.dtype}")
    require_plain(parameter.name, value)
    if value.shape not in ((), (n_rows,)):
        raise ValueError(
            f"`{parameter.name}` must be a scalar or have shape (B,) = ({n_rows},), got "
            f"{tuple(value.shape)} (one value per row of `logits`)"
        )


def reals_of(value: Tensor) -> Tensor:
    """The numbers of a tensor as float64.

    Examples
    --------
    >>> reals_of(torch.tensor([0.5, 1e-40])).tolist()
    [0.5, 9.99994610111476e-41]
    """
    if value.dtype in (torch.float32, torch.bfloat16):
        return exact(value.to(torch.float32))
    return value.to(torch.float64)


def wholes_of(value: Tensor) -> Tensor:
    """The integers of a tensor as int64, with the bits of uint64.

    Examples
    --------
    >>> wholes_of(torch.tensor([2**64 - 1], dtype=torch.uint64)).tolist()
    [-1]
    """
    return value.view(torch.int64) if value.dtype == torch.uint64 else value.to(torch.int64)


def out_of_range(
    parameter: Parameter, value: Tensor, stages: tuple[str, ...], draws: int
) -> Tensor | None:
    """Find what the operator cannot: integers past their ends, and filters without a stage."""
    name = parameter.name
    needs_stage = name in STAGES and name not in stages
    if isinstance(parameter, FloatParameter):
        return to_float32(reals_of(value)) != parameter.off[0] if needs_stage else None
    numbers = wholes_of(value)
    if value.dtype in _BITS.get(name, ()):
        return None
    may_be_off = name == "top_k" and value.dtype != torch.uint64
    found = numbers < (-1 if may_be_off else 0)
    if name == "stream":
        found |= numbers > 2**32 - draws
    return found | (numbers > 0) if needs_stage else found


# ---------------------------------------------------------------- mask, bias and histories


def are_tensors(name: str, value: Any) -> bool:
    """Tell a tensor, or a bias with one in it, from what is of the host."""
    return isinstance(value, Tensor) or (
        name == "bias"
        and isinstance(value, tuple)
        and any(isinstance(one, Tensor) for one in value)
    )


def mask_of(mask: Tensor, shape: Shape) -> Tensor:
    """Check a mask; give it two axes."""
    require_plain("mask", mask)
    if mask.dtype == torch.uint32:
        mask = mask.view(torch.int32)
    if mask.dtype not in (torch.bool, torch.int32):
        raise TypeError(
            f"`mask` must be bool, or int32 with a bit per token, got {mask.dtype} "
            "(pass `mask.bool()`)"
        )
    width = shape.columns if mask.dtype == torch.bool else -(-shape.columns // 32)
    shaped = mask[None] if mask.ndim == 1 else mask
    fits = shaped.ndim == 2 and shaped.shape[0] in (1, shape.n_rows)
    if not fits or not 1 <= shaped.shape[1] <= width:
        raise ValueError(
            f"`mask` must have shape ({width},) or ({shape.n_rows}, {width}) for {mask.dtype}, got "
            f"{tuple(mask.shape)} (columns may be missing at the end, and are banned)"
        )
    return shaped


def tokens_of(
    name: str, given: Tensor, shape: Shape, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Tokens, a list per row, -1 for none; and the rows with one out of range.

    A bias may have one list for all rows.
    """
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise TypeError(
            f"`{name}` must hold integers, got {given.dtype} (tokens are columns of `logits`)"
        )
    require_plain(name, given)
    shaped = given[None] if given.ndim == 1 else given
    n_lists = (1, shape.n_rows) if name == "bias" else (shape.n_rows,)
    if shaped.ndim != 2 or shaped.shape[0] not in n_lists:
        raise ValueError(
            f"`{name}` must have shape (B, T), B = {shape.n_rows}, where it is a tensor, got "
            f"{tuple(given.shape)} (-1 fills lists that are short)"
        )
    tokens = wholes_of(shaped.to(device, non_blocking=True))
    least = 0 if given.dtype == torch.uint64 else -1
    outside = (tokens < least) | (tokens >= shape.vocabulary)
    tokens = tokens.masked_fill(outside, -1).expand(shape.n_rows, -1)
    return tokens, outside.any(1)


def bias_of(bias: Any, shape: Shape, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens and values of a bias, and the rows that it is bad for."""
    parts = bias if isinstance(bias, tuple) else (bias,)
    if len(parts) != 2 or not all(isinstance(part, Tensor) for part in parts):
        kinds = " and ".join(type(part).__name__ for part in parts)
        raise TypeError(
            f"`bias` must be a tuple of two tensors (tokens, values), got {kinds} (add one that is "
            "as wide as the rows to `logits`)"
        )
    tokens, bad = tokens_of("bias", parts[0], shape, device)
    values = parts[1]
    if values.shape != parts[0].shape:
        raise ValueError(
            f"`bias` must have a value for each token, got {tuple(values.shape)} values for "
            f"{tuple(parts[0].shape)} tokens (two tensors of one shape)"
        )
    if values.dtype == torch.bool or values.is_complex():
        raise TypeError(
            f"`bias` must have numbers as values, got {values.dtype} (each is added to a logit)"
        )
    require_plain("bias", values)
    values = values.to(device, non_blocking=True)
    if values.dtype != torch.float32:
        values = nearest_float32(reals_of(values))
    values = values.expand(tokens.shape)
    there = tokens >= 0
    bad = bad | (there & ~(values < torch.inf)).any(1)
    ascending = tokens.sort(1).values
    twice = (ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)
    return tokens, values, bad | twice.any(1)
