"""Rule 2: mask, bias and penalties. Float32 operations are done in float64 and rounded, as in the
reference, so that no denormal is met: for one operation this gives the same bits.

Only the tokens that a bias or a history names are computed. Lists end in -1 where they are short;
such places stand for token 0, and compute whatever is right for it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .prepare_params import Settings

_ALL, _PROMPT, _OUTPUT = -1, -2, -3
_EXPONENT = 0x7F800000


class Adjustments(NamedTuple):
    """What happens to logits before everything else; each part may be None.

    Attributes
    ----------
    mask : bool tensor of shape (B or 1, M), or int32 of shape (B or 1, W) with a bit per token
    bias_tokens : int64 tensor of shape (B or 1, N)
        Distinct; -1 is no token.
    bias : float32 tensor of the same shape
    prompt, output : int64 tensors of shape (B, T)
        -1 is no token.
    scopes : tuple of int
        Of repetition, frequency and presence, as a plan has them.
    """

    mask: Tensor | None
    bias_tokens: Tensor | None
    bias: Tensor | None
    prompt: Tensor | None
    output: Tensor | None
    scopes: tuple[int, int, int]

    @property
    def are_none(self) -> bool:
        """Whether there is nothing to do."""
        return all(part is None for part in self[:5])


def exact(values: Tensor) -> Tensor:
    """Widen float32 to float64, denormals by their bits."""
    bits = values.view(torch.int32)
    size = (bits & 0x7FFFFFFF).to(torch.float64) * 2.0**-149
    denormal = torch.where(bits < 0, -size, size)
    return torch.where((bits & _EXPONENT) == 0, denormal, values.to(torch.float64))


def _nearest(results: Tensor) -> Tensor:
    """Round to float32 and read as rule 1 reads a logit; float64 again."""
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
    tokens, values = tokens.expand(shape), values.expand(shape)
    # One column more, where no token goes.
    spread = torch.zeros(
        (len(logits), logits.shape[1] + 1), dtype=torch.float32, device=logits.device
    )
    spread.scatter_(1, tokens.masked_fill(tokens < 0, logits.shape[1]), values)
    at = tokens.clamp_min(0)
    sums = logits.gather(1, at).to(torch.float64) + exact(spread.gather(1, at))
    logits.scatter_(1, at, _nearest(sums).to(torch.float32))


def _history(prompt: Tensor | None, output: Tensor | None, scope: int) -> Tensor | None:
    """The tokens in a scope, -1 among them where there is none; None where there are no tokens."""
    if scope in (_PROMPT, _OUTPUT):
        return prompt if scope == _PROMPT else output
    parts = [part for part in (prompt, output) if part is not None]
    if not parts:
        return None
    tokens = torch.cat(parts, 1)
    if scope == _ALL:
        return tokens
    is_one = tokens >= 0
    # How many tokens come from here to the end.
    left = is_one.flip(1).cumsum(1).flip(1)
    return tokens.masked_fill(left > scope, -1)


def _counts(tokens: Tensor, size: int) -> Tensor:
    counts = torch.zeros((len(tokens), size + 1), dtype=torch.int64, device=tokens.device)
    at = tokens.masked_fill(tokens < 0, size)
    return counts.scatter_add_(1, at, torch.ones_like(at))


def _penalised(x: Tensor, counts: Tensor, which: int, penalty: Tensor) -> Tensor:
    """Logits, float64, after the penalty, for tokens that are so often in its scope."""
    if which == 0:
        changed = torch.where(x > 0, x / penalty, x * penalty)
    elif which == 1:
        changed = x - _nearest(penalty * counts.to(torch.float32).to(torch.float64))
    else:
        changed = x - penalty
    return torch.where(counts > 0, _nearest(changed), x)


def adjust(logits: Tensor, how: Adjustments, settings: Settings) -> None:
    """Mask, bias and penalise rows that `widened` gave, in place."""
    if how.mask is not None:
        _ban(logits, how.mask)
    if how.bias_tokens is not None and how.bias is not None:
        _add(logits, how.bias_tokens, how.bias)
    if how.prompt is None and how.output is None:
        return
    banned = logits == -torch.inf
    for which, (scope, penalty) in enumerate(zip(how.scopes, settings.penalties, strict=True)):
        tokens = _history(how.prompt, how.output, scope)
        if tokens is None or not tokens.shape[1]:
            continue
        counts = _counts(tokens, logits.shape[1])
        at = tokens.clamp_min(0)
        x = logits.gather(1, at).to(torch.float64)
        # A token that was -inf before the penalties stays so, whatever they come to.
        counted = counts.gather(1, at) * ~banned.gather(1, at)
        changed = _penalised(x, counted, which, penalty)
        logits.scatter_(1, at, changed.to(torch.float32))
