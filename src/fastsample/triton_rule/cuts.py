"""Where a kept set ends in a row of any length: searched by several programs, launch by launch.

A filter keeps a prefix of section 3's order, so a kept set is a cut: the rank that it ends at, and
how many tokens of that rank it has, its ties. A search finds the largest rank from which up enough
lies: so many tokens, so much mass, and no rank above a limit. It knows two ranks: from the lower one
up there is enough, or the set ends there already; from the upper one up there is not. Each launch
adds up what lies from some ranks between them up, and the next draws the two together. What lies at
the cut itself is never added up: where all above it is too little, the cut stays.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .numbers import (
    BLOCK,
    MINUS_INF,
    SCALE_OF_ONE,
    gap,
    logit_of,
    mass,
    needed,
    rank_of,
    ranks_at,
)
from .table import MIN_KEEP, SCALE, SHARE, THRESHOLD, real_number, whole_number
from .table import TOP_K as TOP_K_OF

TOP_K, TOP_P, MIN_P = tl.constexpr(2), tl.constexpr(3), tl.constexpr(4)
"""Stages, by their codes in a plan."""

WAYS = tl.constexpr(16)
"""Into how many parts a launch cuts an interval of ranks."""

LAUNCHES = tl.constexpr(8)
"""How many launches leave one rank of any interval: 16**8 is 2**32."""

ALL = tl.constexpr(2**40)
"""More tokens than a row has."""

_NEVER, _FAR = tl.constexpr(2**62), tl.constexpr(2**40)
"""More mass than a row has; and above every rank."""

CUT, TIES, TOP = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
_COUNT, _WEIGHT, _LIMIT, _LISTED = (tl.constexpr(column) for column in range(3, 7))
_INTERVALS = tl.constexpr(7)
_SUMS = tl.constexpr(7 + 4 * (8 + 1))
COLUMNS = tl.constexpr(7 + 4 * (8 + 1) + 8 * 2 * 16)
"""Columns of the book, int64 of shape (B, COLUMNS), in which launches hand on what they know.

The cut and the row's top rank; what is enough: tokens, mass and limit; how many blocks are listed;
for each launch of a search the two ranks, and the tokens and the mass from the upper one up; and
what it adds up.
"""


@triton.jit
def scale_at(table: tl.tensor, row: tl.tensor, tempered: tl.constexpr) -> tl.tensor:
    """s of a row: that of temperature 1 before the temperature has acted."""
    if tempered:
        return real_number(table, row, SCALE)
    else:
        return SCALE_OF_ONE


@triton.jit
def least_rank(threshold: tl.tensor, top: tl.tensor, scale: tl.tensor) -> tl.tensor:
    """The least rank whose y reaches a threshold below 0, int64: y never falls as ranks rise."""
    low, high = (top * 0).to(tl.int64) + (MINUS_INF - 1), top.to(tl.int64)
    for _ in range(32):
        middle = (low + high) >> 1
        reaches = gap(middle.to(tl.int32), top, scale) >= threshold
        low, high = tl.where(reaches, low, middle), tl.where(reaches, middle, high)
    return high


@triton.jit
def kept_total(
    book: tl.tensor,
    scale: tl.tensor,
    top: tl.tensor,
    masses: tl.tensor,
    ties: tl.tensor,
    n_blocks: tl.tensor,
    at_once: tl.constexpr,
) -> tl.tensor:
    """How many ties the cut of a row has, and W of its kept set, by what its blocks weigh."""
    at = tl.arange(0, at_once)
    total, found = tl.load(book + TIES) * 0, tl.load(book + TIES) * 0
    for start in range(0, n_blocks, at_once):
        inside = start + at < n_blocks
        total += tl.sum(tl.load(masses + start + at, mask=inside, other=0))
        found += tl.sum(tl.load(ties + start + at, mask=inside, other=0).to(tl.int64))
    found = tl.minimum(found, tl.load(book + TIES))
    each = mass(gap(tl.load(book + CUT).to(tl.int32), top, scale))
    return found, total + found * each


@triton.jit
def enough(
    book: tl.tensor,
    table: tl.tensor,
    row: tl.tensor,
    top: tl.tensor,
    scale: tl.tensor,
    masses: tl.tensor,
    ties: tl.tensor,
    n_blocks: tl.tensor,
    stage: tl.constexpr,
    at_once: tl.constexpr,
) -> tl.tensor:
    """What a stage needs: so many tokens, so much mass, and no rank above a limit."""
    count = whole_number(table, row, MIN_KEEP)
    weight, limit = count * 0, count * 0 + _FAR
    if stage == TOP_K:
        top_k = whole_number(table, row, TOP_K_OF)
        count = tl.where(top_k > 0, tl.maximum(top_k, count), ALL)
    elif stage == TOP_P:
        share = whole_number(table, row, SHARE)
        _, total = kept_total(book, scale, top, masses, ties, n_blocks, at_once)
        weight = tl.where(share < 0, _NEVER, tl.maximum(needed(share, total), 1))
    else:
        limit = least_rank(real_number(table, row, THRESHOLD), top, scale)
    return count, weight, limit


@triton.jit
def start_search(
    book: tl.tensor,
    table: tl.tensor,
    block_ranks: tl.tensor,
    n_blocks: tl.tensor,
    listed: tl.tensor,
    masses: tl.tensor,
    ties: tl.tensor,
    stage: tl.constexpr,
    tempered: tl.constexpr,
    at_once: tl.constexpr,
) -> None:
    """Settle what is enough, a first interval, and list the blocks that matter to it.

    The best tokens of all blocks are some of the row's: where they are enough, all tokens are.
    """
    row = tl.program_id(0).to(tl.int64)
    book += row * COLUMNS
    block_ranks += row * n_blocks
    listed += row * n_blocks
    cut, top = tl.load(book + CUT), tl.load(book + TOP).to(tl.int32)
    scale = scale_at(table, row, tempered)
    masses += row * n_blocks
    ties += row * n_blocks
    count, weight, limit = enough(
        book, table, row, top, scale, masses, ties, n_blocks, stage, at_once
    )
    tl.store(book + _COUNT, count)
    tl.store(book + _WEIGHT, weight)
    tl.store(book + _LIMIT, limit)

    way = tl.arange(0, WAYS)
    # Fine near the top, where y is 0, and down to -64.
    y = (way * way).to(tl.float32) * 0.28125
    levels = rank_of((logit_of(top) - tl.div_rn(y, scale + y * 0)).to(tl.int32, bitcast=True))
    levels = tl.minimum(levels, top).to(tl.int64)
    some, heavy = levels * 0, levels * 0
    at = tl.arange(0, at_once)
    for start in range(0, n_blocks, at_once):
        ranks = tl.load(block_ranks + start + at, mask=start + at < n_blocks, other=MINUS_INF)
        reached = (ranks[:, None] >= levels[None, :]) & (ranks > MINUS_INF)[:, None]
        some += tl.sum(reached.to(tl.int64), 0)
        if stage == TOP_P:
            weights = mass(gap(ranks, top, scale))
            heavy += tl.sum(tl.where(reached, weights[:, None], 0), 0)
    holds = (some >= count) & (heavy >= weight) & (levels <= limit)
    low, high = tl.maximum(tl.max(tl.where(holds, levels, cut)), cut), top.to(tl.int64) + 1
    if stage == MIN_P:
        # The top token always stays: where it is enough, there is nothing to search.
        low = tl.where(count <= 1, tl.maximum(limit, cut), low)
        high = tl.where(count <= 1, low + 1, high)
    _write_interval(book, 0, low, high, low * 0, low * 0)
    for launch in range(LAUNCHES):
        tl.store(book + _SUMS + (2 * launch) * WAYS + way, levels * 0)
        tl.store(book + _SUMS + (2 * launch + 1) * WAYS + way, levels * 0)

    n_listed = tl.sum(way * 0)
    for start in range(0, n_blocks, at_once):
        ranks = tl.load(block_ranks + start + at, mask=start + at < n_blocks, other=MINUS_INF)
        matters = (ranks > low).to(tl.int32)
        tl.store(listed + n_listed + tl.cumsum(matters) - 1, start + at, mask=matters != 0)
        n_listed += tl.sum(matters)
    tl.store(book + _LISTED, n_listed.to(tl.int64))


@triton.jit
def _write_interval(
    book: tl.tensor,
    launch: tl.tensor,
    low: tl.tensor,
    high: tl.tensor,
    count: tl.tensor,
    weight: tl.tensor,
) -> None:
    place = book + _INTERVALS + 4 * launch
    tl.store(place, low)
    tl.store(place + 1, high)
    tl.store(place + 2, count)
    tl.store(place + 3, weight)


@triton.jit
def _levels_of(low: tl.tensor, high: tl.tensor) -> tl.tensor:
    """The ranks that an interval is cut at, ascending to its upper end, and their distance."""
    step = (high - low + (WAYS - 1)) // WAYS
    return tl.minimum(low + (tl.arange(0, WAYS) + 1).to(tl.int64) * step, high), step


@triton.jit
def _interval_after(book: tl.tensor, launches: tl.tensor) -> tl.tensor:
    """The two ranks after so many launches, and the tokens and the mass from the upper one up."""
    last = tl.maximum(launches - 1, 0)
    place = book + _INTERVALS + 4 * last
    low, high = tl.load(place), tl.load(place + 1)
    count, weight = tl.load(place + 2), tl.load(place + 3)
    if (launches > 0) & (high - low > 1):
        way = tl.arange(0, WAYS)
        levels, step = _levels_of(low, high)
        counts = tl.load(book + _SUMS + (2 * last) * WAYS + way)
        weights = tl.load(book + _SUMS + (2 * last + 1) * WAYS + way)
        holds = (counts >= tl.load(book + _COUNT)) & (weights >= tl.load(book + _WEIGHT))
        holds = holds & (levels <= tl.load(book + _LIMIT)) & (levels < high)
        passed = tl.sum(holds.to(tl.int64))
        high = tl.minimum(low + (passed + 1) * step, high)
        low += passed * step
        count = tl.sum(tl.where(way == passed, counts, 0))
        weight = tl.sum(tl.where(way == passed, weights, 0))
    return low, high, count, weight


@triton.jit(do_not_specialize=["launch"])
def narrow(
    book: tl.tensor,
    table: tl.tensor,
    listed: tl.tensor,
    values: tl.tensor,
    row_step: tl.tensor,
    step: tl.tensor,
    vocabulary: tl.tensor,
    n_blocks: tl.tensor,
    launch: tl.tensor,
    stage: tl.constexpr,
    tempered: tl.constexpr,
    at_once: tl.constexpr,
) -> None:
    """Add up what lies from each of the next ranks up, in this program's share of the blocks."""
    row = tl.program_id(0).to(tl.int64)
    book += row * COLUMNS
    listed += row * n_blocks
    low, high, count, weight = _interval_after(book, launch)
    if (launch > 0) & (tl.program_id(1) == 0):
        _write_interval(book, launch, low, high, count, weight)
    if high - low > 1:
        top, scale = tl.load(book + TOP).to(tl.int32), scale_at(table, row, tempered)
        levels, _ = _levels_of(low, high)
        at = tl.arange(0, at_once * BLOCK)
        some = tl.zeros([at_once * BLOCK, WAYS], tl.int32)
        heavy = tl.zeros([at_once * BLOCK, WAYS], tl.int64)
        n_listed = tl.load(book + _LISTED).to(tl.int32)
        pace = tl.num_programs(1) * at_once
        for start in range(tl.program_id(1) * at_once, n_listed, pace):
            place = start + at // BLOCK
            block = tl.load(listed + place, mask=place < n_listed, other=0)
            limit = tl.where(place < n_listed, vocabulary, 0)
            ranks = ranks_at(values + row * row_step, step, block * BLOCK + at % BLOCK, limit)
            reached = ranks[:, None] >= levels[None, :]
            some += reached.to(tl.int32)
            if stage == TOP_P:
                weights = mass(gap(ranks, top, scale))
                heavy += tl.where(reached, weights[:, None], 0)
        place = book + _SUMS + (2 * launch) * WAYS + tl.arange(0, WAYS)
        tl.atomic_add(place, tl.sum(some, 0).to(tl.int64), sem="relaxed")
        if stage == TOP_P:
            tl.atomic_add(place + WAYS, tl.sum(heavy, 0), sem="relaxed")


@triton.jit
def end_search(
    book: tl.tensor, table: tl.tensor, launches: tl.tensor, tempered: tl.constexpr
) -> None:
    """Cut a row at the rank that is left, and count how many tokens of that rank are needed."""
    row = tl.program_id(0).to(tl.int64)
    book += row * COLUMNS
    rank, _, count, weight = _interval_after(book, launches)
    top, scale = tl.load(book + TOP).to(tl.int32), scale_at(table, row, tempered)
    each = tl.maximum(mass(gap(rank.to(tl.int32), top, scale)), 1)
    by_mass = (tl.load(book + _WEIGHT) - weight + each - 1) // each
    ties = tl.maximum(tl.load(book + _COUNT) - count, by_mass)
    ties = tl.where(rank >= tl.load(book + _LIMIT), ALL, ties)
    # Where the cut stays, it keeps no more ties than it had.
    most = tl.where(rank == tl.load(book + CUT), tl.load(book + TIES), ALL)
    tl.store(book + CUT, rank)
    tl.store(book + TIES, tl.minimum(ties, most))
