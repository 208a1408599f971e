"""Section 6 of the rule, step 1: in which rows every kept token gets a clock."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fastsample.engines.reference.race import LISTED_COUNT, LISTED_SHARE, NO_EFFECT
from fastsample.params.ops import Op

from .mass import to_float32
from .prepare_params import ALL, FIXED, TEMPERATURE


class Listing(NamedTuple):
    """What the host knows of the rows of a batch that are listed.

    Attributes
    ----------
    some, all : bool
        Whether a row may be listed, and whether every row is.
    min_keep : int
        The most that a row has of it; `prepare_params.ALL` where the host does not know.
    """

    some: bool
    all: bool
    min_keep: int


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


def listing_of(numbers: Tensor | None, ops: tuple[int, ...], vocabulary: int) -> Listing:
    """Find what the host knows, from numbers of the CPU as `prepare_params.chain_of` has them."""
    if numbers is None or not len(numbers):
        return Listing(True, False, ALL)
    some, every = True, False
    # The value of a temperature before all filters lists nothing.
    first = len(FIXED) + (ops[:1] == (Op.SCALE,))
    if not bool(numbers[:, first:].isnan().any()):
        found = is_listed(numbers, ops, vocabulary)
        some, every = bool(found.any()), bool(found.all())
    min_keep = float(numbers[:, TEMPERATURE + 1].nan_to_num(nan=ALL).max())
    return Listing(some, every, int(min(min_keep, ALL)))
