"""Section 2 of the rule: mask, bias and penalties.

Float32 operations are done in float64 and rounded, as in the reference, so that no denormal is met:
for one operation this gives the same bits. Only the tokens that a bias or a history names are
computed. Short lists end in -1, which stands for token 0: what is computed there is right for it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .mass import exact, to_float32

_ALL, _PROMPT, _OUTPUT = -1, -2, -3


class TensorProcessors(NamedTuple):
    """What changes logits before the draw; each tensor may be None.

    Attributes
    ----------
    mask : bool tensor of shape (B or 1, M), or int32 of shape (B or 1, W) with a bit per token
    bias_tokens : int64 tensor of shape (B or 1, N)
        Distinct; -1 is no token.
    bias : float32 or float64 tensor of the same shape
    prompt, output : int64 tensors of shape (B, T)
        -1 is no token; -2 is one that is not counted, but has its place among the last n.
    scopes : tuple of int
        Of repetition, frequency and presence, as in a plan.
    """

    mask: Tensor | None
    bias_tokens: Tensor | None
    bias: Tensor | None
    prompt: Tensor | None
    output: Tensor | None
    scopes: tuple[int, ...]

    @property
    def are_none(self) -> bool:
        """Whether there is nothing to do."""
        return all(part is None for part in self[:5])


def _nearest(results: Tensor) -> Tensor:
    """Round to float32, read as section 1 reads a logit, and widen again."""
    size = results.abs()
    normal = torch.copysign(size.clamp_min(2.0**-126), results)
    vanishes = size < 2.0**-126 - 2.0**-150
    return normal.masked_fill(vanishes, 0.0).to(torch.float32).to(torch.float64)


def _ban(logits: Tensor, mask: Tensor) -> None:
    if mask.dtype != torch.bool:
        bits = torch.arange(32, dtype=torch.int32, device=mask.device)
        mask = ((mask.unsqueeze(2) >> bits) & 1).flatten(1) != 0
    covered = min(mask.shape[1], logits.shape[1])
    logits[:, :covered].masked_fill_(~mask[:, :covered], -torch.inf)
    logits[:, covered:] = -torch.inf


def _add(logits: Tensor, tokens: Tensor, values: Tensor) -> None:
    shape = (len(logits), tokens.shape[1])
    values = exact(values) if values.dtype == torch.float32 else to_float32(values)
    tokens, values = tokens.expand(shape), values.expand(shape)
    # The last column is that of -1.
    spread = values.new_zeros((len(logits), logits.shape[1] + 1))
    spread.scatter_(1, tokens.masked_fill(tokens < 0, logits.shape[1]), values)
    at = tokens.clamp_min(0)
    sums = logits.gather(1, at).to(torch.float64) + spread.gather(1, at)
    logits.scatter_(1, at, _nearest(sums).to(torch.float32))


def _history(prompt: Tensor | None, output: Tensor | None, scope: int) -> Tensor | None:
    """The tokens in a scope, -1 for those outside it; None where there is no history."""
    if scope in (_PROMPT, _OUTPUT):
        return prompt if scope == _PROMPT else output
    parts = [part for part in (prompt, output) if part is not None]
    if not parts:
        return None
    tokens = torch.cat(parts, 1)
    if scope == _ALL:
        return tokens
    # How many tokens there are from each to the end.
    remaining = (tokens != -1).flip(1).cumsum(1).flip(1)
    return tokens.masked_fill(remaining > scope, -1)


def _counts(tokens: Tensor, size: int) -> Tensor:
    counts = torch.zeros((len(tokens), size + 1), dtype=torch.int64, device=tokens.device)
    at = tokens.masked_fill(tokens < 0, size)
    return counts.scatter_add_(1, at, torch.ones_like(at))


def _penalised(x: Tensor, counts: Tensor, which: int, penalty: Tensor) -> Tensor:
    """Logits after a penalty, float64, for tokens with these counts in its scope."""
    if which == 0:
        changed = torch.where(x > 0, x / penalty, x * penalty)
    elif which == 1:
        changed = x - _nearest(penalty * counts.to(torch.float32).to(torch.float64))
    else:
        changed = x - penalty
    return torch.where(counts > 0, _nearest(changed), x)


def process(logits: Tensor, processors: TensorProcessors, penalties: tuple[Tensor, ...]) -> None:
    """Mask, bias and penalise logits that `read` returned, in place."""
    mask, bias_tokens, bias, prompt, output, scopes = processors
    if mask is not None:
        _ban(logits, mask)
    if bias_tokens is not None and bias is not None:
        _add(logits, bias_tokens, bias)
    if prompt is None and output is None:
        return
    banned = logits == -torch.inf
    for which, (scope, penalty) in enumerate(zip(scopes, penalties, strict=True)):
        tokens = _history(prompt, output, scope)
        if tokens is None or not tokens.shape[1]:
            continue
        counts = _counts(tokens, logits.shape[1])
        at = tokens.clamp_min(0)
        x = logits.gather(1, at).to(torch.float64)
        # A token that was -inf before the penalties stays so, whatever they come to.
        counted = counts.gather(1, at) * ~banned.gather(1, at)
        changed = _penalised(x, counted, which, penalty)
        logits.scatter_(1, at, changed.to(torch.float32))
