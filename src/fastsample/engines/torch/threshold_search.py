"""Search for the ordinal at which the weight from the top reaches a target, without sorting.

An ordinal's 32 bits are read in three parts. The weights of each value of the upper part are added
up, which gives the value at which the weight from the highest value down reaches the target; then
the next part, among the tokens with that value, and the last. The sums are of integers: the order
of the additions, which a device does not fix, has no effect.
"""

from __future__ import annotations

import torch
from torch import Tensor

_PARTS = ((21, 11), (10, 11), (0, 10))
"""The first bit of each part, and how many bits it has."""

_LOWEST = -(2**31)


def search(ordinals: Tensor, weights: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Find the highest ordinal that tokens of this weight reach.

    Parameters
    ----------
    ordinals : int32 tensor of shape (B, N)
    weights : int64 tensor of shape (B, N)
        At least 0.
    target : int64 tensor of shape (B, 1)
        At least 1.

    Returns
    -------
    ordinal : int32 tensor of shape (B, 1)
    above : int64 tensor of shape (B, 1)
        The weight of the tokens above that ordinal: it is less than the target.
    """
    ordinal, above = torch.zeros_like(target), torch.zeros_like(target)
    for begin, size in _PARTS:
        digits = _digits(ordinals, begin, size)
        digit, more = _last_needed(digits, 2**size, weights, target - above)
        weights = weights.masked_fill(digits != digit, 0)
        ordinal, above = ordinal | (digit << begin), above + more
    return (ordinal + _LOWEST).to(torch.int32), above


def _digits(ordinals: Tensor, begin: int, size: int) -> Tensor:
    """A part of each ordinal; the upper one counts from the lowest int32."""
    part = ordinals >> begin
    if begin + size == 32:
        return part.sub_(_LOWEST >> begin).to(torch.int64)
    return part.bitwise_and_(2**size - 1).to(torch.int64)


def _last_needed(
    digits: Tensor, n_values: int, weights: Tensor, target: Tensor
) -> tuple[Tensor, Tensor]:
    """The highest digit at which the weight from the top reaches `target`, and what is above it."""
    sums = torch.zeros((len(digits), n_values), dtype=torch.int64, device=digits.device)
    sums.scatter_add_(1, digits, weights)
    running = sums.cumsum(1)
    from_here = running[:, -1:] - running + sums
    # In a row that is not valid none may reach it.
    digit = (from_here >= target).sum(1, keepdim=True).sub_(1).clamp_min_(0)
    return digit, from_here.gather(1, digit) - sums.gather(1, digit)
