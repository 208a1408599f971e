"""Section 6 of the rule: the clocks of a race, from random words."""

from __future__ import annotations

from torch import Tensor, float64

from fastsample.engines.reference.clocks import ROUNDER

from .draw import Words
from .mass import ln


def clock(words: Words) -> Tensor:
    """Clocks, float64 of the shape of the words, from the first two of them.

    Examples
    --------
    >>> import torch
    >>> zero, half = torch.zeros(1, dtype=torch.int64), torch.tensor([2**31])
    >>> clock((zero, half, zero, zero)).tolist()
    [0.6931471805599451]
    """
    upper = (words[1] << 20).bitwise_or_(words[0] >> 12)
    return ln(upper.to(float64).add_(0.5).mul_(2.0**-52)).neg_()


def in_steps(clocks: Tensor) -> Tensor:
    """Round clocks to multiples of 2**-32, which add up exactly in any order."""
    return clocks.add(ROUNDER).sub_(ROUNDER)
