"""Section 5 of the rule: the stages, one after the other, on the tokens of a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from fastsample.params.ops import Op

from .int64_math import nucleus_target
from .mass import SCALE_OF_ONE, Scaling, exponent2, log2_of, masses
from .prepare_params import Chain, RowParams
from .threshold_search import search

_LARGEST_DEVIATION = 2.0**20 - 1
_LOW_BITS = 19
_BELOW_ZERO = -(2.0**-36)
"""The largest threshold and center: a denormal y is as far from them as 0."""


class KeptSet(NamedTuple):
    """The kept set of each row, an interval of section 3's order: tensors of shape (B, 1).

    Attributes
    ----------
    begin, end : int64
        How many tokens precede its first, and its last with it.
    scaling : Scaling
        Of its masses: m is its largest logit.
    least_y : float32
        The largest threshold of the filters; -inf without one.
    """

    begin: Tensor
    end: Tensor
    scaling: Scaling
    least_y: Tensor

    @property
    def count(self) -> Tensor:
        """How many tokens it holds."""
        return self.end - self.begin


class RowTokens(ABC):
    """The tokens of a batch's rows that a draw needs, in one of two forms.

    Attributes
    ----------
    logits : float32 tensor of shape (B, N)
        The others follow these in section 3's order.
    all : KeptSet
        The tokens above -inf, at temperature 1.
    """

    def __init__(self, logits: Tensor, top: Tensor) -> None:
        self.logits = logits
        finite = (logits > -torch.inf).sum(1, keepdim=True)
        scaling = Scaling(top, torch.full_like(top, SCALE_OF_ONE))
        least_y = torch.full_like(top, -torch.inf)
        self.all = KeptSet(torch.zeros_like(finite), finite, scaling, least_y)

    @abstractmethod
    def first(self, count: int) -> tuple[Tensor, Tensor]:
        """Return the first tokens of the rows in section 3's order, and their logits."""

    @abstractmethod
    def last_key(self, kept: KeptSet) -> Tensor:
        """Return the sort key of a kept set's last token: int64 of shape (B, 1)."""

    @abstractmethod
    def is_kept(self, kept: KeptSet) -> Tensor:
        """Return which tokens are in a kept set: bool of shape (B, N)."""

    @abstractmethod
    def nucleus_end(self, kept: KeptSet, share: Tensor) -> Tensor:
        """Return the end of the shortest prefix of a kept set that reaches the share P."""

    @abstractmethod
    def draw(self, kept: KeptSet, words: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Draw from a kept set with the words of U, of shape (B, n).

        Returns tokens of shape (B, n), and W of shape (B, 1).
        """

    def exponent2(self, kept: KeptSet) -> Tensor:
        """Return y of each token relative to a kept set."""
        return exponent2(self.logits, kept.scaling)

    def masses(self, kept: KeptSet) -> Tensor:
        """Return the masses of a kept set's tokens, 0 for the others: int64 of shape (B, N)."""
        return masses(self.exponent2(kept)).masked_fill_(~self.is_kept(kept), 0)


def select(tokens: RowTokens, chain: Chain, params: RowParams) -> KeptSet:
    """Run the stages. A greedy row keeps its top token."""
    kept = tokens.all
    for op, place in chain.stages:
        if op == Op.SCALE:
            kept = kept._replace(scaling=Scaling(kept.scaling.top, params.scale))
        elif op == Op.BAND:
            kept = _band(tokens, kept, params.stages[place], params.min_keep)
        else:
            end, least_y = _end(tokens, kept, op, params.stages[place])
            least = torch.minimum(kept.end, kept.begin + params.min_keep)
            end = torch.maximum(torch.minimum(kept.end, end), least)
            kept = kept._replace(end=end, least_y=least_y)
    if not chain.greedy:
        return kept
    kept = kept._replace(end=kept.end.masked_fill(params.is_greedy, 1))
    if kept.scaling.top is tokens.all.scaling.top:
        return kept
    top = torch.where(params.is_greedy, tokens.all.scaling.top, kept.scaling.top)
    begin = kept.begin.masked_fill(params.is_greedy, 0)
    return kept._replace(begin=begin, scaling=Scaling(top, kept.scaling.scale))


def _end(tokens: RowTokens, kept: KeptSet, op: int, number: Tensor) -> tuple[Tensor, Tensor]:
    """Where a filter that keeps a prefix ends, and `least_y`; `min_keep` is not looked at."""
    if op == Op.COUNT:
        return kept.begin + number, kept.least_y
    if op == Op.MASS:
        nucleus = tokens.nucleus_end(kept, number.clamp_min(0))
        return torch.where(number >= 0, nucleus, kept.end), kept.least_y
    threshold = _threshold(tokens, kept, op, number).to(torch.float32).clamp_max_(_BELOW_ZERO)
    end = (tokens.exponent2(kept) >= threshold).sum(1, keepdim=True)
    return end, torch.maximum(kept.least_y, threshold)


def _threshold(tokens: RowTokens, kept: KeptSet, op: int, number: Tensor) -> Tensor:
    """The least y that is kept, float64."""
    if op == Op.THRESHOLD:
        return number
    if op == Op.THRESHOLD_OF_DEVIATION:
        threshold = -(number * _deviation(tokens, kept)) * kept.scaling.scale.to(torch.float64)
        return threshold.masked_fill(number == 0, -torch.inf)
    total = tokens.masses(kept).sum(1, keepdim=True)
    log_total = log2_of(total.to(torch.float64)) - 40.0
    return number + log_total if op == Op.THRESHOLD_OF_TOTAL else number - log_total


def _deviation(tokens: RowTokens, kept: KeptSet) -> Tensor:
    """The population deviation of a kept set's logits, float64."""
    away = kept.scaling.top.sub(tokens.logits).mul_(2.0**11).clamp_max_(_LARGEST_DEVIATION).round_()
    steps = away.masked_fill_(~tokens.is_kept(kept), 0.0).to(torch.int64)
    count = kept.count.to(torch.float64)
    mean = steps.sum(1, keepdim=True).to(torch.float64) / count
    mean_square = (steps * steps).sum(1, keepdim=True).to(torch.float64) / count
    return (mean_square - mean * mean).clamp_min_(0.0).sqrt_() * 2.0**-11


def _band(tokens: RowTokens, kept: KeptSet, share: Tensor, min_keep: Tensor) -> KeptSet:
    """Keep the tokens nearest to the mean of y that reach the share P."""
    y, mass, is_kept = tokens.exponent2(kept), tokens.masses(kept), tokens.is_kept(kept)
    total = mass.sum(1, keepdim=True)
    distance = y.sub(_center(y, mass, total)).abs_().view(torch.int32)
    target = nucleus_target(share.clamp_min(0), total)
    limit = search(-distance, mass, target)[0]
    count = torch.minimum(min_keep, kept.count).clamp_min(1)
    limit = -torch.minimum(limit, search(-distance, is_kept.to(torch.int64), count)[0])
    is_near = is_kept & ((distance <= limit) | (share < 0))
    top = tokens.logits.masked_fill(~is_near, -torch.inf).amax(1, keepdim=True)
    begin = (tokens.logits > top).sum(1, keepdim=True)
    end = begin + is_near.sum(1, keepdim=True)
    return kept._replace(begin=begin, end=end, scaling=Scaling(top, kept.scaling.scale))


def _center(y: Tensor, mass: Tensor, total: Tensor) -> Tensor:
    """The mean of y under the masses, float32."""
    steps = y.mul(-(2.0**16)).round_().to(torch.int64)
    high = ((mass >> _LOW_BITS) * steps).sum(1, keepdim=True).to(torch.float64)
    low = ((mass & (2**_LOW_BITS - 1)) * steps).sum(1, keepdim=True).to(torch.float64)
    mean = (high * 2.0**_LOW_BITS + low) / (total.to(torch.float64) * 2.0**16)
    return mean.to(torch.float32).neg_().clamp_max_(_BELOW_ZERO)
