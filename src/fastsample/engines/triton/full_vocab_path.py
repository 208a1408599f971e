"""The filters and the draw among all tokens of each row, several programs to a row.

Each filter moves the row's cut (cuts.py). A draw then weighs the blocks of what is kept, finds the
block by their running sums, and the token in it. No launch waits for another's answer on the host.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fastsample.engines.reference.rows import OK
from fastsample.engines.torch.prepare_params import MIN_P, TEMPERATURE, TOP_P, Chain

from .launch import INTERPRETED, launch
from .mass import BLOCK, MINUS_INF, gap, mass, ranks_at, scaled, uniform
from .param_table import GREEDY, POSITION, SEED, STREAM, Drawn, status_of, whole_number
from .threshold_search import (
    CUT,
    MARKS,
    TIES,
    TOP,
    end_search,
    kept_total,
    launches_of,
    narrow,
    scale_at,
    start_search,
    trail_of,
)

_OK = tl.constexpr(OK)
_BLOCKS_A_PROGRAM, _PROGRAMS_A_PROCESSOR = 16, 4


@triton.jit
def open_row(
    marks: tl.tensor,
    table: tl.tensor,
    block_ranks: tl.tensor,
    n_blocks: tl.tensor,
    status: tl.tensor,
    at_once: tl.constexpr,
) -> None:
    """Begin a row: all that is finite is kept; of a greedy or bad row its first token alone."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, at_once)
    best = at * 0 + MINUS_INF
    for start in range(0, n_blocks, at_once):
        place = block_ranks + row * n_blocks + start + at
        best = tl.maximum(best, tl.load(place, mask=start + at < n_blocks, other=MINUS_INF))
    top = tl.max(best)
    found = status_of(table, row, top)
    tl.store(status + row, found.to(tl.uint8))
    alone = (whole_number(table, row, GREEDY) != 0) | (found != _OK)
    tl.store(marks + row * MARKS + TOP, top.to(tl.int64))
    tl.store(marks + row * MARKS + CUT, tl.where(alone, top, MINUS_INF).to(tl.int64))
    tl.store(marks + row * MARKS + TIES, alone.to(tl.int64))


@triton.jit
def weigh(
    marks: tl.tensor,
    table: tl.tensor,
    block_ranks: tl.tensor,
    n_blocks: tl.tensor,
    masses: tl.tensor,
    counts: tl.tensor,
    ties: tl.tensor,
    values: tl.tensor,
    row_step: tl.tensor,
    step: tl.tensor,
    vocabulary: tl.tensor,
    tempered: tl.constexpr,
    at_once: tl.constexpr,
) -> None:
    """What each block weighs above the cut, how many tokens that is, and its ties at the cut."""
    row = tl.program_id(0).to(tl.int64)
    cut = tl.load(marks + row * MARKS + CUT).to(tl.int32)
    top, scale = tl.load(marks + row * MARKS + TOP).to(tl.int32), scale_at(table, row, tempered)
    pace = tl.num_programs(1) * at_once
    for start in range(tl.program_id(1) * at_once, n_blocks, pace):
        block = start + tl.arange(0, at_once)
        place = row * n_blocks + block
        best = tl.load(block_ranks + place, mask=block < n_blocks, other=MINUS_INF)
        # A block whose best token lies below the cut is not read.
        limit = tl.where((best >= cut) & (best > MINUS_INF), vocabulary, 0)
        tokens = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
        ranks = ranks_at(values + row * row_step, step, tokens, limit[:, None])
        is_above = ranks > cut
        weights = tl.where(is_above, mass(gap(ranks, top, scale)), 0)
        tl.store(masses + place, tl.sum(weights, 1), mask=block < n_blocks)
        tl.store(counts + place, tl.sum(is_above.to(tl.int32), 1), mask=block < n_blocks)
        tl.store(ties + place, tl.sum((ranks == cut).to(tl.int32), 1), mask=block < n_blocks)


@triton.jit
def draw_token(
    marks: tl.tensor,
    table: tl.tensor,
    block_ranks: tl.tensor,
    n_blocks: tl.tensor,
    masses: tl.tensor,
    counts: tl.tensor,
    ties: tl.tensor,
    values: tl.tensor,
    row_step: tl.tensor,
    step: tl.tensor,
    vocabulary: tl.tensor,
    tokens: tl.tensor,
    status: tl.tensor,
    kept_count: tl.tensor,
    total: tl.tensor,
    draws: tl.tensor,
    tempered: tl.constexpr,
    at_once: tl.constexpr,
) -> None:
    """Draw once from a row: find the block where the running mass exceeds r, then the token."""
    row, draw = tl.program_id(0).to(tl.int64) // draws, tl.program_id(0).to(tl.int64) % draws
    marks += row * MARKS
    masses += row * n_blocks
    counts += row * n_blocks
    ties += row * n_blocks
    cut, top = tl.load(marks + CUT).to(tl.int32), tl.load(marks + TOP).to(tl.int32)
    scale = scale_at(table, row, tempered)
    each = mass(gap(cut, top, scale))
    most, weight = kept_total(marks, scale, top, masses, ties, n_blocks, at_once)
    seed, position = whole_number(table, row, SEED), whole_number(table, row, POSITION)
    r = scaled(uniform(seed, position, whole_number(table, row, STREAM) + draw), weight)

    at = tl.arange(0, at_once)
    passed, before, tied = most * 0, most * 0, most * 0
    running, seen, kept = most * 0, most * 0, most * 0
    for start in range(0, n_blocks, at_once):
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

    # In a bad row no block, or no token, may be found.
    block = tl.minimum(passed, n_blocks - 1)
    token = block * BLOCK + tl.arange(0, BLOCK)
    ranks = ranks_at(values + row * row_step, step, token, vocabulary)
    is_tie = (ranks == cut).to(tl.int64)
    is_kept = (ranks > cut) | ((is_tie != 0) & (tied + tl.cumsum(is_tie) <= most))
    sums = before + tl.cumsum(tl.where(is_kept, mass(gap(ranks, top, scale)), 0))
    found = block * BLOCK + tl.minimum(tl.sum((sums <= r).to(tl.int64)), BLOCK - 1)
    good = tl.load(status + row) == _OK
    tl.store(tokens + row * draws + draw, tl.where(good, found, -1))
    if draw == 0:
        tl.store(kept_count + row, tl.where(good, kept + most, 0))
        tl.store(total + row, weight)


class _Tiles(NamedTuple):
    """How many blocks a program takes at once, by what it does; and the ways of a search."""

    scanned: int
    compared: int
    weighed: int
    narrowed: int
    ways: int


_TILES = _Tiles(scanned=1024, compared=128, weighed=16, narrowed=2, ways=16)


def _tiles_of(n_blocks: int) -> _Tiles:
    if not INTERPRETED:
        return _TILES
    # There each operation costs about the same, whatever it takes; until that is much.
    few = _Tiles(scanned=1024, compared=256, weighed=64, narrowed=8, ways=256)
    many = _Tiles(scanned=4096, compared=1024, weighed=1024, narrowed=256, ways=16)
    return few if n_blocks <= 256 else many


def programs_of(n_rows: int, n_blocks: int, device: torch.device) -> int:
    """How many programs work on a row: few rows leave no processor idle."""
    wanted = 2
    if device.type == "cuda":
        processors = torch.cuda.get_device_properties(device).multi_processor_count
        wanted = -(-_PROGRAMS_A_PROCESSOR * processors // n_rows)
    return max(1, min(wanted, n_blocks // _BLOCKS_A_PROGRAM))


def draw(
    values: Tensor, vocabulary: int, block_ranks: Tensor, table: Tensor, chain: Chain, out: Drawn
) -> None:
    """Draw from every row, as `head.draw` says; `chain.head` may be 0."""
    n_rows, n_blocks = block_ranks.shape
    if not n_rows:
        return
    tiles = _tiles_of(n_blocks)
    grid = (n_rows, programs_of(n_rows, n_blocks, values.device))
    launches = launches_of(tiles.ways)
    row = (values, *values.stride(), vocabulary)
    marks = table.new_empty((n_rows, MARKS.value))
    trail = table.new_empty((launches + 1, n_rows, trail_of(tiles.ways)))
    masses = table.new_empty((n_rows, n_blocks))
    listed, counts, ties = (torch.empty_like(block_ranks) for _ in range(3))
    blocks = (block_ranks, n_blocks, masses, counts, ties)

    launch(open_row, (n_rows,), marks, table, block_ranks, n_blocks, out.status, tiles.scanned)
    tempered = False
    for stage in chain.stages:
        if stage == TEMPERATURE:
            tempered = True
            continue
        if stage == TOP_P:
            launch(weigh, grid, marks, table, *blocks, *row, tempered, tiles.weighed)
        launch(
            *(start_search, (n_rows,), marks, trail, table, block_ranks, n_blocks, listed),
            *(masses, ties, stage, tempered, tiles.compared, tiles.ways),
        )
        # Where the first token is enough, min_p's cut is known without a look at the others.
        searched = launches if chain.min_keep or stage != MIN_P else 0
        for number in range(searched):
            launch(
                *(narrow, grid, marks, trail, table, listed, *row, n_blocks, number),
                *(stage, tempered, tiles.narrowed, tiles.ways),
            )
        launch(end_search, (n_rows,), marks, trail, table, searched, tempered, tiles.ways)
    launch(weigh, grid, marks, table, *blocks, *row, tempered, tiles.weighed)
    draws = out.tokens.shape[1]
    launch(
        *(draw_token, (n_rows * draws,), marks, table, *blocks, *row),
        *(*out, draws, tempered, tiles.scanned),
    )
