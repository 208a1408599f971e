"""The top tokens of each row in order, where the host knows that no draw needs more of them."""

from __future__ import annotations

import torch
from torch import Tensor

from fastsample.engines.reference.mass import TOP_MASS_BITS

from .draw import first_above
from .int64_math import nucleus_target
from .ordinal import Rows, sort_keys, top_tokens
from .select import KeptSet, RowTokens


class TopTokens(RowTokens):
    """The first `count` tokens of each row, sorted. No stage needs to count beyond them."""

    def __init__(self, rows: Rows, count: int) -> None:
        self._rows = rows
        self.count = min(count, rows.logits.shape[1])
        self._tokens, logits = top_tokens(rows, self.count)
        super().__init__(logits, rows.top)

    def first(self, count: int) -> tuple[Tensor, Tensor]:
        """Return the first tokens of the rows in section 3's order, and their logits."""
        if count > self.count:
            return top_tokens(self._rows, count)
        return self._tokens[:, :count], self.logits[:, :count]

    def last_key(self, kept: KeptSet) -> Tensor:
        """Return the sort key of a kept set's last token."""
        at = (kept.end - 1).clamp_(0, self.count - 1)
        return sort_keys(self.logits.gather(1, at), self._tokens.gather(1, at))

    def is_kept(self, kept: KeptSet) -> Tensor:
        """Return which tokens are in a kept set."""
        at = torch.arange(self.count, device=kept.end.device)
        return (at >= kept.begin) & (at < kept.end)

    def nucleus_end(self, kept: KeptSet, share: Tensor) -> Tensor:
        """Return the end of the shortest prefix that reaches the share P."""
        running = self.masses(kept).cumsum(1)
        target = nucleus_target(share, running[:, -1:])
        return (running < target).sum(1, keepdim=True) + 1

    def draw(self, kept: KeptSet, words: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Draw by running masses in ascending token."""
        tokens, places = self._tokens.sort(1)
        drawn, _, running = first_above(self.masses(kept).gather(1, places), words)
        return tokens.gather(1, drawn), running[:, -1:]

    def only(self, draws: int) -> tuple[Tensor, Tensor]:
        """Draw where there is one token: no random number selects it, and its mass is known."""
        total = torch.full_like(self._tokens, 2**TOP_MASS_BITS)
        return self._tokens.expand(-1, draws), total
