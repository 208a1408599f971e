"""Searches for cuts: the last token that reaches a count, a mass or a threshold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import compiled
from .mass import exponent2, has_no_mass, mass_of
from .ordinal import BLOCK, LOWEST, Bits, count_from, logit_of, ordinal_of, read_ordinal

_OFFSET = 2**31
_DIGIT = 2**12


@compiled
def lowest_ordinal(y: Any, highest: int, scaling: Any) -> Any:
    """Lowest ordinal whose y reaches a threshold below 0; y rises with the ordinal."""
    low, high = np.int64(LOWEST), np.int64(highest)
    while low < high:
        middle = low + (high - low) // 2
        if exponent2(logit_of(read_ordinal(np.int32(middle))), scaling) >= y:
            high = middle
        else:
            low = middle + 1
    return np.int64(read_ordinal(np.int32(low)))


@compiled
def _write_block_masses(
    bits: Bits, first: int, end: int, by_mass: bool, scaling: Any, weights: Any
) -> None:
    logits = bits.view(np.float32)
    for i in range(end - first):
        weights[i] = mass_of(logits[first + i], scaling) if by_mass else np.int64(1)


@compiled
def _spread(
    bits: Bits,
    block_max: NDArray[np.int32],
    low: int,
    shift: int,
    by_mass: bool,
    scaling: Any,
    bins: NDArray[np.int64],
) -> None:
    """Add weights by a digit of the ordinals, which begins at a bit, from the ordinal `low` up."""
    weights = np.empty(BLOCK, np.int64)
    bins[:] = 0
    for b in range(len(block_max)):
        if block_max[b] < low or (by_mass and has_no_mass(block_max[b], scaling)):
            continue
        first, end = b * BLOCK, min((b + 1) * BLOCK, len(bits))
        _write_block_masses(bits, first, end, by_mass, scaling, weights)
        for i in range(end - first):
            place = (np.int64(ordinal_of(bits[first + i])) - low) >> shift
            if 0 <= place < len(bins):
                bins[place] += weights[i]


@compiled
def nth_of_ordinal(bits: Bits, block_max: NDArray[np.int32], ordinal: int, n: int) -> Any:
    """Return the n-th token that has an ordinal; the row's last where there are fewer."""
    for b in range(len(block_max)):
        if block_max[b] < ordinal:
            continue
        first, end = b * BLOCK, min((b + 1) * BLOCK, len(bits))
        block = bits[first:end]
        here = count_from(block, ordinal) - count_from(block, ordinal + 1)
        if here < n:
            n -= here
            continue
        for i in range(len(block)):
            n -= ordinal_of(block[i]) == ordinal
            if n == 0:
                return first + i
    return len(bits) - 1


@compiled
def select(bits: Bits, block_max: NDArray[np.int32], by_mass: bool, need: int, scaling: Any) -> Any:
    """Ordinal and token of the last token of section 3's order that is needed to weigh `need`.

    A token weighs its mass, or 1. All above -inf must weigh as much, and `need` be at least 1.
    Three passes, each for a digit of the ordinal; only the first looks at the whole row.
    """
    bins = np.empty(_DIGIT, np.int64)
    low = np.int64(-_OFFSET)
    for shift in (20, 8, 0):
        count = _DIGIT if shift else 256
        _spread(bits, block_max, low, shift, by_mass, scaling, bins[:count])
        place = count - 1
        while place > 0 and bins[place] < need:
            need -= bins[place]
            place -= 1
        low += np.int64(place) << shift
    each = mass_of(logit_of(np.int32(low)), scaling) if by_mass else np.int64(1)
    return low, nth_of_ordinal(bits, block_max, low, (need - 1) // max(each, 1) + 1)
