"""All tokens of each row, unsorted: where a kept set ends is searched for by weight."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from .draw import first_above
from .int64_math import nucleus_target
from .mass import Scaling, exponent2, masses
from .ordinal import BLOCK, Rows, logits_of, ordinals, sort_keys, tokens_of, top_tokens
from .select import KeptSet, RowTokens
from .threshold_search import search


class AllTokens(RowTokens):
    """All tokens of each row."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows.logits, rows.top)
        self._rows = rows
        self._end: Tensor | None = None
        self._scaling: Scaling | None = None

    @cached_property
    def _ordinals(self) -> Tensor:
        return ordinals(self.logits)

    def _cut(self, kept: KeptSet) -> tuple[Tensor, Tensor]:
        """The ordinal of a kept set's last token, and how many tokens are above it."""
        if self._end is not kept.end:
            one = torch.ones((), dtype=torch.int64, device=kept.end.device)
            weights = one.expand_as(self._ordinals)
            self._end = kept.end
            self._found = search(self._ordinals, weights, kept.end.clamp_min(1))
        return self._found

    def first(self, count: int) -> tuple[Tensor, Tensor]:
        """Return the first tokens of the rows in section 3's order, and their logits."""
        return top_tokens(self._rows, count)

    def last_key(self, kept: KeptSet) -> Tensor:
        """Return the sort key of a kept set's last token."""
        ordinal, above = self._cut(kept)
        running = (self._ordinals == ordinal).cumsum(1)
        token = (running < kept.end - above).sum(1, keepdim=True)
        return sort_keys(logits_of(ordinal), token)

    def is_kept(self, kept: KeptSet) -> Tensor:
        """Return which tokens are in a kept set."""
        if kept.end is self.all.end:
            return self.logits > -torch.inf
        ordinal, above = self._cut(kept)
        ties = self._ordinals == ordinal
        in_prefix = (self._ordinals > ordinal) | (ties & (ties.cumsum(1) <= kept.end - above))
        # Only tokens above the top logit precede the kept set.
        top = kept.scaling.top
        return in_prefix if top is self.all.scaling.top else in_prefix & (self.logits <= top)

    def masses(self, kept: KeptSet) -> Tensor:
        """Return the masses of a kept set's tokens; several stages read the same ones."""
        if self._scaling is not kept.scaling:
            self._scaling, self._masses = kept.scaling, masses(self.exponent2(kept))
        mass = self._masses
        return mass if kept.end is self.all.end else mass.masked_fill(~self.is_kept(kept), 0)

    def nucleus_end(self, kept: KeptSet, share: Tensor) -> Tensor:
        """Return the end of the shortest prefix that reaches the share P."""
        mass = self.masses(kept)
        target = nucleus_target(share, mass.sum(1, keepdim=True))
        ordinal, above = search(self._ordinals, mass, target)
        # Tokens of one ordinal have one mass: so many of them are needed.
        each = masses(exponent2(logits_of(ordinal), kept.scaling)).clamp_min_(1)
        more = torch.div(target - above + each - 1, each, rounding_mode="floor")
        return (self._ordinals > ordinal).sum(1, keepdim=True) + more

    def draw(self, kept: KeptSet, words: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Draw by running masses: first the block of 64 tokens, then the token."""
        mass = self.masses(kept)
        block, r, running = first_above(mass.unflatten(1, (-1, BLOCK)).sum(2), words)
        before = running.gather(1, (block - 1).clamp_min_(0)).masked_fill_(block == 0, 0)
        tokens = tokens_of(block)
        inside = mass.gather(1, tokens.flatten(1)).view(tokens.shape).cumsum(2)
        passed = (inside <= (r - before).unsqueeze(2)).sum(2).clamp_max_(BLOCK - 1)
        return block * BLOCK + passed, running[:, -1:]
