"""Rule 5: the stages in turn. Each keeps a prefix of section 3's order, so its length is enough."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from .mass import SCALE_OF_ONE
from .prepare_params import MIN_P, TEMPERATURE, TOP_K, TOP_P, Chain, Settings


class Ordered(Protocol):
    """The tokens of a batch's rows, in section 3's order as far as a draw needs them.

    Lengths of prefixes, shares, thresholds and scales are tensors of shape (B, 1).
    """

    def finite(self) -> Tensor:
        """Count the tokens with a logit above -inf; or as many as there are here."""

    def passing(self, threshold: Tensor, scale: Tensor) -> Tensor:
        """Count the tokens with y at or above a threshold; or as many as there are here."""

    def nucleus(self, kept: Tensor, share: Tensor, scale: Tensor) -> Tensor:
        """Count what top_p keeps of the first `kept` tokens; a share below 0 counts as 0."""

    def draw(
        self, kept: Tensor, scale: Tensor, words: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Draw from the first `kept` tokens, with the words of U of shape (B, n).

        Returns tokens of shape (B, n), and W of shape (B, 1).
        """


def kept_of(tokens: Ordered, chain: Chain, settings: Settings) -> tuple[Tensor, Tensor]:
    """Run the stages: how many tokens are kept, and the scale of their masses.

    A greedy row keeps one. Where no filter acts, it is what `finite` gave.
    """
    kept = tokens.finite()
    scale = torch.full_like(settings.scale, SCALE_OF_ONE)
    for stage in chain.stages:
        if stage == TEMPERATURE:
            scale = settings.scale
            continue
        before = kept
        if stage == TOP_K:
            kept = torch.where(settings.top_k > 0, torch.minimum(kept, settings.top_k), kept)
        elif stage == TOP_P:
            nucleus = tokens.nucleus(kept, settings.share.clamp_min(0), scale)
            kept = torch.where(settings.share >= 0, nucleus, kept)
        elif stage == MIN_P:
            kept = torch.minimum(kept, tokens.passing(settings.threshold, scale))
        kept = torch.maximum(kept, torch.minimum(before, settings.min_keep))
    return (kept.masked_fill(settings.is_greedy, 1) if chain.greedy else kept), scale
