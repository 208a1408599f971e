"""All tokens of each row, unsorted: thresholds are found by adding up weights by rank.

A rank's 32 bits are looked at in two halves. What weighs on each value of the upper half is added
up, and so the one is found at which the weight of all that is higher reaches what is needed; then
the lower half, among the tokens with that upper one. The sums are of integers: the order of the
additions, which a device does not fix, cannot matter.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .limbs import needed, scaled
from .mass import gaps, masses
from .rows import BLOCK, Rows, logits_of, ranks, tokens_of

_HALF = 16
_VALUES = 2**_HALF


class _Cut(NamedTuple):
    """The last rank of a prefix, and what its tokens above that rank weigh; shape (B, 1)."""

    rank: Tensor
    above: Tensor


class Whole:
    """All tokens of each row: an `Ordered`."""

    def __init__(self, rows: Rows) -> None:
        self._logits, _, self._top = rows
        self._ranks = ranks(self._logits)
        self._digits: tuple[Tensor, Tensor] | None = None
        self._finite = (self._logits > -torch.inf).sum(1, keepdim=True)
        self._weighed: tuple[Tensor, Tensor] | None = None

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

    def _halves(self) -> tuple[Tensor, Tensor]:
        """The upper half of each token's rank, from 0, and the lower one."""
        if self._digits is None:
            upper = (self._ranks >> _HALF).add_(_VALUES // 2).to(torch.int64)
            self._digits = upper, (self._ranks & (_VALUES - 1)).to(torch.int64)
        return self._digits

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
        upper, lower = self._halves()
        high, above = _last_needed(upper, weights, need)
        among = weights.masked_fill(upper != high, 0)
        low, more = _last_needed(lower, among, need - above)
        rank = ((high - _VALUES // 2) << _HALF) + low
        return _Cut(rank.to(torch.int32), above + more)


def _last_needed(digits: Tensor, weights: Tensor, need: Tensor) -> tuple[Tensor, Tensor]:
    """The largest digit at which the weight of all from it up reaches `need`, and what is above."""
    sums = torch.zeros((len(digits), _VALUES), dtype=torch.int64, device=digits.device)
    sums.scatter_add_(1, digits, weights)
    running = sums.cumsum(1)
    from_here = running[:, -1:] - running + sums
    # In a bad row none may reach it.
    digit = (from_here >= need).sum(1, keepdim=True).sub_(1).clamp_min_(0)
    return digit, from_here.gather(1, digit) - sums.gather(1, digit)
