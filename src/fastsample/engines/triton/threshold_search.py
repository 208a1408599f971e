"""Where a kept set ends in a row of any length: searched by several programs, launch by launch.

A filter keeps a prefix of section 3's order, so a kept set is a cut: the rank that it ends at, and
how many tokens of that rank it has, its ties. A search finds the largest rank from which up enough
lies: so many tokens, so much mass, and no rank above a limit. It knows two ranks: from the lower
one up there is enough, or the set ends there already; from the upper one up there is not. Each
launch adds up what lies from some ranks between them up, and the next draws the two together. What
lies at the cut itself is never added up: where all above it is too little, the cut stays.

Launches hand on what they know in two tables of int64: `marks` of shape (B, MARKS), and `trail` of
shape (launches + 1, B, `trail_of(ways)`): the two ranks at a launch, the tokens and the mass from
the upper one up, and what the launch adds up, tokens, then mass.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastsample.engines.torch import prepare_params as settings

from .mass import BLOCK, MINUS_INF, SCALE_OF_ONE, gap, logit_of, mass, needed, rank_of, ranks_at
from .param_table import MIN_KEEP, SCALE, SHARE, THRESHOLD, TOP_K, real_number, whole_number

_TOP_K, _TOP_P, _MIN_P = map(tl.constexpr, (settings.TOP_K, settings.TOP_P, settings.MIN_P))

ALL = tl.constexpr(2**40)
"""More tokens than a row has."""

_NEVER, _FAR = tl.constexpr(2**62 + 1), tl.constexpr(2**40)
"""More mass than a row has, which is 2**62 where 2**22 logits are equal; and above every rank."""

CUT, TIES, TOP = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
_COUNT, _WEIGHT, _LIMIT, _LISTED = (tl.constexpr(column) for column in range(3, 7))
MARKS = tl.constexpr(8)
"""Columns of the marks: the cut, and the row's top rank; what is enough; how many blocks matter."""


def launches_of(ways: int) -> int:
    """How many launches leave one rank of any interval, where each cuts it into so many parts."""
    return -(-32 // (ways.bit_length() - 1))


def trail_of(ways: int) -> int:
    """How many numbers of a row a launch leaves for the next."""
    return 4 + 2 * ways


@triton.jit
def scale_at(table: tl.tensor, row: tl.tensor, tempered: tl.constexpr) -> tl.tensor:
    """s of a row: that of temperature 1 before the temperature has acted."""
    if tempered:
        return real_number(table, row, SCALE)
    else:
        return SCALE_OF_ONE


@triton.jit
def levels_of(low: tl.tensor, high: tl.tensor, ways: tl.constexpr) -> tl.tensor:
    """The ranks that an interval is cut at, ascending to its upper end, and their distance."""
    step = (high - low + (ways - 1)) // ways
    return tl.minimum(low + (tl.arange(0, ways) + 1).to(tl.int64) * step, high), step


@triton.jit
def least_rank(
    threshold: tl.tensor, top: tl.tensor, scale: tl.tensor, ways: tl.constexpr
) -> tl.tensor:
    """The least rank whose y reaches a threshold below 0, int64: y never falls as ranks rise."""
    low, high = (top * 0).to(tl.int64) + (MINUS_INF - 1), top.to(tl.int64)
    while high - low > 1:
        levels, step = levels_of(low, high, ways)
        fails = gap(levels.to(tl.int32), top, scale) < threshold
        failed = tl.minimum(tl.sum(fails.to(tl.int64)), ways - 1)
        high = tl.minimum(low + (failed + 1) * step, high)
        low += failed * step
    return high


@triton.jit
def kept_total(
    marks: tl.tensor,
    scale: tl.tensor,
    top: tl.tensor,
    masses: tl.tensor,
    ties: tl.tensor,
    n_blocks: tl.tensor,
    at_once: tl.constexpr,
) -> tl.tensor:
    """How many ties the cut of a row has, and W of its kept set, by what its blocks weigh."""
    at = tl.arange(0, at_once)
    most = tl.load(marks + TIES)
    total, found = most * 0, most * 0
    for start in range(0, n_blocks, at_once):
        inside = start + at < n_blocks
        total += tl.sum(tl.load(masses + start + at, mask=inside, other=0))
        found += tl.sum(tl.load(ties + start + at, mask=inside, other=0).to(tl.int64))
    found = tl.minimum(found, most)
    return found, total + found * mass(gap(tl.load(marks + CUT).to(tl.int32), top, scale))


@triton.jit
def start_search(
    marks: tl.tensor,
    trail: tl.tensor,
    table: tl.tensor,
    block_ranks: tl.tensor,
    n_blocks: tl.tensor,
    listed: tl.tensor,
    masses: tl.tensor,
    ties: tl.tensor,
    stage: tl.constexpr,
    tempered: tl.constexpr,
    at_once: tl.constexpr,
    ways: tl.constexpr,
) -> None:
    """Settle what is enough, a first interval, and list the blocks that matter to it.

    The best tokens of all blocks are some of the row's: where they are enough, all tokens are.
    """
    row = tl.program_id(0).to(tl.int64)
    marks += row * MARKS
    block_ranks += row * n_blocks
    listed += row * n_blocks
    cut, top = tl.load(marks + CUT), tl.load(marks + TOP).to(tl.int32)
    scale = scale_at(table, row, tempered)

    count = whole_number(table, row, MIN_KEEP)
    weight, limit = count * 0, count * 0 + _FAR
    if stage == _TOP_K:
        top_k = whole_number(table, row, TOP_K)
        count = tl.where(top_k > 0, tl.maximum(top_k, count), ALL)
    elif stage == _TOP_P:
        share = whole_number(table, row, SHARE)
        masses += row * n_blocks
        ties += row * n_blocks
        _, total = kept_total(marks, scale, top, masses, ties, n_blocks, at_once)
        weight = tl.where(share < 0, _NEVER, tl.maximum(needed(share, total), 1))
    else:
        limit = least_rank(real_number(table, row, THRESHOLD), top, scale, ways)
    tl.store(marks + _COUNT, count)
    tl.store(marks + _WEIGHT, weight)
    tl.store(marks + _LIMIT, limit)

    # Ranks that are dense near the top, where y is 0, and reach down to about -64.
    part = tl.arange(0, ways).to(tl.float32) * (8.0 / ways)
    away = tl.div_rn(part * part, scale + part * 0)
    levels = rank_of((logit_of(top) - away).to(tl.int32, bitcast=True))
    levels = tl.minimum(levels, top).to(tl.int64)
    some, heavy = levels * 0, levels * 0
    at = tl.arange(0, at_once)
    for start in range(0, n_blocks, at_once):
        ranks = tl.load(block_ranks + start + at, mask=start + at < n_blocks, other=MINUS_INF)
        reached = (ranks[:, None] >= levels[None, :]) & (ranks > MINUS_INF)[:, None]
        some += tl.sum(reached.to(tl.int64), 0)
        if stage == _TOP_P:
            weights = mass(gap(ranks, top, scale))
            heavy += tl.sum(tl.where(reached, weights[:, None], 0), 0)
    holds = (some >= count) & (heavy >= weight) & (levels <= limit)
    low, high = tl.maximum(tl.max(tl.where(holds, levels, cut)), cut), top.to(tl.int64) + 1
    if stage == _MIN_P:
        # The first token always stays: where it is enough, there is nothing to search.
        low = tl.where(count <= 1, tl.maximum(limit, cut), low)
        high = tl.where(count <= 1, low + 1, high)
    trail += row * (4 + 2 * ways)
    _write_interval(trail, low, high, low * 0, low * 0)
    _clear_sums(trail, ways)

    n_listed = tl.sum(at * 0)
    for start in range(0, n_blocks, at_once):
        ranks = tl.load(block_ranks + start + at, mask=start + at < n_blocks, other=MINUS_INF)
        matters = (ranks > low).to(tl.int32)
        tl.store(listed + n_listed + tl.cumsum(matters) - 1, start + at, mask=matters != 0)
        n_listed += tl.sum(matters)
    tl.store(marks + _LISTED, n_listed.to(tl.int64))


@triton.jit
def _write_interval(
    place: tl.tensor, low: tl.tensor, high: tl.tensor, count: tl.tensor, weight: tl.tensor
) -> None:
    tl.store(place, low)
    tl.store(place + 1, high)
    tl.store(place + 2, count)
    tl.store(place + 3, weight)


@triton.jit
def _clear_sums(place: tl.tensor, ways: tl.constexpr) -> None:
    tl.store(place + 4 + tl.arange(0, 2 * ways), tl.zeros([2 * ways], tl.int64))


@triton.jit
def _interval_after(marks: tl.tensor, place: tl.tensor, ways: tl.constexpr) -> tl.tensor:
    """The two ranks after a launch, and the tokens and the mass from the upper one up."""
    low, high = tl.load(place), tl.load(place + 1)
    count, weight = tl.load(place + 2), tl.load(place + 3)
    if high - low > 1:
        way = tl.arange(0, ways)
        levels, step = levels_of(low, high, ways)
        counts, weights = tl.load(place + 4 + way), tl.load(place + 4 + ways + way)
        holds = (counts >= tl.load(marks + _COUNT)) & (weights >= tl.load(marks + _WEIGHT))
        holds = holds & (levels <= tl.load(marks + _LIMIT)) & (levels < high)
        passed = tl.sum(holds.to(tl.int64))
        high = tl.minimum(low + (passed + 1) * step, high)
        low += passed * step
        count = tl.sum(tl.where(way == passed, counts, 0))
        weight = tl.sum(tl.where(way == passed, weights, 0))
    return low, high, count, weight


@triton.jit(do_not_specialize=["launch"])
def narrow(
    marks: tl.tensor,
    trail: tl.tensor,
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
    ways: tl.constexpr,
) -> None:
    """Add up what lies from each of the next ranks up, in this program's share of the blocks."""
    row = tl.program_id(0).to(tl.int64)
    marks += row * MARKS
    listed += row * n_blocks
    pace = tl.num_programs(0).to(tl.int64) * (4 + 2 * ways)
    before = trail + tl.maximum(launch - 1, 0) * pace + row * (4 + 2 * ways)
    place = trail + launch * pace + row * (4 + 2 * ways)
    low, high = tl.load(before), tl.load(before + 1)
    if launch > 0:
        low, high, count, weight = _interval_after(marks, before, ways)
        if tl.program_id(1) == 0:
            _write_interval(place, low, high, count, weight)
    if tl.program_id(1) == 0:
        _clear_sums(place + pace, ways)
    if high - low > 1:
        top, scale = tl.load(marks + TOP).to(tl.int32), scale_at(table, row, tempered)
        levels, _ = levels_of(low, high, ways)
        at = tl.arange(0, at_once * BLOCK)
        some = tl.zeros([at_once * BLOCK, ways], tl.int32)
        heavy = tl.zeros([at_once * BLOCK, ways], tl.int64)
        n_listed = tl.load(marks + _LISTED).to(tl.int32)
        for start in range(tl.program_id(1) * at_once, n_listed, tl.num_programs(1) * at_once):
            entry = start + at // BLOCK
            block = tl.load(listed + entry, mask=entry < n_listed, other=0)
            limit = tl.where(entry < n_listed, vocabulary, 0)
            ranks = ranks_at(values + row * row_step, step, block * BLOCK + at % BLOCK, limit)
            reached = ranks[:, None] >= levels[None, :]
            some += reached.to(tl.int32)
            if stage == _TOP_P:
                weights = mass(gap(ranks, top, scale))
                heavy += tl.where(reached, weights[:, None], 0)
        way = tl.arange(0, ways)
        tl.atomic_add(place + 4 + way, tl.sum(some, 0).to(tl.int64), sem="relaxed")
        if stage == _TOP_P:
            tl.atomic_add(place + 4 + ways + way, tl.sum(heavy, 0), sem="relaxed")


@triton.jit(do_not_specialize=["launches"])
def end_search(
    marks: tl.tensor,
    trail: tl.tensor,
    table: tl.tensor,
    launches: tl.tensor,
    tempered: tl.constexpr,
    ways: tl.constexpr,
) -> None:
    """Cut a row at the rank that is left, and count how many tokens of that rank are needed."""
    row = tl.program_id(0).to(tl.int64)
    marks += row * MARKS
    last = tl.maximum(launches - 1, 0) * tl.num_programs(0).to(tl.int64) + row
    rank, _, count, weight = _interval_after(marks, trail + last * (4 + 2 * ways), ways)
    top, scale = tl.load(marks + TOP).to(tl.int32), scale_at(table, row, tempered)
    each = tl.maximum(mass(gap(rank.to(tl.int32), top, scale)), 1)
    by_mass = (tl.load(marks + _WEIGHT) - weight + each - 1) // each
    ties = tl.maximum(tl.load(marks + _COUNT) - count, by_mass)
    ties = tl.where(rank >= tl.load(marks + _LIMIT), ALL, ties)
    # Where the cut stays, it keeps no more ties than it had.
    most = tl.where(rank == tl.load(marks + CUT), tl.load(marks + TIES), ALL)
    tl.store(marks + CUT, rank)
    tl.store(marks + TIES, tl.minimum(ties, most))
