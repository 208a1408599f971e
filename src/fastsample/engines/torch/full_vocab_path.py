"""All tokens of each row, unsorted: thresholds are found by adding up weights by rank.

A rank's 32 bits are looked at in three parts. What weighs on each value of the upper one is added
up, and so the one is found at which the weight of all from it up reaches what is needed; then the
next part, among the tokens with that upper one, and the last. The sums are of integers: the order
of the additions, which a device does not fix, cannot matter.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from .int64_math import needed, scaled
from .mass import gaps, masses
from .rows import BLOCK, Rows, logits_of, ranks, tokens_of

_PARTS = ((21, 11), (10, 11), (0, 10))
"""Where each part of a rank begins, and of how many bits it is."""

_LOWEST = -(2**31)


class _Cut(NamedTuple):
    """The last rank of a prefix, and what its tokens above that rank weigh; shape (B, 1)."""

    rank: Tensor
    above: Tensor


class Whole:
    """All tokens of each row: an `Ordered`."""

    def __init__(self, rows: Rows) -> None:
        self._logits, _, self._top = rows
        self._finite = (self._logits > -torch.inf).sum(1, keepdim=True)
        self._weighed: tuple[Tensor, Tensor] | None = None

    @cached_property
    def _ranks(self) -> Tensor:
        return ranks(self._logits)

    def finite(self) -> Tensor:
        """Count as `Ordered` says."""
        return self._finite

    def passing(self, threshold: Tensor, scale: Tensor) -> Tensor:
        """Count as `Ordered` says."""
        return (gaps(self._logits, self._top, scale) >= threshold).sum(1, keepdim=True)

    def nucleus(self, kept: Tensor, share: Tensor, scale: Tensor) -> Tensor:
        """Count as `Ordered` says."""
        mass = self._masses(scale)
        total = self._kept_masses(mass, kept).sum(1, keepdim=True)
        need = needed(share, total).clamp_min_(1)
        cut = self._cut(mass, need)
        # Tokens of one rank weigh the same: so many of them are needed.
        each = masses(gaps(logits_of(cut.rank), self._top, scale)).clamp_min_(1)
        more = torch.div(need - cut.above + each - 1, each, rounding_mode="floor")
        return (self._ranks > cut.rank).sum(1, keepdim=True) + more

    def draw(
        self, kept: Tensor, scale: Tensor, words: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Draw as `Ordered` says."""
        mass = self._kept_masses(self._masses(scale), kept)
        blocks = mass.unflatten(1, (-1, BLOCK))
        running = blocks.sum(2).cumsum(1)
        total = running[:, -1:].contiguous()
        r = scaled(words, total)
        # In a bad row no block may be found.
        block = torch.searchsorted(running, r, right=True).clamp_max_(running.shape[1] - 1)
        before = running.gather(1, (block - 1).clamp_min_(0)).masked_fill_(block == 0, 0)
        tokens = tokens_of(block)
        some = mass.gather(1, tokens.flatten(1)).view(tokens.shape)
        reached = some.cumsum(2).add_(before.unsqueeze(2)) <= r.unsqueeze(2)
        return block * BLOCK + reached.sum(2).clamp_max_(BLOCK - 1), total

    def _masses(self, scale: Tensor) -> Tensor:
        if self._weighed is None or self._weighed[0] is not scale:
            self._weighed = scale, masses(gaps(self._logits, self._top, scale))
        return self._weighed[1]

    def _kept_masses(self, mass: Tensor, kept: Tensor) -> Tensor:
        """Masses of the first `kept` tokens, 0 for the others."""
        if kept is self._finite:
            return mass
        one = torch.ones((), dtype=torch.int64, device=mass.device)
        rank, above = self._cut(one.expand_as(mass), kept.clamp_min(1))
        ties = self._ranks == rank
        is_kept = (self._ranks > rank) | (ties & (ties.cumsum(1) <= kept - above))
        return mass.masked_fill(~is_kept, 0)

    def _cut(self, weights: Tensor, need: Tensor) -> _Cut:
        """Find the shortest prefix that weighs as much as is needed, which is at least 1."""
        rank, above = torch.zeros_like(need), torch.zeros_like(need)
        for begin, size in _PARTS:
            digits = self._digits(begin, size)
            digit, more = _last_needed(digits, 2**size, weights, need - above)
            weights = weights.masked_fill(digits != digit, 0)
            rank, above = rank | (digit << begin), above + more
        return _Cut((rank + _LOWEST).to(torch.int32), above)

    def _digits(self, begin: int, size: int) -> Tensor:
        """A part of each token's rank; the upper one counts from the lowest rank there is."""
        part = self._ranks >> begin
        if begin + size == 32:
            return part.sub_(_LOWEST >> begin).to(torch.int64)
        return part.bitwise_and_(2**size - 1).to(torch.int64)


def _last_needed(
    digits: Tensor, n_values: int, weights: Tensor, need: Tensor
) -> tuple[Tensor, Tensor]:
    """The largest digit at which the weight of all from it up reaches `need`, and what is above."""
    sums = torch.zeros((len(digits), n_values), dtype=torch.int64, device=digits.device)
    sums.scatter_add_(1, digits, weights)
    running = sums.cumsum(1)
    from_here = running[:, -1:] - running + sums
    # In a bad row none may reach it.
    digit = (from_here >= need).sum(1, keepdim=True).sub_(1).clamp_min_(0)
    return digit, from_here.gather(1, digit) - sums.gather(1, digit)
