"""The filters and the draw among a row's first tokens, where the host knows how many are enough.

One program per row. Of as many first blocks as there are first tokens it takes the first tokens,
which lie in them, and lists them ascending: so a draw is a running sum in place. What was listed is
read again behind a barrier, by the same program.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fastsample.torch_rule.settings import MIN_P, TEMPERATURE, TOP_K, TOP_P, Chain

from . import table as column
from .launch import launch
from .numbers import (
    BLOCK,
    MINUS_INF,
    SCALE_OF_ONE,
    gap,
    mass,
    needed,
    ranks_at,
    scaled,
    uniform,
)
from .table import Drawn, real_number, status_of, whole_number

MOST = 1024
"""The most first tokens that a program keeps at hand."""

_LEAST = 16
_DRAWS = 16
_TEMPERATURE, _TOP_K = tl.constexpr(TEMPERATURE), tl.constexpr(TOP_K)
_TOP_P, _MIN_P = tl.constexpr(TOP_P), tl.constexpr(MIN_P)
_PAST = tl.constexpr(-(2**31))
"""A rank below every logit's."""

_LAST = tl.constexpr(2**32 - 1)


def draw(
    values: Tensor, vocabulary: int, block_ranks: Tensor, table: Tensor, chain: Chain, out: Drawn
) -> None:
    """Draw from every row; `whole.draw` takes and does the same.

    Parameters
    ----------
    values : tensor of shape (B, columns), of any strides
        Logits as `launch.bits_of` gives them. Columns past the vocabulary are not looked at.
    vocabulary : int
    block_ranks : int32 tensor of shape (B, ceil(vocabulary / 64)), contiguous
        The largest rank in each block of 64 tokens; above `numbers.PLUS_INF` for NaN.
    table : int64 tensor of shape (B, `table.COLUMNS`), contiguous
        The settings of each row, on the device.
    chain : Chain
        The stages that may act in some row, as the host knows it. `head`, here above 0 and at most
        `MOST`, is how many first tokens are enough in every row.
    out : Drawn
        Written, all of it.
    """
    (n_rows, n_blocks), draws = block_ranks.shape, out.tokens.shape[1]
    blocks = triton.next_power_of_2(n_blocks)
    size = min(max(_LEAST, triton.next_power_of_2(chain.head)), blocks * BLOCK.value)
    width = min(size, blocks) * BLOCK.value
    lists = torch.empty((n_rows, 3 * size), dtype=torch.int32, device=values.device)
    launch(
        *(_draw, (n_rows,), *out, lists, values, *values.stride(), vocabulary),
        *(block_ranks, n_blocks, table, draws),
        *(_code(chain.stages), blocks, size, width, min(_DRAWS, triton.next_power_of_2(draws))),
        num_warps=min(32, max(4, max(blocks, width) // 512)),
    )


def _code(stages: tuple[int, ...]) -> int:
    """The stages as a plan has them: the first in the lowest four bits."""
    return sum(stage << 4 * place for place, stage in enumerate(stages))


@triton.jit
def _cut(ranks: tl.tensor, need: tl.constexpr, low: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """A rank with fewer than `need` above it, and how many these are: others are at it.

    `low` is a rank that no fewer than `need` reach.
    """
    low, high = low.to(tl.int64), tl.max(ranks).to(tl.int64)
    above = tl.full((), 0, tl.int32)
    while low < high:
        middle = (low + high + 1) >> 1
        count = tl.sum((ranks >= middle.to(tl.int32)).to(tl.int32))
        above = tl.where(count > need, above, count)
        high = tl.where(count > need, high, middle - 1)
        low = tl.where(count > need, middle, tl.where(count == need, middle - 1, low))
    return low.to(tl.int32), above


@triton.jit
def _first(ranks: tl.tensor, need: tl.constexpr, low: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Find the first `need` in section 3's order, and where each comes in an ascending list."""
    rank, above = _cut(ranks, need, low)
    is_tie = (ranks == rank).to(tl.int32)
    is_first = (ranks > rank) | ((is_tie != 0) & (tl.cumsum(is_tie) <= need - above))
    return is_first, tl.cumsum(is_first.to(tl.int32)) - 1


@triton.jit
def _listed(
    row: tl.tensor,
    step: tl.tensor,
    vocabulary: tl.tensor,
    tops: tl.tensor,
    n_blocks: tl.tensor,
    lists: tl.tensor,
    blocks: tl.constexpr,
    size: tl.constexpr,
    width: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """The first tokens of a row ascending, and ranks: theirs, and the row's top."""
    some, at, place = tl.arange(0, blocks), tl.arange(0, width), tl.arange(0, size)
    ranks = tl.load(tops + some, mask=some < n_blocks, other=_PAST)
    top = tl.max(ranks)
    tokens = at
    low = tl.full((), MINUS_INF, tl.int32)
    if size < blocks:
        is_first, where = _first(ranks, size, tl.min(tl.where(some < n_blocks, ranks, top)))
        # Each of these blocks holds a token at least so high.
        low = tl.min(tl.where(is_first, ranks, top))
        tl.store(lists + where, some, mask=is_first)
        tl.debug_barrier()
        tokens = tl.load(lists + at // BLOCK) * BLOCK + at % BLOCK
    ranks = ranks_at(row, step, tokens, vocabulary)
    is_first, where = _first(ranks, size, low)
    tl.store(lists + size + where, tokens, mask=is_first)
    tl.store(lists + 2 * size + where, ranks, mask=is_first)
    tl.debug_barrier()
    return tl.load(lists + size + place), tl.load(lists + 2 * size + place), top


@triton.jit
def _masses(
    ranks: tl.tensor, top: tl.tensor, scale: tl.tensor, is_kept: tl.tensor
) -> tl.tensor:
    return tl.where(is_kept, mass(gap(ranks, top, scale)), 0)


@triton.jit
def _kept(
    ranks: tl.tensor, top: tl.tensor, table: tl.tensor, row: tl.tensor, stages: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """Run the stages over ranks in order: how many tokens are kept, and the scale of their masses."""
    place = tl.arange(0, ranks.shape[0])
    kept = tl.sum((ranks > MINUS_INF).to(tl.int64))
    min_keep = whole_number(table, row, column.MIN_KEEP)
    scale = tl.full((), SCALE_OF_ONE, tl.float32)
    for shift in tl.static_range(0, 16, 4):
        stage: tl.constexpr = (stages >> shift) & 15
        before = kept
        if stage == _TEMPERATURE:
            scale = real_number(table, row, column.SCALE)
        elif stage == _TOP_K:
            top_k = whole_number(table, row, column.TOP_K)
            kept = tl.where((top_k > 0) & (top_k < kept), top_k, kept)
        elif stage == _TOP_P:
            share = whole_number(table, row, column.SHARE)
            masses = _masses(ranks, top, scale, place < kept)
            need = needed(tl.where(share < 0, 0, share), tl.sum(masses))
            short = (tl.cumsum(masses) < need).to(tl.int64)
            kept = tl.where(share < 0, kept, tl.sum(short) + 1)
        elif stage == _MIN_P:
            reach = gap(ranks, top, scale) >= real_number(table, row, column.THRESHOLD)
            passing = tl.sum(reach.to(tl.int64))
            kept = tl.where(passing < kept, passing, kept)
        least = tl.where(before < min_keep, before, min_keep)
        kept = tl.where(kept < least, least, kept)
    return tl.where(whole_number(table, row, column.GREEDY) != 0, 1, kept), scale


@triton.jit
def _draw(
    out_tokens: tl.tensor,
    out_status: tl.tensor,
    out_kept_count: tl.tensor,
    out_total: tl.tensor,
    lists: tl.tensor,
    values: tl.tensor,
    row_step: tl.int64,
    step: tl.tensor,
    vocabulary: tl.tensor,
    block_ranks: tl.tensor,
    n_blocks: tl.tensor,
    table: tl.tensor,
    draws: tl.int32,
    stages: tl.constexpr,
    blocks: tl.constexpr,
    size: tl.constexpr,
    width: tl.constexpr,
    at_once: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    tokens, ranks, top = _listed(
        values + row * row_step,
        step,
        vocabulary,
        block_ranks + row * n_blocks,
        n_blocks,
        lists + row * (3 * size),
        blocks,
        size,
        width,
    )
    keys = (ranks.to(tl.int64) << 32) | (_LAST - tokens.to(tl.int64))
    ordered = tl.sort(keys, descending=True)
    kept, scale = _kept((ordered >> 32).to(tl.int32), top, table, row, stages)
    place = tl.arange(0, size)
    last = tl.sum(tl.where(place == kept - 1, ordered, 0))
    masses = _masses(ranks, top, scale, keys >= last)
    total, running = tl.sum(masses), tl.cumsum(masses)
    status = status_of(table, row, top)
    is_good = status == 0
    tl.store(out_status + row, status.to(tl.uint8))
    tl.store(out_kept_count + row, tl.where(is_good, kept, 0))
    tl.store(out_total + row, total)
    seed, position = whole_number(table, row, column.SEED), whole_number(table, row, column.POSITION)
    stream = whole_number(table, row, column.STREAM)
    for first in range(0, draws, at_once):
        some = first + tl.arange(0, at_once)
        zeros = some.to(tl.int64) * 0
        r = scaled(uniform(zeros + seed, zeros + position, zeros + (stream + some)), zeros + total)
        before = tl.sum((running[None, :] <= r[:, None]).to(tl.int32), axis=1)
        drawn = tl.sum(tl.where(place[None, :] == before[:, None], tokens[None, :], 0), axis=1)
        drawn = tl.where(is_good, drawn, -1).to(tl.int64)
        tl.store(out_tokens + row * draws + some, drawn, mask=some < draws)
