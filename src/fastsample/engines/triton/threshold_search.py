"""Search for the ordinal at which a kept set ends, in a row of any length, over several launches.

A filter keeps a prefix of section 3's order, so a kept set is the ordinal at which it ends, its
cut, and how many tokens of that ordinal it has, its ties. A search finds the highest ordinal such
that the tokens from it up are enough: so many, of so much mass, and no ordinal above a limit. Its
interval is two ordinals: from the lower one up there is enough, or the set ends there already; from
the upper one up there is not. Each launch divides the interval: it sums the tokens from each of its
pivots up, and the next launch narrows the interval to one part. Tokens at the cut itself are never
summed: where those above it are too few, the cut stays.

Launches share two tables of int64: `state` of shape (B, STATE), and `intervals` of shape
(launches + 1, B, `interval_size(parts)`): the two ordinals at a launch, the tokens and the mass
from the upper one up, and the sums of the launch: tokens, then masses.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .int64_math import nucleus_target
from .mass import SCALE_OF_ONE, exponent2, mass
from .ordinal import BLOCK, MINUS_INF, logit_of, ordinal_of, ordinals_at
from .param_table import MIN_KEEP, param, scale_param
from .select import OP_COUNT, OP_MASS, OP_THRESHOLD, threshold

ALL = tl.constexpr(2**40)
"""More tokens than a row has."""

_NEVER, _FAR = tl.constexpr(2**62 + 1), tl.constexpr(2**40)
"""More mass than a row has, which is 2**62 where 2**22 logits are equal; and above any ordinal."""

CUT, TIES, TOP = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
_COUNT, _MASS, _LIMIT, _LISTED = (tl.constexpr(column) for column in range(3, 7))
LEAST_C = tl.constexpr(7)
STATE = tl.constexpr(8)
"""Columns of the state: the cut, its ties, the top ordinal; what is enough; blocks in the list; the
least ordinal that all thresholds keep.
"""


def launches_of(parts: int) -> int:
    """How many launches narrow any interval to one ordinal."""
    return -(-32 // (parts.bit_length() - 1))


def interval_size(parts: int) -> int:
    """How many numbers of a row a launch writes."""
    return 4 + 2 * parts


@triton.jit
def scale_at(table, row, is_scaled: tl.constexpr):
    """s of a row: that of temperature 1 before the stage of the temperature."""
    if is_scaled:
        return scale_param(table, row)
    else:
        return SCALE_OF_ONE


@triton.jit
def pivots_of(low, high, parts: tl.constexpr):
    """The ordinals that divide an interval, ascending to its upper end, and their distance."""
    step = (high - low + (parts - 1)) // parts
    return tl.minimum(low + (tl.arange(0, parts) + 1).to(tl.int64) * step, high), step


@triton.jit
def lowest_ordinal(least, top, scale, parts: tl.constexpr):
    """The lowest ordinal with y >= `least`, below 0; int64. y never falls as ordinals rise."""
    low, high = (top * 0).to(tl.int64) + (MINUS_INF - 1), top.to(tl.int64)
    while high - low > 1:
        pivots, step = pivots_of(low, high, parts)
        fails = exponent2(pivots.to(tl.int32), top, scale) < least
        failed = tl.minimum(tl.sum(fails.to(tl.int64)), parts - 1)
        high = tl.minimum(low + (failed + 1) * step, high)
        low += failed * step
    return high


@triton.jit
def kept_total(state, scale, top, masses, ties, n_blocks, tile: tl.constexpr):
    """How many ties the cut of a row has, and W of its kept set, from the sums of its blocks."""
    at = tl.arange(0, tile)
    most = tl.load(state + TIES)
    total, found = most * 0, most * 0
    for start in range(0, n_blocks, tile):
        inside = start + at < n_blocks
        total += tl.sum(tl.load(masses + start + at, mask=inside, other=0))
        found += tl.sum(tl.load(ties + start + at, mask=inside, other=0).to(tl.int64))
    found = tl.minimum(found, most)
    cut = tl.load(state + CUT).to(tl.int32)
    return found, total + found * mass(exponent2(cut, top, scale))


@triton.jit(do_not_specialize=["column"])
def start_search(
    state,
    table,
    intervals,
    listed,
    block_max,
    n_blocks,
    masses,
    _counts,
    ties,
    column,
    op: tl.constexpr,
    is_scaled: tl.constexpr,
    tile: tl.constexpr,
    parts: tl.constexpr,
):
    """Compute what is enough and a first interval, and list the blocks that reach into it.

    The block maxima are logits of the row: where they are enough, all tokens are.
    """
    row = tl.program_id(0).to(tl.int64)
    state += row * STATE
    block_max += row * n_blocks
    listed += row * n_blocks
    cut, top = tl.load(state + CUT), tl.load(state + TOP).to(tl.int32)
    scale = scale_at(table, row, is_scaled)

    number, count = param(table, row, column), param(table, row, MIN_KEEP)
    weight, limit, total = count * 0, count * 0 + _FAR, count * 0
    if op != OP_COUNT and op != OP_THRESHOLD:
        masses += row * n_blocks
        ties += row * n_blocks
        _, total = kept_total(state, scale, top, masses, ties, n_blocks, tile)
    if op == OP_COUNT:
        count = tl.maximum(number, count)
    elif op == OP_MASS:
        weight = tl.where(number < 0, _NEVER, nucleus_target(number, total))
    else:
        limit = lowest_ordinal(threshold(number, total, op), top, scale, parts)
        tl.store(state + LEAST_C, tl.maximum(tl.load(state + LEAST_C), limit))
    tl.store(state + _COUNT, count)
    tl.store(state + _MASS, weight)
    tl.store(state + _LIMIT, limit)

    # Pivots that are dense near the top, where y is 0, and reach down to about -64.
    part = tl.arange(0, parts).to(tl.float32) * (8.0 / parts)
    away = tl.div_rn(part * part, scale + part * 0)
    pivots = ordinal_of((logit_of(top) - away).to(tl.int32, bitcast=True))
    pivots = tl.minimum(pivots, top).to(tl.int64)
    counts, weights = pivots * 0, pivots * 0
    at = tl.arange(0, tile)
    for start in range(0, n_blocks, tile):
        ordinals = tl.load(block_max + start + at, mask=start + at < n_blocks, other=MINUS_INF)
        reached = (ordinals[:, None] >= pivots[None, :]) & (ordinals > MINUS_INF)[:, None]
        counts += tl.sum(reached.to(tl.int64), 0)
        if op == OP_MASS:
            each = mass(exponent2(ordinals, top, scale))
            weights += tl.sum(tl.where(reached, each[:, None], 0), 0)
    holds = (counts >= count) & (weights >= weight) & (pivots <= limit)
    low, high = tl.maximum(tl.max(tl.where(holds, pivots, cut)), cut), top.to(tl.int64) + 1
    if op != OP_COUNT and op != OP_MASS:
        # The first token always stays: where it is enough, there is nothing to search.
        low = tl.where(count <= 1, tl.maximum(limit, cut), low)
        high = tl.where(count <= 1, low + 1, high)
    intervals += row * (4 + 2 * parts)
    _write_interval(intervals, low, high, low * 0, low * 0)
    _clear_sums(intervals, parts)

    n_listed = tl.sum(at * 0)
    for start in range(0, n_blocks, tile):
        ordinals = tl.load(block_max + start + at, mask=start + at < n_blocks, other=MINUS_INF)
        reaches = (ordinals > low).to(tl.int32)
        place = listed + n_listed + tl.cumsum(reaches) - 1
        tl.store(place, start + at, mask=reaches != 0)
        n_listed += tl.sum(reaches)
    tl.store(state + _LISTED, n_listed.to(tl.int64))


@triton.jit
def _write_interval(interval, low, high, count, weight):
    tl.store(interval, low)
    tl.store(interval + 1, high)
    tl.store(interval + 2, count)
    tl.store(interval + 3, weight)


@triton.jit
def _clear_sums(interval, parts: tl.constexpr):
    tl.store(interval + 4 + tl.arange(0, 2 * parts), tl.zeros([2 * parts], tl.int64))


@triton.jit
def _interval_after(state, interval, parts: tl.constexpr):
    """The two ordinals after a launch, and the tokens and the mass from the upper one up."""
    low, high = tl.load(interval), tl.load(interval + 1)
    count, weight = tl.load(interval + 2), tl.load(interval + 3)
    if high - low > 1:
        at = tl.arange(0, parts)
        pivots, step = pivots_of(low, high, parts)
        counts, weights = tl.load(interval + 4 + at), tl.load(interval + 4 + parts + at)
        holds = (counts >= tl.load(state + _COUNT)) & (weights >= tl.load(state + _MASS))
        holds = holds & (pivots <= tl.load(state + _LIMIT)) & (pivots < high)
        passed = tl.sum(holds.to(tl.int64))
        high = tl.minimum(low + (passed + 1) * step, high)
        low += passed * step
        count = tl.sum(tl.where(at == passed, counts, 0))
        weight = tl.sum(tl.where(at == passed, weights, 0))
    return low, high, count, weight


@triton.jit(do_not_specialize=["launch"])
def narrow(
    state,
    table,
    intervals,
    listed,
    values,
    row_step,
    step,
    vocabulary,
    n_blocks,
    launch,
    op: tl.constexpr,
    is_scaled: tl.constexpr,
    tile: tl.constexpr,
    parts: tl.constexpr,
):
    """Sum the tokens from each of the next pivots up, in this program's share of the blocks."""
    row = tl.program_id(0).to(tl.int64)
    state += row * STATE
    listed += row * n_blocks
    stride = tl.num_programs(0).to(tl.int64) * (4 + 2 * parts)
    before = intervals + tl.maximum(launch - 1, 0) * stride + row * (4 + 2 * parts)
    interval = intervals + launch * stride + row * (4 + 2 * parts)
    low, high = tl.load(before), tl.load(before + 1)
    if launch > 0:
        low, high, count, weight = _interval_after(state, before, parts)
        if tl.program_id(1) == 0:
            _write_interval(interval, low, high, count, weight)
    if tl.program_id(1) == 0:
        _clear_sums(interval + stride, parts)
    if high - low > 1:
        top, scale = tl.load(state + TOP).to(tl.int32), scale_at(table, row, is_scaled)
        pivots, _ = pivots_of(low, high, parts)
        at = tl.arange(0, tile * BLOCK)
        counts = tl.zeros([tile * BLOCK, parts], tl.int32)
        weights = tl.zeros([tile * BLOCK, parts], tl.int64)
        n_listed = tl.load(state + _LISTED).to(tl.int32)
        for start in range(tl.program_id(1) * tile, n_listed, tl.num_programs(1) * tile):
            entry = start + at // BLOCK
            block = tl.load(listed + entry, mask=entry < n_listed, other=0)
            limit = tl.where(entry < n_listed, vocabulary, 0)
            tokens = block * BLOCK + at % BLOCK
            ordinals = ordinals_at(values + row * row_step, step, tokens, limit)
            reached = ordinals[:, None] >= pivots[None, :]
            counts += reached.to(tl.int32)
            if op == OP_MASS:
                each = mass(exponent2(ordinals, top, scale))
                weights += tl.where(reached, each[:, None], 0)
        sums = interval + 4 + tl.arange(0, parts)
        tl.atomic_add(sums, tl.sum(counts, 0).to(tl.int64), sem="relaxed")
        if op == OP_MASS:
            tl.atomic_add(sums + parts, tl.sum(weights, 0), sem="relaxed")


@triton.jit(do_not_specialize=["launches"])
def finish_search(state, table, intervals, launches, is_scaled: tl.constexpr, parts: tl.constexpr):
    """Cut a row at the ordinal that is found, and count how many tokens of it are needed."""
    row = tl.program_id(0).to(tl.int64)
    state += row * STATE
    last = tl.maximum(launches - 1, 0) * tl.num_programs(0).to(tl.int64) + row
    cut, _, count, weight = _interval_after(state, intervals + last * (4 + 2 * parts), parts)
    top, scale = tl.load(state + TOP).to(tl.int32), scale_at(table, row, is_scaled)
    each = tl.maximum(mass(exponent2(cut.to(tl.int32), top, scale)), 1)
    by_mass = (tl.load(state + _MASS) - weight + each - 1) // each
    ties = tl.maximum(tl.load(state + _COUNT) - count, by_mass)
    ties = tl.where(cut >= tl.load(state + _LIMIT), ALL, ties)
    # Where the cut stays, it keeps no more ties than it had.
    most = tl.where(cut == tl.load(state + CUT), tl.load(state + TIES), ALL)
    tl.store(state + CUT, cut)
    tl.store(state + TIES, tl.minimum(ties, most))
