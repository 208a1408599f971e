"""Section 6 of the rule: the race among all tokens of each row, several programs to a row.

The kept set is a cut and its ties, as `full_vocab_path` finds it. One launch counts the tokens of C
by their masses, one finds q and the last tie. Then each draw finds the first arrival by a clock,
several programs to a draw, and one program looks at the tail until the race is decided. No launch
depends on a value that the host reads.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fastsample.engines.reference import race as reference
from fastsample.engines.reference.rows import OK
from fastsample.engines.torch.listing import Listing

from .draw import ARRIVAL, CLOCK, clock, in_steps, words
from .launch import INTERPRETED, launch
from .mass import exponent2, mass
from .ordinal import BLOCK, MINUS_INF, ordinals_at
from .param_table import LISTED, POSITION, SEED, STREAM, DrawBuffers, param
from .threshold_search import CUT, LEAST_C, STATE, TIES, TOP, scale_at

LIMIT = reference.LIMIT
"""Arrivals of the tail that are looked at."""

OPEN = tl.constexpr(-2)
"""The token of a draw whose race is left open."""

_LEVELS = tl.constexpr(16)
"""How many levels can differ from row to row: at q = 41 and above no token has a mass of 2^q."""

_OK, _NO_TOKEN = tl.constexpr(OK), tl.constexpr(2**31 - 1)
_NEVER = tl.constexpr(0x7FF0000000000000)
"""The bits of an infinite time. Times are compared by their bits."""


class _Tiles(NamedTuple):
    """How many blocks a program processes at once, by kernel; and arrivals."""

    levels: int
    scan: int
    clocks: int
    arrivals: int


_TILES = _Tiles(levels=4, scan=1024, clocks=4, arrivals=256)
_TILES_INTERPRETED = _Tiles(levels=64, scan=1024, clocks=64, arrivals=2048)


def draw_by_race(
    row: tuple[Tensor, int, int, int],
    blocks: tuple[Tensor, int],
    ties: Tensor,
    state: Tensor,
    table: Tensor,
    listing: Listing,
    is_scaled: bool,
    programs: int,
    out: DrawBuffers,
) -> None:
    """Write the tokens of every draw: -1 where the row is bad, `OPEN` where a race is left open.

    Parameters
    ----------
    row : tuple
        The values, their steps from row to row and from token to token, and the vocabulary.
    blocks : tuple
        The largest ordinal of each block, and how many there are.
    ties : int32 tensor of shape (B, n_blocks)
        How many tokens of each block are at the cut.
    state, table : int64 tensors
    listing : Listing
    is_scaled : bool
    programs : int
        To a row.
    out : DrawBuffers
        The status has been written.
    """
    n_rows, draws = out.tokens.shape
    v = reference.vocabulary_bits(row[3])
    most, least = math.isqrt(2**v >> 5), max(0, reference.LEVEL_BITS - v)
    tiles = _TILES_INTERPRETED if INTERPRETED else _TILES
    counts = torch.zeros((n_rows, _LEVELS.value), dtype=torch.int32, device=table.device)
    levels = torch.empty((n_rows, 2), dtype=torch.int64, device=table.device)
    best = table.new_empty((n_rows * draws, 2 * programs))
    at = (state, table, *blocks, *row)
    if not listing.all:
        launch(count_levels, (n_rows, programs), *at, counts, least, is_scaled, tiles.levels)
    launch(start_race, (n_rows,), *at, ties, counts, levels, least, most, tiles.scan)
    grid = (n_rows * draws, programs)
    launch(first_by_clock, grid, *at, levels, best, draws, is_scaled, tiles.clocks)
    width = triton.next_power_of_2(programs)
    end = (levels, best, programs, out.tokens, out.status, draws, LIMIT)
    launch(decide, (n_rows * draws,), *at, *end, v, width, is_scaled, tiles.arrivals)


# ---------------------------------------------------------------- what all draws of a row share


@triton.jit(do_not_specialize=["least"])
def count_levels(
    state,
    table,
    block_max,
    n_blocks,
    values,
    row_step,
    step,
    vocabulary,
    counts,
    least,
    is_scaled: tl.constexpr,
    tile: tl.constexpr,
):
    """Count the tokens of C with a mass of 2^q or more, for each q from `least` on."""
    row = tl.program_id(0).to(tl.int64)
    lowest = tl.load(state + row * STATE + LEAST_C).to(tl.int32)
    top, scale = tl.load(state + row * STATE + TOP).to(tl.int32), scale_at(table, row, is_scaled)
    floors = (tl.arange(0, _LEVELS) * 0 + 1).to(tl.int64) << (least + tl.arange(0, _LEVELS))
    at = tl.arange(0, tile * BLOCK)
    found = tl.zeros([_LEVELS], tl.int32)
    for start in range(tl.program_id(1) * tile, n_blocks, tl.num_programs(1) * tile):
        block = start + at // BLOCK
        best = tl.load(block_max + row * n_blocks + block, mask=block < n_blocks, other=MINUS_INF)
        # Masses are not monotone, but whether they reach a power of two is.
        is_near = (best >= lowest) & (mass(exponent2(best, top, scale)) >> least > 0)
        if tl.max(is_near.to(tl.int32)) > 0:
            limit = tl.where(is_near, vocabulary, 0)
            ordinals = ordinals_at(values + row * row_step, step, block * BLOCK + at % BLOCK, limit)
            each = tl.where(ordinals >= lowest, mass(exponent2(ordinals, top, scale)), 0)
            found += tl.sum((each[:, None] >= floors[None, :]).to(tl.int32), 0)
    place = counts + row * _LEVELS + tl.arange(0, _LEVELS)
    tl.atomic_add(place, found, sem="relaxed")


@triton.jit(do_not_specialize=["least", "most"])
def start_race(
    state,
    table,
    _block_max,
    n_blocks,
    values,
    row_step,
    step,
    vocabulary,
    ties,
    counts,
    levels,
    least,
    most,
    tile: tl.constexpr,
):
    """Write q of a row, -1 where it is listed, and the last tie that is kept."""
    row = tl.program_id(0).to(tl.int64)
    found = tl.load(counts + row * _LEVELS + tl.arange(0, _LEVELS))
    q = tl.sum((found > most).to(tl.int32)) + least
    is_listed = param(table, row, LISTED) != 0
    tl.store(levels + row * 2, tl.where(is_listed, -1, q).to(tl.int64))

    state += row * STATE
    ties += row * n_blocks
    cut, kept = tl.load(state + CUT).to(tl.int32), tl.load(state + TIES)
    at = tl.arange(0, tile)
    passed, before, seen = kept * 0, kept * 0, kept * 0
    for start in range(0, n_blocks, tile):
        inside = start + at < n_blocks
        here = tl.load(ties + start + at, mask=inside, other=0).to(tl.int64)
        so_far = seen + tl.cumsum(here)
        is_passed = inside & (so_far < kept)
        passed += tl.sum(is_passed.to(tl.int64))
        before = tl.maximum(before, tl.max(tl.where(is_passed, so_far, 0)))
        seen += tl.sum(here)
    # Where all ties are kept there is no last one, nor at the cut of -inf, whose masses are 0.
    token = tl.minimum(passed, n_blocks - 1) * BLOCK + tl.arange(0, BLOCK)
    ordinals = ordinals_at(values + row * row_step, step, token, vocabulary)
    is_tie = (ordinals == cut).to(tl.int64)
    is_last = (is_tie != 0) & (before + tl.cumsum(is_tie) == kept)
    last = tl.min(tl.where(is_last, token, _NO_TOKEN))
    tl.store(levels + row * 2 + 1, last.to(tl.int64))


@triton.jit
def _masses(ordinals, tokens, cut, last, top, scale):
    """Masses of tokens, 0 for those that are not kept."""
    is_kept = (ordinals > cut) | ((ordinals == cut) & (tokens <= last))
    return tl.where(is_kept, mass(exponent2(ordinals, top, scale)), 0)


@triton.jit
def _floor(q):
    """The mass above which tokens have clocks; q is -1 in a listed row."""
    return tl.where(q < 0, 0, (q * 0 + 1) << tl.maximum(q, 0))


# ---------------------------------------------------------------- the head, and listed tokens


@triton.jit(do_not_specialize=["draws"])
def first_by_clock(
    state,
    table,
    block_max,
    n_blocks,
    values,
    row_step,
    step,
    vocabulary,
    levels,
    best,
    draws,
    is_scaled: tl.constexpr,
    tile: tl.constexpr,
):
    """Find the least time, and its token, among the tokens with a clock of a program's blocks."""
    row, draw = tl.program_id(0).to(tl.int64) // draws, tl.program_id(0).to(tl.int64) % draws
    cut = tl.load(state + row * STATE + CUT).to(tl.int32)
    top, scale = tl.load(state + row * STATE + TOP).to(tl.int32), scale_at(table, row, is_scaled)
    floor, last = _floor(tl.load(levels + row * 2)), tl.load(levels + row * 2 + 1)
    seed, position = param(table, row, SEED), param(table, row, POSITION)
    stream = param(table, row, STREAM) + draw
    at = tl.arange(0, tile * BLOCK)
    times = at.to(tl.int64) * 0 + _NEVER
    tokens = at.to(tl.int64) * 0 + _NO_TOKEN
    for start in range(tl.program_id(1) * tile, n_blocks, tl.num_programs(1) * tile):
        block = start + at // BLOCK
        most = tl.load(block_max + row * n_blocks + block, mask=block < n_blocks, other=MINUS_INF)
        is_near = (most >= cut) & (mass(exponent2(most, top, scale)) > floor)
        if tl.max(is_near.to(tl.int32)) > 0:
            token = (block * BLOCK + at % BLOCK).to(tl.int64)
            limit = tl.where(is_near, vocabulary, 0)
            ordinals = ordinals_at(values + row * row_step, step, token, limit)
            rate = _masses(ordinals, token, cut, last, top, scale) - floor
            zero = token * 0
            k, _ = words(zero + seed, zero + position, zero + stream, token, CLOCK)
            time = clock(k) / tl.maximum(rate, 1).to(tl.float64)
            bits = tl.where(rate > 0, time.to(tl.int64, bitcast=True), _NEVER)
            # Tokens ascend from round to round: of equal times the first is the lower one's.
            tokens = tl.where(bits < times, token, tokens)
            times = tl.minimum(bits, times)
    least = tl.min(times)
    place = best + tl.program_id(0).to(tl.int64) * tl.num_programs(1) * 2 + tl.program_id(1) * 2
    tl.store(place, least)
    tl.store(place + 1, tl.min(tl.where(times == least, tokens, _NO_TOKEN)))


# ---------------------------------------------------------------- the tail


@triton.jit(do_not_specialize=["draws", "limit"])
def decide(
    state,
    table,
    _block_max,
    _n_blocks,
    values,
    row_step,
    step,
    vocabulary,
    levels,
    best,
    programs,
    out_tokens,
    status,
    draws,
    limit,
    v: tl.constexpr,
    width: tl.constexpr,
    is_scaled: tl.constexpr,
    tile: tl.constexpr,
):
    """Look at the tail of one draw until its race is decided; write its token."""
    number = tl.program_id(0).to(tl.int64)
    row, draw = number // draws, number % draws
    at = tl.arange(0, width)
    place = best + (number * programs + at) * 2
    bits = tl.load(place, mask=at < programs, other=_NEVER)
    bound = tl.min(bits)
    first = tl.load(place + 1, mask=(at < programs) & (bits == bound), other=_NO_TOKEN)
    by_clock = tl.min(first)
    h = bound.to(tl.float64, bitcast=True)

    cut = tl.load(state + row * STATE + CUT).to(tl.int32)
    top, scale = tl.load(state + row * STATE + TOP).to(tl.int32), scale_at(table, row, is_scaled)
    q, last = tl.load(levels + row * 2), tl.load(levels + row * 2 + 1)
    seed, position = param(table, row, SEED), param(table, row, POSITION)
    stream = param(table, row, STREAM) + draw
    is_good = tl.load(status + row) == _OK
    # A listed row is decided by its clocks.
    token = tl.where((q < 0) & is_good, by_clock, tl.where(is_good, OPEN, -1))
    q = tl.maximum(q, 0)
    unit = ((1023 - v - q) << 52).to(tl.float64, bitcast=True)
    start, elapsed = q * 0, unit * 0.0
    while (start < limit) & (token == OPEN):
        j = start + tl.arange(0, tile)
        zero = j * 0
        k, point = words(zero + seed, zero + position, zero + stream, j, ARRIVAL)
        steps = tl.where(j < limit, in_steps(clock(k)), 0.0)
        times = (elapsed + tl.cumsum(steps)) * unit
        elapsed += tl.sum(steps)
        tokens = (point >> (64 - v)).to(tl.int64)
        below = (point >> 1).to(tl.int64) >> (63 - v - q)
        heights = below & ((zero + 1 << q) - 1)
        ordinals = ordinals_at(values + row * row_step, step, tokens, vocabulary)
        counts = _masses(ordinals, tokens, cut, last, top, scale) > heights
        arrived = tl.min(tl.where(counts, j, limit))
        is_there = arrived < limit
        time = tl.sum(tl.where(j == arrived, times, 0.0))
        by_tail = tl.sum(tl.where(j == arrived, tokens, 0))
        is_late = is_there | (h < elapsed * unit)
        token = tl.where(is_late, by_clock, token)
        token = tl.where(is_there & (time <= h), by_tail, token)
        start += tile
    tl.store(out_tokens + number, token)
