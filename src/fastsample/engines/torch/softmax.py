"""The laws of whole rows: softmax and its kin."""

from __future__ import annotations

import torch
from torch import Tensor

from .logprobs import log_total, total_of
from .mass import gaps, nearest_float32, power
from .prepare_params import Settings
from .rows import Rows, first

_LOWEST_EXPONENT = -126.0


def softmax(rows: Rows, settings: Settings) -> Tensor:
    """Probabilities: float32 of the shape of the logits."""
    y = gaps(rows.logits, rows.top, settings.scale, -torch.inf)
    p, k = power(y.clamp_min(_LOWEST_EXPONENT))
    # In float64 a power of two is exact, and so is what it multiplies.
    bits = (k.to(torch.int64) + 1023) << 52
    unscaled = p.to(torch.float64).mul_(bits.view(torch.float64))
    unscaled.masked_fill_(y < _LOWEST_EXPONENT, 0.0)
    total = total_of(rows, settings.scale).to(torch.float64) * 2.0**-40
    share = torch.ones_like(total).div_(total).to(torch.float32)
    law = nearest_float32(unscaled.mul_(share.to(torch.float64)))
    return torch.where(settings.is_greedy, _hot(rows, 1.0, 0.0), law)


def log_softmax(rows: Rows, settings: Settings) -> Tensor:
    """Log-probabilities: float32 of the shape of the logits."""
    gap = rows.logits.to(torch.float64) - rows.top.to(torch.float64)
    law = (gap / settings.temperature - log_total(rows, settings.scale)).to(torch.float32)
    return torch.where(settings.is_greedy, _hot(rows, 0.0, -torch.inf), law)


def logsumexp(rows: Rows, settings: Settings) -> Tensor:
    """ln of the sum of exp(x / T): float64 of shape (B, 1)."""
    return rows.top.to(torch.float64) / settings.temperature + log_total(rows, settings.scale)


def _hot(rows: Rows, hot: float, cold: float) -> Tensor:
    tokens, _ = first(rows, 1)
    return torch.full_like(rows.logits, cold).scatter_(1, tokens, hot)
