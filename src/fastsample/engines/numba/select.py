"""Cuts by weight: the last token that is needed to reach a count or a mass, without sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import compiled
from .mass import mass_of, weightless
from .ordinal import BLOCK, LOWEST, Bits, count_from, logit_of, order_of, read_order

_OFFSET = 2**31
_DIGIT = 2**12


@compiled
def lowest_order(y: Any, highest: int, law: Any) -> Any:
    """Lowest order whose y reaches a threshold below 0; y rises with the order."""
    top, scale = law
    low, high = np.int64(LOWEST), np.int64(highest)
    while low < high:
        middle = low + (high - low) // 2
        if (logit_of(read_order(np.int32(middle))) - top) * scale >= y:
            high = middle
        else:
            low = middle + 1
    return np.int64(read_order(np.int32(low)))


@compiled
def _weigh_block(bits: Bits, first: int, end: int, by_mass: bool, law: Any, weights: Any) -> None:
    logits = bits.view(np.float32)
    for i in range(end - first):
        weights[i] = mass_of(logits[first + i], law) if by_mass else np.int64(1)


@compiled
def _spread(
    bits: Bits,
    best: NDArray[np.int32],
    low: int,
    shift: int,
    by_mass: bool,
    law: Any,
    bins: NDArray[np.int64],
) -> None:
    """Add up weights by the digit of the orders that begins at a bit, from the order `low` up."""
    weights = np.empty(BLOCK, np.int64)
    bins[:] = 0
    for b in range(len(best)):
        if best[b] < low or (by_mass and weightless(best[b], law)):
            continue
        first, end = b * BLOCK, min((b + 1) * BLOCK, len(bits))
        _weigh_block(bits, first, end, by_mass, law, weights)
        for i in range(end - first):
            place = (np.int64(order_of(bits[first + i])) - low) >> shift
            if 0 <= place < len(bins):
                bins[place] += weights[i]


@compiled
def nth_of_order(bits: Bits, best: NDArray[np.int32], order: int, n: int) -> Any:
    """Return the n-th token that has an order; the row's last where there are fewer."""
    for b in range(len(best)):
        if best[b] < order:
            continue
        first, end = b * BLOCK, min((b + 1) * BLOCK, len(bits))
        block = bits[first:end]
        here = count_from(block, order) - count_from(block, order + 1)
        if here < n:
            n -= here
            continue
        for i in range(len(block)):
            n -= order_of(block[i]) == order
            if n == 0:
                return first + i
    return len(bits) - 1


@compiled
def select(bits: Bits, best: NDArray[np.int32], by_mass: bool, need: int, law: Any) -> Any:
    """Order and token of the last one of rule 3's order that is needed to weigh `need`.

    A token weighs its mass, or 1. All above -inf must weigh as much, and `need` be at least 1.
    Three passes, each for a digit of the order; only the first looks at the whole row.
    """
    bins = np.empty(_DIGIT, np.int64)
    low = np.int64(-_OFFSET)
    for shift in (20, 8, 0):
        count = _DIGIT if shift else 256
        _spread(bits, best, low, shift, by_mass, law, bins[:count])
        place = count - 1
        while place > 0 and bins[place] < need:
            need -= bins[place]
            place -= 1
        low += np.int64(place) << shift
    each = mass_of(logit_of(np.int32(low)), law) if by_mass else np.int64(1)
    return low, nth_of_order(bits, best, low, (need - 1) // max(each, 1) + 1)
