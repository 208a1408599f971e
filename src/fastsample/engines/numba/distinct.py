"""Section 6 in loops: n distinct tokens of one race, in the order of their first arrivals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines.reference.draw import AFTER_RACE
from fastsample.engines.reference.race import LIMIT
from fastsample.engines.reference.rows import to_float32

from . import compiled
from .clocks import clock_of_token, write_arrivals
from .draw import mul_high, words
from .filters import Kept
from .mass import masses_of
from .ordinal import Bits, key_parts, tokens_of
from .race import AT_ONCE, LISTED, cuts_and_settings, level_and_clocks, mass_at

_SPAN = 512
"""Tokens whose masses are added up, so that a search can pass over them."""


@compiled
def _clock_times(place: Any, tokens: NDArray[np.int64], rates: NDArray[np.int64]) -> Any:
    """When tokens arrive by their clocks, and their order; of equal times the lower token."""
    times = np.empty(len(tokens), np.float64)
    for i in range(len(tokens)):
        times[i] = clock_of_token(place, tokens[i]) / np.float64(rates[i])
    return times, np.argsort(times, kind="mergesort")


@compiled
def _draw_listed(
    having: NDArray[np.int64], times: Any, order: NDArray[np.int64], tokens: NDArray[np.int64]
) -> Any:
    """Write the tokens that arrive first; returns how many."""
    count = 0
    for at in order:
        if count == len(tokens) or times[at] == np.inf:
            break
        tokens[count] = having[at]
        count += 1
    return count


@compiled
def _draw_arrivals(
    row: Any, place: Any, level: Any, of_clocks: Any, tokens: NDArray[np.int64]
) -> Any:
    """Write the distinct tokens that arrive first, by clocks or by the tail; returns how many."""
    (v, q), (having, times, order) = level, of_clocks
    to_token, to_height, heights = np.uint64(64 - v), np.uint64(64 - v - q), (np.int64(1) << q) - 1
    unit = np.int64((1023 - v - q) << 52).view(np.float64)  # 2^-(v + q)
    steps, points = np.empty(AT_ONCE, np.float64), np.empty(AT_ONCE, np.uint64)
    is_drawn = np.zeros(len(row[0]), np.bool_)
    count, clocked, total = 0, 0, 0.0
    for start in range(0, LIMIT, len(steps)):
        write_arrivals(place, start, steps, points)
        for i in range(len(steps)):
            total += steps[i]
            while clocked < len(order) and times[order[clocked]] < total * unit:
                token = having[order[clocked]]
                clocked += 1
                if not is_drawn[token] and count < len(tokens):
                    is_drawn[token], tokens[count] = True, token
                    count += 1
            token = np.int64(points[i] >> to_token)
            height = np.int64(points[i] >> to_height) & heights
            if count < len(tokens) and mass_at(row, token) > height and not is_drawn[token]:
                is_drawn[token], tokens[count] = True, token
                count += 1
            if count == len(tokens):
                return count
    return count


@compiled
def _draw(
    bits: Bits,
    block_max: NDArray[np.int32],
    cuts: Any,
    scaling: Any,
    settings: Any,
    place: Any,
    tokens: NDArray[np.int64],
) -> Any:
    """Write the distinct tokens that arrive first; returns how many, and whether none is left."""
    q, having, rates = level_and_clocks(bits, block_max, cuts, scaling, settings)
    times, order = _clock_times(place, having, rates)
    if q == LISTED:
        return _draw_listed(having, times, order, tokens), True
    row, level = (bits, cuts[0], scaling), (settings[0], q)
    return _draw_arrivals(row, place, level, (having, times, order), tokens), False


@compiled
def _draw_rest(
    place: Any,
    left: NDArray[np.int64],
    masses: NDArray[np.int64],
    count: int,
    tokens: NDArray[np.int64],
) -> Any:
    """Draw the others by the inverse method, from tokens and their masses; returns how many.

    Masses of drawn tokens are 0, and become 0.
    """
    seed, position, stream = place
    sums = np.zeros(len(masses) // _SPAN + 1, np.int64)
    for i in range(len(masses)):
        sums[i // _SPAN] += masses[i]
    total = sums.sum()
    while count < len(tokens) and total > 0:
        u, _ = words(seed, position, stream, np.uint64(AFTER_RACE + (count << 8)))
        r = np.int64(mul_high(u, np.uint64(total)))
        span = 0
        while r >= sums[span]:
            r -= sums[span]
            span += 1
        i = span * _SPAN
        while r >= masses[i]:
            r -= masses[i]
            i += 1
        tokens[count] = left[i]
        count += 1
        sums[span] -= masses[i]
        total -= masses[i]
        masses[i] = 0
    return count


def draw_distinct(
    kept: Kept, params: np.void, rng_position: Any, tokens: NDArray[np.int64]
) -> None:
    """Draw distinct tokens at (seed, position, stream); -1 stays where there are fewer."""
    row = kept.row
    if to_float32(params["temperature"]) == 0:
        tokens[0] = key_parts(kept.cut)[1]
        return
    cuts, settings = cuts_and_settings(kept, params)
    drawing = row.bits, row.block_max, cuts, kept.scaling, settings, rng_position, tokens
    count, is_done = _draw(*drawing)
    if is_done or count == len(tokens):
        return
    keys = row.keys(kept.cut, in_order=False)
    # Negative masses are only where the row has been written since.
    left, masses = tokens_of(keys), masses_of(keys, kept.scaling).clip(0)
    masses[np.isin(left, tokens[:count])] = 0
    _draw_rest(rng_position, left, masses, count, tokens)
