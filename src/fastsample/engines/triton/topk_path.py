"""The filters and the draw among a row's first tokens, where the host knows how many are enough.

One program per row. Of as many first blocks as there are first tokens it takes the first tokens,
which lie in them, and lists them ascending: so a draw is a running sum in place. Their order is
found by comparing each with each. What was listed is read again behind a barrier, by the program
that wrote it.

Triton's interpreter pays by the operation: there one program has many rows.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fastsample.engines.torch.prepare_params import MIN_P, TEMPERATURE, TOP_K, TOP_P, Chain

from . import param_table as column
from .launch import INTERPRETED, launch
from .mass import BLOCK, MINUS_INF, SCALE_OF_ONE, gap, mass, needed, ranks_at, scaled, uniform
from .param_table import Drawn, real_number, status_of, whole_number

MOST = 256
"""The most first tokens that a program keeps at hand."""

_LEAST = 16
_PAIRS = 4096
"""How many comparisons of tokens with tokens are made at once."""

_ROWS_INTERPRETED = 64
_TEMPERATURE, _TOP_K = tl.constexpr(TEMPERATURE), tl.constexpr(TOP_K)
_TOP_P, _MIN_P = tl.constexpr(TOP_P), tl.constexpr(MIN_P)
_PAST = tl.constexpr(-(2**31))
"""A rank below every logit's."""


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
    # Compiled, several draws at once would have each thread hold all running sums, and spill them.
    rows = draws_at_once = 1
    if INTERPRETED:
        rows = min(_ROWS_INTERPRETED, triton.next_power_of_2(n_rows))
        draws_at_once = min(triton.next_power_of_2(draws), _PAIRS // size)
    lists = torch.empty((n_rows, 3 * size), dtype=torch.int32, device=values.device)
    launch(
        *(_draw, (triton.cdiv(n_rows, rows),), *out, lists, values, *values.stride(), vocabulary),
        *(block_ranks, n_blocks, table, n_rows, draws),
        *(_code(chain.stages), rows, blocks, size, width),
        *(min(size, _PAIRS // size), draws_at_once),
        num_warps=min(32, max(4, max(blocks, width) // 512)),
    )


def _code(stages: tuple[int, ...]) -> int:
    """The stages as a plan has them: the first in the lowest four bits."""
    return sum(stage << 4 * place for place, stage in enumerate(stages))


# ---------------------------------------------------------------- the first tokens


@triton.jit
def _cut(ranks: tl.tensor, need: tl.constexpr, low: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """A rank with fewer than `need` above it, or so many, and how many: more of them are at it.

    `low` is a rank that no fewer than `need` reach.
    """
    low, high = low.to(tl.int64), tl.max(ranks, axis=1).to(tl.int64)
    above = (high * 0).to(tl.int32)
    while tl.max(high - low, axis=0) > 0:
        middle = (low + high + 1) >> 1
        count = tl.sum((ranks >= middle.to(tl.int32)[:, None]).to(tl.int32), axis=1)
        is_open, reached = low < high, count >= need
        above = tl.where(is_open & (count <= need), count, above)
        # Where just as many reach it, none at the rank below it are needed.
        found = is_open & (count == need)
        high = tl.where(is_open & (count <= need), middle - 1, high)
        low = tl.where(found, middle - 1, tl.where(is_open & reached, middle, low))
    return low.to(tl.int32), above


@triton.jit
def _first(ranks: tl.tensor, need: tl.constexpr, low: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Find the first `need` in section 3's order, and where each comes in an ascending list."""
    rank, above = _cut(ranks, need, low)
    is_tie = (ranks == rank[:, None]).to(tl.int32)
    is_in = (is_tie != 0) & (tl.cumsum(is_tie, axis=1) <= (need - above)[:, None])
    is_first = is_in | (ranks > rank[:, None])
    return is_first, tl.cumsum(is_first.to(tl.int32), axis=1) - 1


@triton.jit
def _list(
    lists: tl.tensor,
    row: tl.tensor,
    step: tl.tensor,
    vocabulary: tl.tensor,
    tops: tl.tensor,
    n_blocks: tl.tensor,
    blocks: tl.constexpr,
    size: tl.constexpr,
    width: tl.constexpr,
) -> tl.tensor:
    """List the first tokens of rows ascending, then their ranks; and find the largest ranks."""
    some = tl.arange(0, blocks)[None, :]
    ranks = tl.load(tops[:, None] + some, mask=some < n_blocks, other=_PAST)
    top = tl.max(ranks, axis=1)
    at = tl.arange(0, width)[None, :]
    tokens, low = at, top * 0 + MINUS_INF
    if size < blocks:
        least = tl.min(tl.where(some < n_blocks, ranks, top[:, None]), axis=1)
        is_first, where = _first(ranks, size, least)
        tl.store(lists[:, None] + where, some, mask=is_first)
        tl.debug_barrier()
        tokens = tl.load(lists[:, None] + at // BLOCK) * BLOCK + at % BLOCK
        # Each of these blocks holds a token at least so high.
        low = tl.min(tl.where(is_first, ranks, top[:, None]), axis=1)
    ranks = ranks_at(row[:, None], step, tokens, vocabulary)
    is_first, where = _first(ranks, size, low)
    tl.store(lists[:, None] + size + where, tokens, mask=is_first)
    tl.store(lists[:, None] + 2 * size + where, ranks, mask=is_first)
    tl.debug_barrier()
    return top


# ---------------------------------------------------------------- the filters


@triton.jit
def _masses(ranks: tl.tensor, top: tl.tensor, scale: tl.tensor) -> tl.tensor:
    return mass(gap(ranks, top[:, None], scale[:, None]))


@triton.jit
def _before(
    ranks: tl.tensor,
    listed: tl.tensor,
    top: tl.tensor,
    scale: tl.tensor,
    weigh: tl.constexpr,
    size: tl.constexpr,
    at_once: tl.constexpr,
) -> tl.tensor:
    """How many tokens come before each of the listed ones, or what these weigh."""
    place = tl.arange(0, size)[None, None, :]
    before = tl.zeros(ranks.shape, tl.int64)
    for first in range(0, size, at_once):
        others = first + tl.arange(0, at_once)[None, :]
        theirs = tl.load(listed[:, None] + others)
        weights = _masses(theirs, top, scale) if weigh else theirs.to(tl.int64) * 0 + 1
        is_tie = theirs[:, :, None] == ranks[:, None, :]
        comes = (theirs[:, :, None] > ranks[:, None, :]) | (is_tie & (others[:, :, None] < place))
        before += tl.sum(tl.where(comes, weights[:, :, None], 0), axis=1)
    return before


@triton.jit
def _filtered(
    kept: tl.tensor,
    ranks: tl.tensor,
    listed: tl.tensor,
    place: tl.tensor,
    top: tl.tensor,
    scale: tl.tensor,
    table: tl.tensor,
    row: tl.tensor,
    stage: tl.constexpr,
    size: tl.constexpr,
    at_once: tl.constexpr,
) -> tl.tensor:
    """How many of the first `kept` tokens a filter keeps; min_keep is another's matter."""
    if stage == _TOP_K:
        top_k = whole_number(table, row, column.TOP_K)
        kept = tl.where((top_k > 0) & (top_k < kept), top_k, kept)
    elif stage == _TOP_P:
        share = whole_number(table, row, column.SHARE)
        masses = tl.where(place < kept[:, None], _masses(ranks, top, scale), 0)
        need = needed(tl.where(share < 0, 0, share), tl.sum(masses, axis=1))
        running = _before(ranks, listed, top, scale, True, size, at_once) + masses
        short = (place < kept[:, None]) & (running < need[:, None])
        kept = tl.where(share < 0, kept, tl.sum(short.to(tl.int64), axis=1) + 1)
    elif stage == _MIN_P:
        threshold = real_number(table, row, column.THRESHOLD)
        reaches = gap(ranks, top[:, None], scale[:, None]) >= threshold[:, None]
        passing = tl.sum(reaches.to(tl.int64), axis=1)
        kept = tl.where(passing < kept, passing, kept)
    return kept


@triton.jit
def _kept(
    ranks: tl.tensor,
    listed: tl.tensor,
    top: tl.tensor,
    table: tl.tensor,
    row: tl.tensor,
    stages: tl.constexpr,
    size: tl.constexpr,
    at_once: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Run the stages: how many tokens are kept, which, and the scale of their masses."""
    kept = tl.sum((ranks > MINUS_INF).to(tl.int64), axis=1)
    min_keep = whole_number(table, row, column.MIN_KEEP)
    scale = (kept * 0).to(tl.float32) + SCALE_OF_ONE
    place = _before(ranks, listed, top, scale, False, size, at_once)
    for shift in tl.static_range(0, 16, 4):
        if ((stages >> shift) & 15) == _TEMPERATURE:
            scale = real_number(table, row, column.SCALE)
        else:
            least = tl.where(kept < min_keep, kept, min_keep)
            kept = _filtered(
                *(kept, ranks, listed, place, top, scale, table, row),
                *((stages >> shift) & 15, size, at_once),
            )
            kept = tl.where(kept < least, least, kept)
    kept = tl.where(whole_number(table, row, column.GREEDY) != 0, 1, kept)
    return kept, place < kept[:, None], scale


# ---------------------------------------------------------------- the draw


@triton.jit(do_not_specialize=["n_rows", "draws"])
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
    n_rows: tl.int32,
    draws: tl.int32,
    stages: tl.constexpr,
    rows: tl.constexpr,
    blocks: tl.constexpr,
    size: tl.constexpr,
    width: tl.constexpr,
    at_once: tl.constexpr,
    draws_at_once: tl.constexpr,
) -> None:
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    # Past the end the last row is drawn again, to the same result.
    row = tl.where(row < n_rows, row, n_rows - 1).to(tl.int64)
    lists += row * (3 * size)
    top = _list(
        *(lists, values + row * row_step, step, vocabulary, block_ranks + row * n_blocks),
        *(n_blocks, blocks, size, width),
    )
    place = tl.arange(0, size)[None, :]
    tokens = tl.load(lists[:, None] + size + place)
    listed = lists + 2 * size
    ranks = tl.load(listed[:, None] + place)
    kept, is_kept, scale = _kept(ranks, listed, top, table, row, stages, size, at_once)
    masses = tl.where(is_kept, _masses(ranks, top, scale), 0)
    total, running = tl.sum(masses, axis=1), tl.cumsum(masses, axis=1)
    status = status_of(table, row, top)
    is_good = status == 0
    tl.store(out_status + row, status.to(tl.uint8))
    tl.store(out_kept_count + row, tl.where(is_good, kept, 0))
    tl.store(out_total + row, total)
    seed = whole_number(table, row, column.SEED)[:, None]
    position = whole_number(table, row, column.POSITION)[:, None]
    stream = whole_number(table, row, column.STREAM)[:, None]
    for first in range(0, draws, draws_at_once):
        some = first + tl.arange(0, draws_at_once)[None, :]
        streams = stream + some
        u = uniform(streams * 0 + seed, streams * 0 + position, streams)
        r = scaled(u, streams * 0 + total[:, None])
        before = tl.sum((running[:, None, :] <= r[:, :, None]).to(tl.int32), axis=2)
        is_drawn = place[:, None, :] == before[:, :, None]
        drawn = tl.sum(tl.where(is_drawn, tokens[:, None, :], 0), axis=2)
        drawn = tl.where(is_good[:, None], drawn, -1).to(tl.int64)
        tl.store(out_tokens + row[:, None] * draws + some, drawn, mask=some < draws)
