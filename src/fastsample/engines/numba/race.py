"""Section 6 in loops: the race, in which the kept token that arrives first is drawn.

All draws of a row share its level and the tokens that have a clock. Masses are not monotone in y,
but they reach 2^q, for q of 24 or more, from one y on; so these tokens are found by cuts.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines.reference.draw import AFTER_RACE
from fastsample.engines.reference.mass import TOP_MASS_BITS
from fastsample.engines.reference.race import LEVEL_BITS, LIMIT, is_listed, vocabulary_bits
from fastsample.engines.reference.rows import to_float32
from fastsample.params.table import STAGES

from . import compiled
from .clocks import clock_of_token, write_arrivals
from .filters import Kept
from .mass import lowest_ordinal, mass_of
from .ordinal import (
    ALL,
    BLOCK,
    INF,
    Bits,
    Cut,
    count_kept,
    key_parts,
    list_kept,
    logit_of,
    ordinal_of,
)

AT_ONCE = 32
"""Arrivals of the tail that are computed together."""

LISTED = -1
"""The level of a listed row, which has no tail."""

_LAST = np.int64(key_parts(ALL)[1])  # not an int, whose literal would be a type of its own
# Found by trying every float32; that of 2^q below it is q - 40, where p is 1.
_LEAST_Y_OF_TOP_MASS = np.float32(float.fromhex("-0x1.71547cp-25"))

# ---------------------------------------------------------------- what all draws share


@compiled
def _least_ordinal(q: int, top: int, scaling: Any) -> Any:
    """The lowest ordinal of a mass of 2^q or more, q at least 24: those above it have one too."""
    if q > TOP_MASS_BITS:
        return np.int64(INF)
    y = np.float32(q - TOP_MASS_BITS) if q < TOP_MASS_BITS else _LEAST_Y_OF_TOP_MASS
    return lowest_ordinal(y, top, scaling)


@compiled
def _blocks_with(block_max: NDArray[np.int32], ordinal: int) -> Any:
    """Count the blocks with a token whose ordinal reaches a bound."""
    count = 0
    for b in range(len(block_max)):
        count += block_max[b] >= ordinal
    return count


@compiled
def _level(
    bits: Bits,
    block_max: NDArray[np.int32],
    threshold: int,
    top: int,
    scaling: Any,
    q: int,
    most: int,
) -> Any:
    """The first level from q on that at most so many tokens from a threshold on reach."""
    while True:
        ordinal = max(threshold, _least_ordinal(q, top, scaling))
        # As many tokens as blocks, or more: most levels need no count of tokens.
        is_near = _blocks_with(block_max, ordinal) <= most
        if is_near and count_kept(bits, block_max, (ordinal, _LAST)) <= most:
            return q
        q += 1


@compiled
def _with_clocks(
    bits: Bits, block_max: NDArray[np.int32], cut: Cut, scaling: Any, floor: int
) -> Any:
    """The tokens up to a cut, ascending, and their rates: what their masses have above a floor."""
    keys = np.empty(_blocks_with(block_max, cut[0]) * BLOCK, np.int64)
    count = max(0, list_kept(bits, block_max, cut, keys))
    tokens, rates = keys[:count], np.empty(count, np.int64)
    for i in range(count):
        rates[i] = mass_of(logit_of(np.int32(~(tokens[i] >> 32))), scaling) - floor
        tokens[i] &= _LAST
    return tokens, rates


# ---------------------------------------------------------------- one draw


@compiled
def _first_of_clocks(place: Any, tokens: NDArray[np.int64], rates: NDArray[np.int64]) -> Any:
    """The token that comes first by its clock, the lower one of two, and its time.

    -1 and infinity where none comes.
    """
    first, least = np.int64(-1), np.inf
    for i in range(len(tokens)):
        time = clock_of_token(place, tokens[i]) / np.float64(rates[i])
        if time < least:
            first, least = tokens[i], time
    return first, least


@compiled
def mass_at(row: Any, token: int) -> Any:
    """Mass of a token; 0 where the row's cut does not keep it, or it is past the row's end."""
    bits, (ordinal, last), scaling = row
    if token >= len(bits) or ordinal_of(bits[token]) < (ordinal if token <= last else ordinal + 1):
        return np.int64(0)
    return mass_of(bits.view(np.float32)[token], scaling)


@compiled
def _first_of_all(row: Any, place: Any, level: Any, of_clocks: Any, arrivals: Any) -> Any:
    """The token that comes first, by its clock or by the tail; -1 where this is left open."""
    (v, q), (first, h), (steps, points) = level, of_clocks, arrivals
    to_token, to_height, heights = np.uint64(64 - v), np.uint64(64 - v - q), (np.int64(1) << q) - 1
    unit = np.int64((1023 - v - q) << 52).view(np.float64)  # 2^-(v + q)
    total = 0.0
    for start in range(0, LIMIT, len(steps)):
        write_arrivals(place, start, steps, points)
        for i in range(len(steps)):
            total += steps[i]
            if total * unit > h:
                return first
            token = np.int64(points[i] >> to_token)
            if mass_at(row, token) > (np.int64(points[i] >> to_height) & heights):
                return token
    return np.int64(-1)


# ---------------------------------------------------------------- all draws of a row


@compiled
def level_and_clocks(
    bits: Bits, block_max: NDArray[np.int32], cuts: Any, scaling: Any, settings: Any
) -> Any:
    """The level, and the tokens with a clock, ascending, with their rates.

    `cuts` are the cut, and the ordinals of the thresholds and of the top token.
    """
    (cut, threshold, top), (_, least, most) = cuts, settings
    clocked, floor, q = cut, np.int64(0), LISTED
    if least != LISTED:
        q = _level(bits, block_max, threshold, top, scaling, least, most)
        floor = np.int64(1) << q
        ordinal = _least_ordinal(q, top, scaling)
        if ordinal > cut[0]:
            clocked = ordinal, _LAST
    having, rates = _with_clocks(bits, block_max, clocked, scaling, floor)
    return q, having, rates


@compiled
def _draw(
    bits: Bits,
    block_max: NDArray[np.int32],
    cuts: Any,
    scaling: Any,
    settings: Any,
    rng_position: Any,
    tokens: NDArray[np.int64],
) -> Any:
    """Draw tokens at (seed, position, stream), and on the streams after it; -1 for open races.

    Returns how many races are open.
    """
    row, v = (bits, cuts[0], scaling), settings[0]
    seed, position, stream = rng_position
    q, having, rates = level_and_clocks(bits, block_max, cuts, scaling, settings)
    arrivals = np.empty(AT_ONCE, np.float64), np.empty(AT_ONCE, np.uint64)
    n_open = 0
    for n in range(len(tokens)):
        place = seed, position, stream + np.uint64(n)
        of_clocks = _first_of_clocks(place, having, rates)
        if q == LISTED:
            tokens[n], _ = of_clocks
        else:
            tokens[n] = _first_of_all(row, place, (v, q), of_clocks, arrivals)
        n_open += tokens[n] < 0
    return n_open


@lru_cache(maxsize=256)
def _settings(size: int, stages: bytes, values: bytes) -> tuple[int, int, int]:
    """v, the least level or `LISTED`, and H of a row's settings."""
    names = [STAGES[code - 1] for code in stages]
    v = vocabulary_bits(size)
    by_name = dict(zip(names, np.frombuffer(values), strict=False))
    listed = is_listed(size, stages=names, **by_name)
    return v, LISTED if listed else max(0, LEVEL_BITS - v), math.isqrt(2**v >> 5)


def cuts_and_settings(kept: Kept, params: np.void) -> tuple[Any, Any]:
    """What `level_and_clocks` takes."""
    settings = _settings(len(kept.row.bits), bytes(params["stages"]), params["values"].tobytes())
    threshold, _ = key_parts(kept.threshold)
    return (key_parts(kept.cut), threshold, kept.row.top_ordinal), settings


def draw_by_race(kept: Kept, params: np.void, rng_position: Any, tokens: NDArray[np.int64]) -> None:
    """Draw tokens at (seed, position, stream), and on the streams after it."""
    row = kept.row
    if to_float32(params["temperature"]) == 0:
        tokens[:] = key_parts(kept.cut)[1]
        return
    cuts, settings = cuts_and_settings(kept, params)
    if _draw(row.bits, row.block_max, cuts, kept.scaling, settings, rng_position, tokens):
        by_inverse = np.empty_like(tokens)
        row.draw(kept.cut, kept.scaling, rng_position, by_inverse, AFTER_RACE)
        np.copyto(tokens, by_inverse, where=tokens < 0)
