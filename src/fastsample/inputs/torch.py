"""Arguments that are tensors of torch, checked without reading a value from their device.

Dtypes, layouts and shapes raise, as for arrays. Values are checked on the device, which gives the
rows that have a bad one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fastsample.params.foreign import require_plain
from fastsample.params.ignored_tokens import NONE_IGNORED, IgnoredTokens
from fastsample.params.stages import is_on
from fastsample.params.table import STAGES
from fastsample.params.validation import CountParameter, FloatParameter, Parameter

from .logits import LOGITS, Rows, rows_of, wrong_dtype
from .mask import require_mask_shape
from .mask_hints import device_hint
from .tokens import IGNORED

_WITHOUT_FLOAT64 = ("mps",)
_ALL_BITS = {"seed": (torch.int64, torch.uint64), "position": (torch.uint64,)}
"""The dtypes that hold any 64 bits."""


def as_tensor_rows(logits: Tensor, valid_vocab: Any) -> Rows:
    """Check the device, layout, dtype and shape of logits; `values` of the rows is a tensor."""
    if logits.device.type in _WITHOUT_FLOAT64:
        raise TypeError(
            f"`logits` must be on a device with float64 and int64, got a tensor on {logits.device} "
            "(pass `logits.cpu()`)"
        )
    require_plain("logits", logits)
    if logits.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        real = ".real" if logits.is_complex() else ""
        raise wrong_dtype(logits.dtype, LOGITS, f"pass `logits{real}.float()`")
    return rows_of(logits, True, valid_vocab)


# ---------------------------------------------------------------- numbers


def check_numbers(parameter: Parameter, value: Tensor, n_rows: int, device: torch.device) -> None:
    """Check the dtype, layout and shape of a parameter, of rows on a device."""
    require_plain(parameter.name, value, device)
    is_float = isinstance(parameter, FloatParameter)
    wrong = value.dtype == torch.bool or value.is_complex()
    if wrong or (value.is_floating_point() and not is_float):
        raise parameter.wrong_kind(f"a tensor of {value.dtype}", value)
    if value.shape not in ((), (n_rows,)):
        raise ValueError(
            f"`{parameter.name}` must be a scalar or have shape (B,) = ({n_rows},), got "
            f"{tuple(value.shape)} (one value per row of `logits`)"
        )


def check_range(
    parameter: Parameter, value: Tensor, stages: tuple[str, ...], draws: int
) -> tuple[Tensor, Tensor | None]:
    """Check the values of a parameter where they are; that of a stage not in `stages` must be off.

    Returns
    -------
    numbers : float64 tensor, or int64 for integers, of the shape of the value
        In range; seeds and positions as 64 bits.
    bad : bool tensor of the same shape, or None
        Where the value was not in range.
    """
    if isinstance(parameter, FloatParameter):
        numbers = as_float64(value)
        found = numbers.nan_to_num(nan=parameter.off[0]).clamp(parameter.low, parameter.high)
    else:
        numbers = as_int64(value)
        if value.dtype in _ALL_BITS.get(parameter.name, ()):
            return numbers, None
        if isinstance(parameter, CountParameter) and value.dtype != torch.uint64:
            numbers = numbers.masked_fill(numbers == -1, 0)
        high = int(parameter.high) - (draws - 1 if parameter.name == "stream" else 0)
        found = numbers.clamp(int(parameter.low), min(high, 2**63 - 1))
    bad = found != numbers
    if parameter.name in STAGES and parameter.name not in stages:
        bad = bad | is_on(parameter, found)
    return found, bad


def as_float64(value: Tensor) -> Tensor:
    """Widen numbers to float64, denormal float32 by their bits."""
    if value.dtype not in (torch.float32, torch.bfloat16):
        return value.to(torch.float64)
    value = value.to(torch.float32)
    bits = value.view(torch.int32)
    size = (bits & 0x7FFFFFFF).to(torch.float64) * 2.0**-149
    is_denormal = (bits & 0x7F800000) == 0
    return torch.where(is_denormal, torch.where(bits < 0, -size, size), value.to(torch.float64))


def as_int64(value: Tensor) -> Tensor:
    """Widen integers to int64, with the bits of uint64."""
    return value.view(torch.int64) if value.dtype == torch.uint64 else value.to(torch.int64)


# ---------------------------------------------------------------- logits processors


def has_tensors(name: str, value: Any) -> bool:
    """Return whether a logits processor is a tensor, or a bias with one in it."""
    return isinstance(value, Tensor) or (
        name == "bias"
        and isinstance(value, tuple)
        and any(isinstance(one, Tensor) for one in value)
    )


def check_mask(mask: Tensor, rows: Rows, *, allow_short: bool) -> Tensor:
    """Check a mask; return it with two axes, as bool or int32."""
    require_plain("mask", mask, rows.values.device)
    if mask.dtype == torch.uint32:
        mask = mask.view(torch.int32)
    if mask.dtype not in (torch.bool, torch.int32):
        raise TypeError(
            f"`mask` must be bool, or int32 with a bit per token, got {mask.dtype} "
            f"({device_hint()})"
        )
    require_mask_shape(tuple(mask.shape), rows, mask, mask, allow_short=allow_short)
    return mask[None] if mask.ndim == 1 else mask


def check_tokens(
    name: str, value: Tensor, rows: Rows, ignored: IgnoredTokens = NONE_IGNORED
) -> tuple[Tensor, Tensor]:
    """Check lists of tokens, one per row; bias and `logprob_tokens` may have one for all rows.

    Returns
    -------
    tokens : int64 tensor of shape (B, T), on the device of the rows
        -1 is no token, `IGNORED` one that is ignored.
    bad : bool tensor of shape (B,)
        Rows with a token out of range that is not ignored.
    """
    require_plain(name, value, rows.values.device, "bias[0]" if name == "bias" else "")
    if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        raise TypeError(
            f"`{name}` must hold integers, got {value.dtype} (pass integers: tokens are columns of "
            "`logits`)"
        )
    shaped = value[None] if value.ndim == 1 else value
    n_rows = rows.values.shape[0]
    may_share = name == "bias" or (name == "logprob_tokens" and value.ndim == 1)
    if shaped.ndim != 2 or shaped.shape[0] not in ((1, n_rows) if may_share else (n_rows,)):
        raise ValueError(
            f"`{name}` must have shape (B, T), B = {n_rows}, where it is a tensor, got "
            f"{tuple(value.shape)} (-1 fills lists that are short)"
        )
    tokens = as_int64(shaped.to(rows.values.device, non_blocking=True))
    least = 0 if value.dtype == torch.uint64 else -1
    outside = (tokens < least) | (tokens >= rows.vocabulary)
    if ignored is not NONE_IGNORED:
        # By comparisons: a tensor of the host would have to be copied to the device.
        skipped = outside if ignored.has_outside else torch.zeros_like(outside)
        for token in ignored.ids:
            skipped = skipped | (tokens == token)
        skipped = skipped & (tokens != -1)
        tokens, outside = tokens.masked_fill(skipped, IGNORED), outside & ~skipped
    tokens = tokens.masked_fill(outside, -1).expand(n_rows, -1)
    return tokens, outside.any(1)


def check_bias(bias: Any, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """Check a bias of two tensors.

    Returns
    -------
    tokens : int64 tensor of shape (B, N), on the device of the rows
    values : float32 or float64 tensor of shape (B, N), on the device of the rows
    bad : bool tensor of shape (B,)
        Rows with a token out of range or twice, or with a value that is nan or +inf.
    """
    parts = bias if isinstance(bias, tuple) else (bias,)
    if len(parts) != 2 or not all(isinstance(part, Tensor) for part in parts):
        kinds = " and ".join(type(part).__name__ for part in parts)
        raise TypeError(
            f"`bias` must be a tuple of two tensors (tokens, values), got {kinds} (add one that is "
            "as wide as the rows to `logits`)"
        )
    values = parts[1]
    require_plain("bias", values, rows.values.device, "bias[1]")
    tokens, bad = check_tokens("bias", parts[0], rows)
    if values.shape != parts[0].shape:
        raise ValueError(
            f"`bias` must have a value for each token, got {tuple(values.shape)} values for "
            f"{tuple(parts[0].shape)} tokens (two tensors of one shape)"
        )
    if values.dtype == torch.bool or values.is_complex():
        raise TypeError(
            f"`bias` must have numbers as values, got {values.dtype} (pass numbers, which are "
            "added to logits; 0 changes nothing)"
        )
    is_narrow = values.dtype in (torch.float16, torch.bfloat16, torch.float32)
    dtype = torch.float32 if is_narrow else torch.float64
    values = values.to(tokens.device, dtype, non_blocking=True).expand(tokens.shape)
    bad = bad | ((tokens >= 0) & ~(values.to(torch.float32) < torch.inf)).any(1)
    ascending = tokens.sort(1).values
    twice = (ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)
    return tokens, values, bad | twice.any(1)
