"""Sums and searches of section 5 for deviations and bands, over the tokens that a cut keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import compiled
from .mass import exponent2, mass_of
from .ordinal import BLOCK, LOWEST, Bits, Cut, logit_of, ordinal_of, read_ordinal

_ROUNDER = np.float32(12582912.0)
_BITS_OF_ROUNDER = _ROUNDER.view(np.int32)
_STEPS, _CAP = np.float32(2.0**11), np.float32(2**20 - 1)
_UNITS = np.float32(2.0**16)
_HALF = np.int64(19)
_LOW = np.int64(2**19 - 1)
_DIGIT = 2**12


@compiled
def _rounded(x: Any) -> Any:
    """Round a float32 in [0, 2**22] to the nearest integer, ties to even."""
    return np.int64(np.int32(np.float32(x + _ROUNDER).view(np.int32)) - _BITS_OF_ROUNDER)


@compiled
def deviation_sums(bits: Bits, block_max: NDArray[np.int32], cut: Cut, top: Any) -> Any:
    """Number of tokens, and the sums of their d and d * d."""
    ordinal, last = cut
    count, s1, s2 = np.int64(0), np.int64(0), np.int64(0)
    for b in range(len(block_max)):
        if block_max[b] < ordinal:
            continue
        for token in range(b * BLOCK, min((b + 1) * BLOCK, len(bits))):
            own = ordinal_of(bits[token])
            if own >= (ordinal if token <= last else ordinal + 1):
                steps = (top - logit_of(own)) * _STEPS
                d = _rounded(steps if steps < _CAP else _CAP)
                count, s1, s2 = count + 1, s1 + d, s2 + d * d
    return count, s1, s2


@compiled
def information_sums(bits: Bits, block_max: NDArray[np.int32], cut: Cut, scaling: Any) -> Any:
    """E1 and E0 of section 5: the high and the low parts of the masses times k."""
    ordinal, last = cut
    e1, e0 = np.int64(0), np.int64(0)
    for b in range(len(block_max)):
        if block_max[b] < ordinal:
            continue
        for token in range(b * BLOCK, min((b + 1) * BLOCK, len(bits))):
            own = ordinal_of(bits[token])
            if own >= (ordinal if token <= last else ordinal + 1):
                mass = mass_of(logit_of(own), scaling)
                k = _rounded(-exponent2(logit_of(own), scaling) * _UNITS)
                e1, e0 = e1 + (mass >> _HALF) * k, e0 + (mass & _LOW) * k
    return e1, e0


@compiled
def _distance(ordinal: Any, scaling: Any, center: Any) -> Any:
    """Distance of y from a center."""
    y = exponent2(logit_of(read_ordinal(np.int32(ordinal))), scaling)
    return y - center if y > center else center - y


@compiled
def _spread(
    bits: Bits,
    block_max: NDArray[np.int32],
    cut: Cut,
    scaling: Any,
    center: Any,
    low: Any,
    shift: int,
    masses: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """Add masses and counts by a digit of the distances' bits, which begins at a bit."""
    ordinal, last = cut
    masses[:] = 0
    counts[:] = 0
    for b in range(len(block_max)):
        if block_max[b] < ordinal:
            continue
        for token in range(b * BLOCK, min((b + 1) * BLOCK, len(bits))):
            own = ordinal_of(bits[token])
            if own >= (ordinal if token <= last else ordinal + 1):
                distance = np.float32(_distance(own, scaling, center)).view(np.int32)
                place = (np.int64(distance) - low) >> shift
                if 0 <= place < len(masses):
                    masses[place] += mass_of(logit_of(own), scaling)
                    counts[place] += 1


@compiled
def nearest(
    bits: Bits,
    block_max: NDArray[np.int32],
    cut: Cut,
    scaling: Any,
    center: Any,
    need: int,
    least: int,
) -> Any:
    """Least distance within which the tokens of a cut have a mass and a number: D of section 5.

    Three passes, each for a digit of the distance's bits.
    """
    all_masses, all_counts = np.empty(_DIGIT, np.int64), np.empty(_DIGIT, np.int64)
    low = np.int64(0)
    for shift in (20, 8, 0):
        size = _DIGIT if shift else 256
        masses, counts = all_masses[:size], all_counts[:size]
        _spread(bits, block_max, cut, scaling, center, low, shift, masses, counts)
        place = 0
        while place < size - 1 and (masses[place] < need or counts[place] < least):
            need -= masses[place]
            least -= counts[place]
            place += 1
        low += np.int64(place) << shift
    return np.int32(low).view(np.float32)


@compiled
def band_ends(highest: int, scaling: Any, center: Any, distance: Any) -> Any:
    """Lowest and highest ordinal whose y is within a distance of a center."""
    low, high = np.int64(LOWEST), np.int64(highest)
    while low < high:
        middle = low + (high - low) // 2
        y = exponent2(logit_of(read_ordinal(np.int32(middle))), scaling)
        if y >= center or center - y <= distance:
            high = middle
        else:
            low = middle + 1
    lowest, high = low, np.int64(highest)
    while low < high:
        middle = high - (high - low) // 2
        y = exponent2(logit_of(read_ordinal(np.int32(middle))), scaling)
        if y <= center or y - center <= distance:
            low = middle
        else:
            high = middle - 1
    return np.int64(read_ordinal(np.int32(lowest))), np.int64(read_ordinal(np.int32(low)))
