"""Read the rows once: the largest ordinal of each block of 64 tokens."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import INTERPRETED, launch
from .ordinal import BLOCK, ordinals_at

_TILE = 32
_TILE_INTERPRETED = 4096


def find_block_max(values: Tensor, vocabulary: int) -> Tensor:
    """Find the maxima, int32 of shape (B, ceil(vocabulary / 64)), of values as for `draw`."""
    n_rows, n_blocks = len(values), triton.cdiv(vocabulary, BLOCK.value)
    block_max = torch.empty((n_rows, n_blocks), dtype=torch.int32, device=values.device)
    most = _TILE_INTERPRETED if INTERPRETED else _TILE
    tile = min(most, triton.next_power_of_2(n_blocks))
    grid = (n_rows, triton.cdiv(n_blocks, tile))
    launch(_block_max, grid, block_max, values, *values.stride(), vocabulary, n_blocks, tile)
    return block_max


@triton.jit
def _block_max(
    block_max, values, row_step: tl.int64, step, vocabulary, n_blocks, tile: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    blocks = tl.program_id(1) * tile + tl.arange(0, tile)
    tokens = blocks[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    ordinals = ordinals_at(values + row * row_step, step, tokens, vocabulary)
    place = block_max + row * n_blocks + blocks
    tl.store(place, tl.max(ordinals, axis=1), mask=blocks < n_blocks)
