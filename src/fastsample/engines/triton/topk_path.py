"""Filter and draw among a row's top tokens, where the host knows how many are enough.

One program per row. It lists the top tokens, which are in as many blocks with the highest maxima,
in ascending order: so a draw is a running sum in place. Their order in section 3 is found by
comparing each with each. The list is read again behind a barrier, by the program that wrote it.

Triton's interpreter takes time for each operation: there one program has many rows.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fastsample.engines.torch.prepare_params import Chain

from .draw import CLOCK, INVERSE, clock, uniform, words
from .int64_math import mul_high, nucleus_target
from .launch import INTERPRETED, launch
from .mass import SCALE_OF_ONE, exponent2, mass
from .ordinal import BLOCK, MINUS_INF, ordinals_at
from .param_table import (
    GREEDY,
    MIN_KEEP,
    POSITION,
    SEED,
    STAGES,
    STREAM,
    DrawBuffers,
    param,
    scale_param,
    status_of,
)
from .select import OP_COUNT, OP_MASS, OP_SCALE, OP_THRESHOLD, threshold

MAX_TOPK = 256
"""The most top tokens that a program can list."""

_LEAST = 16
_PAIRS = 4096
"""How many pairs of tokens are compared at once."""

_ROWS_INTERPRETED = 64
_NO_TOKEN = tl.constexpr(2**31 - 1)
_PAST = tl.constexpr(-(2**31))
"""An ordinal below every logit's."""


def draw(
    values: Tensor,
    vocabulary: int,
    block_max: Tensor,
    table: Tensor,
    chain: Chain,
    out: DrawBuffers,
    races: bool = False,
) -> None:
    """Draw from every row.

    Parameters
    ----------
    values : tensor of shape (B, columns), of any strides
        Logits as `launch.bits_of` returns them. Columns past the vocabulary are not read.
    vocabulary : int
    block_max : int32 tensor of shape (B, ceil(vocabulary / 64)), contiguous
        The largest ordinal in each block of 64 tokens; above `ordinal.PLUS_INF` for NaN.
    table : int64 tensor of shape (B, `param_table.COLUMNS`), contiguous
        The parameters of each row, on the device.
    chain : Chain
        `topk` is above 0 and at most `MAX_TOPK` here.
    out : DrawBuffers
        Written, all of it.
    races : bool
        Draw by race. All rows are listed.
    """
    (n_rows, n_blocks), draws = block_max.shape, out.tokens.shape[1]
    blocks = triton.next_power_of_2(n_blocks)
    size = min(max(_LEAST, triton.next_power_of_2(chain.topk)), blocks * BLOCK.value)
    width = min(size, blocks) * BLOCK.value
    # Compiled, several draws at once would have each thread hold all running sums, and spill them.
    rows = draws_at_once = 1
    if INTERPRETED:
        rows = min(_ROWS_INTERPRETED, triton.next_power_of_2(n_rows))
        draws_at_once = min(triton.next_power_of_2(draws), _PAIRS // size)
    lists = torch.empty((n_rows, 3 * size), dtype=torch.int32, device=values.device)
    launch(
        _draw,
        (triton.cdiv(n_rows, rows),),
        *out,
        lists,
        values,
        *values.stride(),
        vocabulary,
        block_max,
        n_blocks,
        table,
        n_rows,
        draws,
        tuple(op for op, _ in chain.stages),
        tuple(STAGES.value + place for _, place in chain.stages),
        rows,
        blocks,
        size,
        width,
        min(size, _PAIRS // size),
        draws_at_once,
        races,
        num_warps=min(32, max(4, max(blocks, width) // 512)),
    )


# ---------------------------------------------------------------- the top tokens


@triton.jit
def _cut(ordinals, need: tl.constexpr, low):
    """Find the ordinal of the last of the top `need` tokens, and how many tokens are above it.

    It may be one lower, where exactly `need` are above it. At least `need` tokens reach `low`.
    """
    low, high = low.to(tl.int64), tl.max(ordinals, axis=1).to(tl.int64)
    above = (high * 0).to(tl.int32)
    while tl.max(high - low, axis=0) > 0:
        middle = (low + high + 1) >> 1
        count = tl.sum((ordinals >= middle.to(tl.int32)[:, None]).to(tl.int32), axis=1)
        is_open, reached = low < high, count >= need
        above = tl.where(is_open & (count <= need), count, above)
        # Where exactly `need` tokens reach it, none of the ordinal below is needed.
        found = is_open & (count == need)
        high = tl.where(is_open & (count <= need), middle - 1, high)
        low = tl.where(found, middle - 1, tl.where(is_open & reached, middle, low))
    return low.to(tl.int32), above


@triton.jit
def _mark_top(ordinals, need: tl.constexpr, low):
    """Mark the top `need` tokens, and find the place of each in an ascending list."""
    ordinal, above = _cut(ordinals, need, low)
    is_tie = (ordinals == ordinal[:, None]).to(tl.int32)
    is_in = (is_tie != 0) & (tl.cumsum(is_tie, axis=1) <= (need - above)[:, None])
    is_top = is_in | (ordinals > ordinal[:, None])
    return is_top, tl.cumsum(is_top.to(tl.int32), axis=1) - 1


@triton.jit
def _list(
    lists,
    row,
    step,
    vocabulary,
    block_max,
    n_blocks,
    blocks: tl.constexpr,
    size: tl.constexpr,
    width: tl.constexpr,
):
    """List the top tokens of rows ascending, then their ordinals; return the largest ordinals."""
    block = tl.arange(0, blocks)[None, :]
    ordinals = tl.load(block_max[:, None] + block, mask=block < n_blocks, other=_PAST)
    top = tl.max(ordinals, axis=1)
    at = tl.arange(0, width)[None, :]
    tokens, low = at, top * 0 + MINUS_INF
    if size < blocks:
        least = tl.min(tl.where(block < n_blocks, ordinals, top[:, None]), axis=1)
        is_top, where = _mark_top(ordinals, size, least)
        tl.store(lists[:, None] + where, block, mask=is_top)
        tl.debug_barrier()
        tokens = tl.load(lists[:, None] + at // BLOCK) * BLOCK + at % BLOCK
        # Each of these blocks holds a token at least so high.
        low = tl.min(tl.where(is_top, ordinals, top[:, None]), axis=1)
    ordinals = ordinals_at(row[:, None], step, tokens, vocabulary)
    is_top, where = _mark_top(ordinals, size, low)
    tl.store(lists[:, None] + size + where, tokens, mask=is_top)
    tl.store(lists[:, None] + 2 * size + where, ordinals, mask=is_top)
    tl.debug_barrier()
    return top


# ---------------------------------------------------------------- the filters


@triton.jit
def _masses(ordinals, top, scale):
    return mass(exponent2(ordinals, top[:, None], scale[:, None]))


@triton.jit
def _before(
    ordinals, listed, top, scale, by_mass: tl.constexpr, size: tl.constexpr, at_once: tl.constexpr
):
    """How many tokens precede each of the listed ones in section 3's order, or their mass."""
    place = tl.arange(0, size)[None, None, :]
    before = tl.zeros(ordinals.shape, tl.int64)
    for first in range(0, size, at_once):
        others = first + tl.arange(0, at_once)[None, :]
        theirs = tl.load(listed[:, None] + others)
        weights = _masses(theirs, top, scale) if by_mass else theirs.to(tl.int64) * 0 + 1
        is_tie = theirs[:, :, None] == ordinals[:, None, :]
        is_before = theirs[:, :, None] > ordinals[:, None, :]
        is_before = is_before | (is_tie & (others[:, :, None] < place))
        before += tl.sum(tl.where(is_before, weights[:, :, None], 0), axis=1)
    return before


@triton.jit
def _end(
    kept,
    ordinals,
    listed,
    place,
    top,
    scale,
    number,
    op: tl.constexpr,
    size: tl.constexpr,
    at_once: tl.constexpr,
):
    """How many of the first `kept` tokens a filter keeps; min_keep is not looked at."""
    total = kept * 0
    if op != OP_COUNT and op != OP_THRESHOLD:
        masses = tl.where(place < kept[:, None], _masses(ordinals, top, scale), 0)
        total = tl.sum(masses, axis=1)
    if op == OP_COUNT:
        end = tl.minimum(number, kept)
    elif op == OP_MASS:
        target = nucleus_target(tl.maximum(number, 0), total)
        running = _before(ordinals, listed, top, scale, True, size, at_once) + masses
        short = (place < kept[:, None]) & (running < target[:, None])
        end = tl.where(number < 0, kept, tl.sum(short.to(tl.int64), axis=1) + 1)
    else:
        least = threshold(number, total, op)
        reaches = exponent2(ordinals, top[:, None], scale[:, None]) >= least[:, None]
        end = tl.minimum(tl.sum(reaches.to(tl.int64), axis=1), kept)
    return end


@triton.jit
def _kept(
    ordinals,
    listed,
    top,
    table,
    row,
    ops: tl.constexpr,
    columns: tl.constexpr,
    size: tl.constexpr,
    at_once: tl.constexpr,
):
    """Run the stages: how many tokens are kept, which, and the scale of their masses."""
    kept = tl.sum((ordinals > MINUS_INF).to(tl.int64), axis=1)
    min_keep = param(table, row, MIN_KEEP)
    scale = (kept * 0).to(tl.float32) + SCALE_OF_ONE
    place = _before(ordinals, listed, top, scale, False, size, at_once)
    for stage in tl.static_range(len(ops)):
        if ops[stage] == OP_SCALE:
            scale = scale_param(table, row)
        else:
            number = param(table, row, columns[stage])
            least = tl.minimum(kept, min_keep)
            kept = _end(
                kept, ordinals, listed, place, top, scale, number, ops[stage], size, at_once
            )
            kept = tl.maximum(kept, least)
    kept = tl.where(param(table, row, GREEDY) != 0, 1, kept)
    return kept, place < kept[:, None], scale


# ---------------------------------------------------------------- the draw


@triton.jit
def _first_by_clock(seed, position, streams, tokens, masses):
    """The token of the least time in a listed row, for each stream."""
    index = streams[:, :, None] * 0 + tokens[:, None, :]
    zero = index * 0
    k, _ = words(
        zero + seed[:, :, None],
        zero + position[:, :, None],
        zero + streams[:, :, None],
        index,
        CLOCK,
    )
    rates = zero + masses[:, None, :]
    times = clock(k) / tl.maximum(rates, 1).to(tl.float64)
    times = tl.where(rates > 0, times, float("inf"))
    least = tl.min(times, axis=2)
    return tl.min(tl.where(times == least[:, :, None], index, _NO_TOKEN), axis=2)


@triton.jit(do_not_specialize=["n_rows", "draws"])
def _draw(
    out_tokens,
    out_status,
    out_kept_count,
    out_total,
    lists,
    values,
    row_step: tl.int64,
    step,
    vocabulary,
    block_max,
    n_blocks,
    table,
    n_rows: tl.int32,
    draws: tl.int32,
    ops: tl.constexpr,
    columns: tl.constexpr,
    rows: tl.constexpr,
    blocks: tl.constexpr,
    size: tl.constexpr,
    width: tl.constexpr,
    at_once: tl.constexpr,
    draws_at_once: tl.constexpr,
    races: tl.constexpr,
):
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    # Past the end the last row is drawn again, to the same result.
    row = tl.where(row < n_rows, row, n_rows - 1).to(tl.int64)
    lists += row * (3 * size)
    block_max += row * n_blocks
    values += row * row_step
    top = _list(lists, values, step, vocabulary, block_max, n_blocks, blocks, size, width)
    place = tl.arange(0, size)[None, :]
    tokens = tl.load(lists[:, None] + size + place)
    listed = lists + 2 * size
    ordinals = tl.load(listed[:, None] + place)
    kept, is_kept, scale = _kept(ordinals, listed, top, table, row, ops, columns, size, at_once)
    masses = tl.where(is_kept, _masses(ordinals, top, scale), 0)
    total, running = tl.sum(masses, axis=1), tl.cumsum(masses, axis=1)
    status = status_of(table, row, top)
    is_good = status == 0
    tl.store(out_status + row, status.to(tl.uint8))
    tl.store(out_kept_count + row, tl.where(is_good, kept, 0))
    tl.store(out_total + row, total)
    seed = param(table, row, SEED)[:, None]
    position = param(table, row, POSITION)[:, None]
    stream = param(table, row, STREAM)[:, None]
    for first in range(0, draws, draws_at_once):
        draw = first + tl.arange(0, draws_at_once)[None, :]
        streams = stream + draw
        if races:
            drawn = _first_by_clock(seed, position, streams, tokens, masses)
        else:
            u = uniform(streams * 0 + seed, streams * 0 + position, streams, INVERSE)
            r = mul_high(u, streams * 0 + total[:, None])
            before = tl.sum((running[:, None, :] <= r[:, :, None]).to(tl.int32), axis=2)
            is_drawn = place[:, None, :] == before[:, :, None]
            drawn = tl.sum(tl.where(is_drawn, tokens[:, None, :], 0), axis=2)
        drawn = tl.where(is_good[:, None], drawn, -1).to(tl.int64)
        tl.store(out_tokens + row[:, None] * draws + draw, drawn, mask=draw < draws)
