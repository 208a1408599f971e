"""Sections 1 and 3 of the rule: logits as float32 rows, ordinals, sort keys, the top tokens."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 64
_LARGEST_DENORMAL = 0x007FFFFF
_MAGNITUDE = 0x7FFFFFFF
_LAST = 2**32 - 1


class Rows(NamedTuple):
    """Logits as section 1 reads them, and the maxima of their blocks of 64 tokens.

    Attributes
    ----------
    logits : float32 tensor of shape (B, V), V a multiple of 64
        Tokens past the vocabulary are -inf.
    block_max : float32 tensor of shape (B, V / 64)
    top : float32 tensor of shape (B, 1)
        nan or +inf where the row is invalid, -inf where it is empty.
    """

    logits: Tensor
    block_max: Tensor
    top: Tensor


def read(values: Tensor, vocabulary: int) -> Tensor:
    """Copy logits as float32 into blocks of 64 tokens; denormals and -0 become +0.

    Examples
    --------
    >>> read(torch.tensor([[-0.0, 1e-40, 2.5, 9.0]]), 3)[0, :4].tolist()
    [0.0, 0.0, 2.5, -inf]
    """
    size = -(-vocabulary // BLOCK) * BLOCK
    logits = torch.empty((len(values), size), dtype=torch.float32, device=values.device)
    logits[:, vocabulary:] = -torch.inf
    # On integers, as threads may differ in how they treat denormals: the bits, or 0 where the
    # magnitude is that of a denormal.
    inside = logits[:, :vocabulary].view(torch.int32)
    bits = values[:, :vocabulary].to(torch.float32).view(torch.int32)
    torch.bitwise_and(bits, _MAGNITUDE, out=inside)
    torch.ops.aten.threshold_backward.grad_input(bits, inside, _LARGEST_DENORMAL, grad_input=inside)
    return logits


def rows_of(logits: Tensor) -> Rows:
    """Find the block maxima of logits that `read` returned."""
    block_max = logits.unflatten(1, (-1, BLOCK)).amax(2)
    return Rows(logits, block_max, block_max.amax(1, keepdim=True))


def ordinals(logits: Tensor) -> Tensor:
    """Integers in the order of the logits: int32, equal where logits are.

    Examples
    --------
    >>> ordinals(torch.tensor([-1.0, 0.0, 1.0])).tolist()
    [-1065353217, 0, 1065353216]
    """
    bits = logits.view(torch.int32)
    return bits ^ ((bits >> 31) & _MAGNITUDE)


def logits_of(ordinals: Tensor) -> Tensor:
    """The logits that have these ordinals."""
    return (ordinals ^ ((ordinals >> 31) & _MAGNITUDE)).view(torch.float32)


def sort_keys(logits: Tensor, tokens: Tensor) -> Tensor:
    """Distinct int64 in section 3's order, the first token highest."""
    return (ordinals(logits).to(torch.int64) << 32) | (_LAST - tokens)


def _parts(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens and logits of sort keys."""
    return _LAST - (keys & _LAST), logits_of((keys >> 32).to(torch.int32))


def tokens_of(blocks: Tensor) -> Tensor:
    """The 64 tokens of each block, on a new last axis."""
    return (blocks * BLOCK).unsqueeze(-1) + torch.arange(BLOCK, device=blocks.device)


def top_tokens(rows: Rows, count: int) -> tuple[Tensor, Tensor]:
    """The first `count` tokens of section 3's order and their logits: shape (B, count).

    Examples
    --------
    >>> tokens, logits = top_tokens(rows_of(read(torch.tensor([[1.0, 3.0, 3.0, 2.0]]), 4)), 3)
    >>> tokens.tolist(), logits.tolist()
    ([[1, 2, 3]], [[3.0, 3.0, 2.0]])
    """
    logits, block_max, _ = rows
    blocks = torch.arange(block_max.shape[1], device=logits.device)
    if count < len(blocks):
        # Of two blocks, the one with the higher key holds a token that precedes all of the other's:
        # so the first `count` tokens are in the first `count` blocks.
        blocks = _LAST - (sort_keys(block_max, blocks).topk(count, dim=1).values & _LAST)
        tokens = tokens_of(blocks).flatten(1)
        logits = logits.gather(1, tokens)
    else:
        tokens = tokens_of(blocks).flatten()
    return _parts(sort_keys(logits, tokens).topk(count, dim=1).values)


_FEW = 8
"""Up to so many tokens of each row, passes over the rows take less time than sorting them."""


def ranks_of(rows: Rows, tokens: Tensor, logits: Tensor) -> Tensor:
    """1 + the number of tokens before each of these, of shape (B, K), in section 3's order.

    Examples
    --------
    >>> rows = rows_of(read(torch.tensor([[1.0, 3.0, 3.0, 2.0]]), 4))
    >>> tokens = torch.tensor([[2, 1, 0]])
    >>> ranks_of(rows, tokens, rows.logits.gather(1, tokens)).tolist()
    [[2, 1, 4]]
    """
    at = torch.arange(rows.logits.shape[1], device=tokens.device)
    if tokens.shape[1] > _FEW:
        keys = -sort_keys(rows.logits, at)
        return torch.searchsorted(keys.sort(1).values, -sort_keys(logits, tokens)) + 1
    ranks = torch.empty_like(tokens)
    for column in range(tokens.shape[1]):
        token, logit = tokens[:, column, None], logits[:, column, None]
        before = (rows.logits > logit) | ((rows.logits == logit) & (at < token))
        ranks[:, column] = before.sum(1) + 1
    return ranks
