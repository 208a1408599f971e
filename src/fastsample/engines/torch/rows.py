"""Rules 1 and 3: logits as float32 rows of whole blocks, and the order of their tokens."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 64
_LARGEST_DENORMAL = 2.0**-126 - 2.0**-149
_MAGNITUDE = 0x7FFFFFFF
_LAST = 2**32 - 1


class Rows(NamedTuple):
    """Rows as rule 1 reads them, and what their blocks of 64 tokens tell.

    Attributes
    ----------
    logits : float32 tensor of shape (B, V), V a multiple of 64
        Tokens past the vocabulary are -inf.
    block_tops : float32 tensor of shape (B, V / 64)
    top : float32 tensor of shape (B, 1)
        nan or +inf where the row is invalid, -inf where it is empty.
    """

    logits: Tensor
    block_tops: Tensor
    top: Tensor


def widened(values: Tensor, vocabulary: int) -> Tensor:
    """Copy logits as float32 into whole blocks; denormals and -0 become +0.

    Examples
    --------
    >>> widened(torch.tensor([[-0.0, 1e-40, 2.5, 9.0]]), 3)[0, :4].tolist()
    [0.0, 0.0, 2.5, -inf]
    """
    size = -(-vocabulary // BLOCK) * BLOCK
    logits = torch.empty((len(values), size), dtype=torch.float32, device=values.device)
    logits[:, vocabulary:] = -torch.inf
    logits[:, :vocabulary] = values[:, :vocabulary]
    # 0 for what lies in [-d, d]. Where denormals are flushed, d is 0, and they are equal to it.
    return torch.nn.functional.hardshrink(logits, _LARGEST_DENORMAL)


def rows_of(logits: Tensor) -> Rows:
    """Look over what `widened` gave, adjusted or not."""
    block_tops = logits.unflatten(1, (-1, BLOCK)).amax(2)
    return Rows(logits, block_tops, block_tops.amax(1, keepdim=True))


def ranks(logits: Tensor) -> Tensor:
    """Integers in the order of the logits: int32, equal where logits are.

    Examples
    --------
    >>> ranks(torch.tensor([-1.0, 0.0, 1.0])).tolist()
    [-1065353217, 0, 1065353216]
    """
    bits = logits.view(torch.int32)
    return bits ^ ((bits >> 31) & _MAGNITUDE)


def logits_of(ranks: Tensor) -> Tensor:
    """The logits of ranks: what `ranks` undoes."""
    return (ranks ^ ((ranks >> 31) & _MAGNITUDE)).view(torch.float32)


def keys(logits: Tensor, tokens: Tensor) -> Tensor:
    """Integers in section 3's order, the first token highest: int64, all different."""
    return (ranks(logits).to(torch.int64) << 32) | (_LAST - tokens)


def _parts(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens and logits of keys."""
    return _LAST - (keys & _LAST), logits_of((keys >> 32).to(torch.int32))


def tokens_of(blocks: Tensor) -> Tensor:
    """The 64 tokens of each block, on a new last axis."""
    return (blocks * BLOCK).unsqueeze(-1) + torch.arange(BLOCK, device=blocks.device)


def first(rows: Rows, count: int) -> tuple[Tensor, Tensor]:
    """The first tokens of each row, in section 3's order, and their logits: shape (B, count).

    Examples
    --------
    >>> tokens, logits = first(rows_of(widened(torch.tensor([[1.0, 3.0, 3.0, 2.0]]), 4)), 3)
    >>> tokens.tolist(), logits.tolist()
    ([[1, 2, 3]], [[3.0, 3.0, 2.0]])
    """
    logits, block_tops, _ = rows
    blocks = torch.arange(block_tops.shape[1], device=logits.device)
    if count < len(blocks):
        # A block that comes before another holds a token that comes before all of the other's: so
        # the first `count` tokens lie in the first `count` blocks.
        blocks = _LAST - (keys(block_tops, blocks).topk(count, dim=1).values & _LAST)
        tokens = tokens_of(blocks).flatten(1)
        logits = logits.gather(1, tokens)
    else:
        tokens = tokens_of(blocks).flatten()
    return _parts(keys(logits, tokens).topk(count, dim=1).values)


def rank_of(rows: Rows, tokens: Tensor, logits: Tensor) -> Tensor:
    """1 + the tokens before these, of shape (B, 1), in section 3's order."""
    at = torch.arange(rows.logits.shape[1], device=tokens.device)
    before = (rows.logits > logits) | ((rows.logits == logits) & (at < tokens))
    return before.sum(1, keepdim=True) + 1
