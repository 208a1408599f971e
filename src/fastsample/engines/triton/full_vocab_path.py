"""Filter and draw among all tokens of each row, several programs to a row.

Each filter moves the row's cut (threshold_search.py). A draw then sums the masses of the kept
tokens by block, finds the block by their running sums, and the token in it. No launch depends on a
value that the host reads.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fastsample.engines.reference.rows import OK
from fastsample.engines.torch.listing import Listing
from fastsample.engines.torch.prepare_params import Chain
from fastsample.params.ops import Op

from .draw import AFTER_RACE, INVERSE, uniform
from .int64_math import mul_high
from .launch import INTERPRETED, launch
from .mass import exponent2, mass
from .ordinal import BLOCK, MINUS_INF, ordinals_at
from .param_table import (
    GREEDY,
    POSITION,
    SEED,
    STAGES,
    STREAM,
    DrawBuffers,
    param,
    status_of,
)
from .race import OPEN, draw_by_race
from .threshold_search import (
    CUT,
    LEAST_C,
    STATE,
    TIES,
    TOP,
    finish_search,
    interval_size,
    kept_total,
    launches_of,
    narrow,
    scale_at,
    start_search,
)

_OK = tl.constexpr(OK)
_BLOCKS_PER_PROGRAM, _PROGRAMS_PER_PROCESSOR = 16, 4


@triton.jit
def start_row(state, table, block_max, n_blocks, status, tile: tl.constexpr):
    """Keep all tokens above -inf; of a greedy or bad row its first token alone."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, tile)
    best = at * 0 + MINUS_INF
    for start in range(0, n_blocks, tile):
        place = block_max + row * n_blocks + start + at
        best = tl.maximum(best, tl.load(place, mask=start + at < n_blocks, other=MINUS_INF))
    top = tl.max(best)
    found = status_of(table, row, top)
    tl.store(status + row, found.to(tl.uint8))
    is_alone = (param(table, row, GREEDY) != 0) | (found != _OK)
    tl.store(state + row * STATE + TOP, top.to(tl.int64))
    tl.store(state + row * STATE + CUT, tl.where(is_alone, top, MINUS_INF).to(tl.int64))
    tl.store(state + row * STATE + TIES, is_alone.to(tl.int64))
    tl.store(state + row * STATE + LEAST_C, (top * 0 + MINUS_INF + 1).to(tl.int64))


@triton.jit
def sum_blocks(
    state,
    table,
    block_max,
    n_blocks,
    masses,
    counts,
    ties,
    values,
    row_step,
    step,
    vocabulary,
    is_scaled: tl.constexpr,
    tile: tl.constexpr,
):
    """Sum each block's tokens above the cut, their masses and their number; count its ties."""
    row = tl.program_id(0).to(tl.int64)
    cut = tl.load(state + row * STATE + CUT).to(tl.int32)
    top, scale = tl.load(state + row * STATE + TOP).to(tl.int32), scale_at(table, row, is_scaled)
    stride = tl.num_programs(1) * tile
    for start in range(tl.program_id(1) * tile, n_blocks, stride):
        block = start + tl.arange(0, tile)
        place = row * n_blocks + block
        best = tl.load(block_max + place, mask=block < n_blocks, other=MINUS_INF)
        # A block whose maximum is below the cut is not read.
        limit = tl.where((best >= cut) & (best > MINUS_INF), vocabulary, 0)
        tokens = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
        ordinals = ordinals_at(values + row * row_step, step, tokens, limit[:, None])
        is_above = ordinals > cut
        each = tl.where(is_above, mass(exponent2(ordinals, top, scale)), 0)
        tl.store(masses + place, tl.sum(each, 1), mask=block < n_blocks)
        tl.store(counts + place, tl.sum(is_above.to(tl.int32), 1), mask=block < n_blocks)
        tl.store(ties + place, tl.sum((ordinals == cut).to(tl.int32), 1), mask=block < n_blocks)


@triton.jit
def draw_token(
    state,
    table,
    block_max,
    n_blocks,
    masses,
    counts,
    ties,
    values,
    row_step,
    step,
    vocabulary,
    tokens,
    status,
    kept_count,
    total,
    draws,
    is_scaled: tl.constexpr,
    after_race: tl.constexpr,
    tile: tl.constexpr,
):
    """Draw once from a row: find the block where the running mass exceeds r, then the token.

    After a race only where it is open.
    """
    row, draw = tl.program_id(0).to(tl.int64) // draws, tl.program_id(0).to(tl.int64) % draws
    state += row * STATE
    masses += row * n_blocks
    counts += row * n_blocks
    ties += row * n_blocks
    cut, top = tl.load(state + CUT).to(tl.int32), tl.load(state + TOP).to(tl.int32)
    scale = scale_at(table, row, is_scaled)
    each = mass(exponent2(cut, top, scale))
    most, weight = kept_total(state, scale, top, masses, ties, n_blocks, tile)
    seed, position = param(table, row, SEED), param(table, row, POSITION)
    stream = param(table, row, STREAM) + draw
    r = mul_high(uniform(seed, position, stream, AFTER_RACE if after_race else INVERSE), weight)

    at = tl.arange(0, tile)
    passed, before, tied = most * 0, most * 0, most * 0
    running, seen, kept = most * 0, most * 0, most * 0
    for start in range(0, n_blocks, tile):
        inside = start + at < n_blocks
        here = tl.load(ties + start + at, mask=inside, other=0).to(tl.int64)
        so_far = seen + tl.cumsum(here)
        taken = tl.minimum(so_far, most) - tl.minimum(so_far - here, most)
        heavy = tl.load(masses + start + at, mask=inside, other=0) + taken * each
        sums = running + tl.cumsum(heavy)
        is_passed = inside & (sums <= r)
        passed += tl.sum(is_passed.to(tl.int64))
        before = tl.maximum(before, tl.max(tl.where(is_passed, sums, 0)))
        tied = tl.maximum(tied, tl.max(tl.where(is_passed, so_far, 0)))
        running += tl.sum(heavy)
        seen += tl.sum(here)
        kept += tl.sum(tl.load(counts + start + at, mask=inside, other=0).to(tl.int64))

    # In a bad row there may be no such block or token.
    block = tl.minimum(passed, n_blocks - 1)
    token = block * BLOCK + tl.arange(0, BLOCK)
    ordinals = ordinals_at(values + row * row_step, step, token, vocabulary)
    is_tie = (ordinals == cut).to(tl.int64)
    is_kept = (ordinals > cut) | ((is_tie != 0) & (tied + tl.cumsum(is_tie) <= most))
    sums = before + tl.cumsum(tl.where(is_kept, mass(exponent2(ordinals, top, scale)), 0))
    found = block * BLOCK + tl.minimum(tl.sum((sums <= r).to(tl.int64)), BLOCK - 1)
    good = tl.load(status + row) == _OK
    tokens += row * draws + draw
    if after_race:
        raced = tl.load(tokens)
        found = tl.where(raced == OPEN, found, raced)
    tl.store(tokens, tl.where(good, found, -1))
    if draw == 0:
        tl.store(kept_count + row, tl.where(good, kept + most, 0))
        tl.store(total + row, weight)


class _Tiles(NamedTuple):
    """How many blocks a program processes at once, by kernel; and the parts of a search."""

    scan: int
    start: int
    sum: int
    narrow: int
    parts: int


_TILES = _Tiles(scan=1024, start=128, sum=16, narrow=2, parts=16)


def _tiles_of(n_blocks: int) -> _Tiles:
    if not INTERPRETED:
        return _TILES
    # The interpreter takes about the same time for an operation of any size, up to large ones.
    if n_blocks <= 256:
        return _Tiles(scan=1024, start=256, sum=64, narrow=8, parts=256)
    return _Tiles(scan=4096, start=1024, sum=1024, narrow=256, parts=16)


def programs_of(n_rows: int, n_blocks: int, device: torch.device) -> int:
    """How many programs work on a row: few rows leave no processor idle."""
    wanted = 2
    if device.type == "cuda":
        processors = torch.cuda.get_device_properties(device).multi_processor_count
        wanted = -(-_PROGRAMS_PER_PROCESSOR * processors // n_rows)
    return max(1, min(wanted, n_blocks // _BLOCKS_PER_PROGRAM))


def draw(
    values: Tensor,
    vocabulary: int,
    block_max: Tensor,
    table: Tensor,
    chain: Chain,
    out: DrawBuffers,
    listing: Listing | None = None,
) -> None:
    """Draw from every row, as `topk_path.draw`; `chain.topk` may be 0.

    By race with a `listing`, which need not list any row.
    """
    n_rows, n_blocks = block_max.shape
    if not n_rows:
        return
    tiles = _tiles_of(n_blocks)
    grid = (n_rows, programs_of(n_rows, n_blocks, values.device))
    launches = launches_of(tiles.parts)
    row = (values, *values.stride(), vocabulary)
    state = table.new_empty((n_rows, STATE.value))
    intervals = table.new_empty((launches + 1, n_rows, interval_size(tiles.parts)))
    masses = table.new_empty((n_rows, n_blocks))
    listed, counts, ties = (torch.empty_like(block_max) for _ in range(3))
    blocks = (block_max, n_blocks, masses, counts, ties)
    search = (state, table, intervals, listed)
    tokens = (state, table, *blocks, *row)

    launch(start_row, (n_rows,), state, table, block_max, n_blocks, out.status, tiles.scan)
    is_scaled = False
    for op, place in chain.stages:
        if op == Op.SCALE:
            is_scaled = True
            continue
        how = (op, is_scaled)
        if op not in (Op.COUNT, Op.THRESHOLD):
            launch(sum_blocks, grid, *tokens, is_scaled, tiles.sum)
        column = STAGES.value + place
        launch(start_search, (n_rows,), *search, *blocks, column, *how, tiles.start, tiles.parts)
        # Where the first token is enough, a threshold's cut is known without reading the others.
        searched = launches if chain.min_keep or op in (Op.COUNT, Op.MASS) else 0
        for number in range(searched):
            launch(narrow, grid, *search, *row, n_blocks, number, *how, tiles.narrow, tiles.parts)
        launch(finish_search, (n_rows,), state, table, intervals, searched, is_scaled, tiles.parts)
    launch(sum_blocks, grid, *tokens, is_scaled, tiles.sum)
    draws, after_race = out.tokens.shape[1], listing is not None
    if listing is not None:
        shared = (ties, state, table, listing, is_scaled, grid[1])
        draw_by_race(row, blocks[:2], *shared, out)
    end = (draws, is_scaled, after_race, tiles.scan)
    launch(draw_token, (n_rows * draws,), *tokens, *out, *end)
