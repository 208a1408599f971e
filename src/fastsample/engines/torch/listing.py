"""Section 6 of the rule, step 1: in which rows every kept token gets a clock."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fastsample.engines.reference.race import LISTED_COUNT, LISTED_SHARE, NO_EFFECT
from fastsample.params.ops import Op

from .mass import to_float32
from .prepare_params import ALL, FIXED, TEMPERATURE, copy_column


class Listing(NamedTuple):
    """Which rows of a batch are listed, and what the host knows of it.

    Attributes
    ----------
    is_listed : bool tensor of shape (B, 1)
    some, all : bool
        Whether a row may be listed, and whether every row is.
    heads : int
        How many tokens above C, which thresholds do not keep, a row may keep; `prepare_params.ALL`
        where the host does not know.
    """

    is_listed: Tensor
    some: bool
    all: bool
    heads: int


def is_listed(numbers: Tensor, ops: tuple[int, ...], vocabulary: int) -> Tensor:
    """Return whether rows of so many tokens are listed: bool of shape (B, 1).

    `numbers` and `ops` are those of `prepare_params`.

    Examples
    --------
    >>> numbers = torch.zeros(2, len(FIXED) + 2, dtype=torch.float64)
    >>> numbers[:, -2:] = torch.tensor([[0.8, 50], [0.8, 1000]])
    >>> is_listed(numbers, (Op.SCALE, Op.COUNT), 32000).tolist()
    [[True], [False]]
    """
    found = torch.zeros_like(numbers[:, :1], dtype=torch.bool)
    is_filtered = found
    columns = to_float32(numbers[:, len(FIXED) :]).unsqueeze(2).unbind(1)
    for op, v in zip(ops, columns, strict=True):
        if op == Op.SCALE:
            found = found | (is_filtered & (v != 1.0))
            continue
        acts = _acts(op, v, vocabulary)
        is_filtered = is_filtered | acts
        if op == Op.BAND:
            found = found | acts
        elif op in (Op.COUNT, Op.MASS):
            found = found | (acts & (v < (LISTED_COUNT if op == Op.COUNT else LISTED_SHARE)))
    return found


def _acts(op: int, v: Tensor, vocabulary: int) -> Tensor:
    if op == Op.COUNT:
        return (v > 0) & (v < vocabulary)
    if op in (Op.MASS, Op.BAND):
        return v != 1.0
    return v > (0.0 if op == Op.THRESHOLD_OF_DEVIATION else NO_EFFECT)


def listing_of(
    numbers: Tensor,
    host_numbers: Tensor | None,
    ops: tuple[int, ...],
    vocabulary: int,
    device: torch.device,
) -> Listing:
    """Find the rows that are listed, on a device; the numbers are those of a `TensorRequest`."""
    found = is_listed(numbers, ops, vocabulary)
    known = numbers if numbers.is_cpu else host_numbers
    some, every, heads = True, False, ALL
    if known is not None:
        # The value of a temperature before all filters lists nothing.
        first = len(FIXED) + (ops[:1] == (Op.SCALE,))
        if not bool(known[:, first:].isnan().any()):
            on_host = is_listed(known, ops, vocabulary)
            some, every = bool(on_host.any()), bool(on_host.all())
        min_keep = known[:, TEMPERATURE + 1]
        if not bool(min_keep.isnan().any()):
            heads = int(min_keep.clamp_max(ALL).max()) if len(min_keep) else 1
    return Listing(copy_column(found, device), some, every, heads)
