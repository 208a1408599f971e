"""The first look at the rows: the largest rank of each block of 64 tokens, from one reading."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import INTERPRETED, launch
from .mass import BLOCK, ranks_at

_BLOCKS = 32
_BLOCKS_INTERPRETED = 4096


def block_ranks(values: Tensor, vocabulary: int) -> Tensor:
    """Find them: int32 of shape (B, ceil(vocabulary / 64)); the parameters are `head.draw`'s."""
    n_rows, n_blocks = len(values), triton.cdiv(vocabulary, BLOCK.value)
    tops = torch.empty((n_rows, n_blocks), dtype=torch.int32, device=values.device)
    most = _BLOCKS_INTERPRETED if INTERPRETED else _BLOCKS
    blocks = min(most, triton.next_power_of_2(n_blocks))
    grid = (n_rows, triton.cdiv(n_blocks, blocks))
    launch(_tops, grid, tops, values, *values.stride(), vocabulary, n_blocks, blocks)
    return tops


@triton.jit
def _tops(
    tops: tl.tensor,
    values: tl.tensor,
    row_step: tl.int64,
    step: tl.tensor,
    vocabulary: tl.tensor,
    n_blocks: tl.tensor,
    blocks: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    some = tl.program_id(1) * blocks + tl.arange(0, blocks)
    tokens = some[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    ranks = ranks_at(values + row * row_step, step, tokens, vocabulary)
    tl.store(tops + row * n_blocks + some, tl.max(ranks, axis=1), mask=some < n_blocks)
