"""The first tokens of each row in order, where the host knows that no draw needs more of them."""

from __future__ import annotations

import torch
from torch import Tensor

from fastsample.engines.reference.mass import TOP_MASS_BITS

from .int64_math import needed, scaled
from .mass import gaps, masses
from .rows import Rows, first


class Head:
    """The first `count` tokens of each row: an `Ordered`.

    What it counts stops at `count`; the filters leave no more.
    """

    def __init__(self, rows: Rows, count: int) -> None:
        self.count = min(count, rows.logits.shape[1])
        self._tokens, self._logits = first(rows, self.count)
        self._top = rows.top

    def _masses(self, kept: Tensor, scale: Tensor) -> Tensor:
        at = torch.arange(self._logits.shape[1], device=kept.device)
        mass = masses(gaps(self._logits, self._top, scale))
        return mass.masked_fill_(at >= kept, 0)

    def finite(self) -> Tensor:
        """Count as `Ordered` says."""
        return (self._logits > -torch.inf).sum(1, keepdim=True)

    def passing(self, threshold: Tensor, scale: Tensor) -> Tensor:
        """Count as `Ordered` says."""
        return (gaps(self._logits, self._top, scale) >= threshold).sum(1, keepdim=True)

    def nucleus(self, kept: Tensor, share: Tensor, scale: Tensor) -> Tensor:
        """Count as `Ordered` says."""
        running = self._masses(kept, scale).cumsum(1)
        need = needed(share, running[:, -1:])
        return (running < need).sum(1, keepdim=True) + 1

    def draw(
        self, kept: Tensor, scale: Tensor, words: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Draw as `Ordered` says."""
        tokens, places = self._tokens.sort(1)
        running = self._masses(kept, scale).gather(1, places).cumsum(1)
        total = running[:, -1:].contiguous()
        at = torch.searchsorted(running, scaled(words, total), right=True)
        # In a bad row there may be none.
        return tokens.gather(1, at.clamp_max_(tokens.shape[1] - 1)), total

    def only(self, draws: int) -> tuple[Tensor, Tensor]:
        """Draw where there is one token, which no number chooses, and whose mass is the top's."""
        total = torch.full_like(self._tokens, 2**TOP_MASS_BITS)
        return self._tokens.expand(-1, draws), total
