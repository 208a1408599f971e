"""Softmax, log-softmax and logsumexp of entire rows."""

from __future__ import annotations

import torch
from torch import Tensor

from .logprobs import log_total, total_mass
from .mass import Scaling, exponent2, nearest_float32, power
from .ordinal import Rows, top_tokens
from .prepare_params import RowParams

_LOWEST_EXPONENT = -126.0


def softmax(rows: Rows, params: RowParams) -> Tensor:
    """Probabilities: float32 of the shape of the logits."""
    y = exponent2(rows.logits, Scaling(rows.top, params.scale), -torch.inf)
    p, k = power(y.clamp_min(_LOWEST_EXPONENT))
    # In float64 a power of two is exact, and so is its product with p.
    bits = (k.to(torch.int64) + 1023) << 52
    unscaled = p.to(torch.float64).mul_(bits.view(torch.float64))
    unscaled.masked_fill_(y < _LOWEST_EXPONENT, 0.0)
    total = total_mass(rows, params.scale).to(torch.float64) * 2.0**-40
    share = torch.ones_like(total).div_(total).to(torch.float32)
    found = nearest_float32(unscaled.mul_(share.to(torch.float64)))
    return torch.where(params.is_greedy, _one_hot(rows, 1.0, 0.0), found)


def log_softmax(rows: Rows, params: RowParams) -> Tensor:
    """Log-probabilities: float32 of the shape of the logits."""
    gap = rows.logits.to(torch.float64) - rows.top.to(torch.float64)
    found = (gap / params.temperature - log_total(rows, params.scale)).to(torch.float32)
    return torch.where(params.is_greedy, _one_hot(rows, 0.0, -torch.inf), found)


def logsumexp(rows: Rows, params: RowParams) -> Tensor:
    """ln of the sum of exp(x / T): float64 of shape (B, 1)."""
    return rows.top.to(torch.float64) / params.temperature + log_total(rows, params.scale)


def _one_hot(rows: Rows, hot: float, cold: float) -> Tensor:
    tokens, _ = top_tokens(rows, 1)
    return torch.full_like(rows.logits, cold).scatter_(1, tokens, hot)
