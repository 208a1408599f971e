"""Section 4 in loops: integer masses, each float32 operation rounded on its own.

Logits need not be read as in section 1 first, as the row's largest has been: reading a denormal as
0 changes y by too little to change p, which then is 1. A scaling is m and s of the rule, both
float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import compiled
from .ordinal import (
    BLOCK,
    LOWEST,
    Bits,
    Cut,
    logit_of,
    ordinal_of,
    read_ordinal,
    unread_bound,
    unread_ordinal,
)

_FLOOR, _LOWEST_NORMAL, _ZERO, _ONE, _TWELVE = (np.float32(x) for x in (-64, -126, 0, 1, 12))
_WEIGHTLESS = np.float32(-41.0)
_ROUNDER = np.float32(12582912.0)
_C1, _C2, _C3, _C4, _C5 = (
    np.float32(float.fromhex(c))
    for c in ("0x1.62e42ap-1", "0x1.ebf9c2p-3", "0x1.c6b6e4p-5", "0x1.3ce8acp-7", "0x1.5bda40p-10")
)
_SLIVER = np.float32(1.5 * 2.0**-17)
_BITS_OF_ONE, _BITS_OF_TWELVE, _BITS_OF_SLIVER = (
    x.view(np.int32) for x in (_ONE, _TWELVE, _SLIVER)
)


@compiled
def _bits_of(x: Any) -> Any:
    return np.int32(np.float32(x).view(np.int32))


@compiled
def _power(y: Any) -> Any:
    """2**y for y in [-126, 0]."""
    t = y + _ROUNDER
    f = y - (t - _ROUNDER)
    p = _C5 * f + _C4
    p = p * f + _C3
    p = p * f + _C2
    p = p * f + _C1
    p = p * f + _ONE
    # The rounder's own bits leave at the top.
    two_to_k = np.int32((_bits_of(t) << np.int32(23)) + _BITS_OF_ONE)
    return p * np.int32(two_to_k).view(np.float32)


@compiled
def exponent2(logit: Any, scaling: Any) -> Any:
    """Exponent of a logit to base 2: y of section 4."""
    top, scale = scaling
    y = (logit - top) * scale
    return y if y > _FLOOR else _FLOOR


@compiled
def float_mass_of(logit: Any, scaling: Any) -> Any:
    """Float mass of a token: 2**y, y at least -64."""
    return _power(exponent2(logit, scaling))


@compiled
def _parts(v: Any) -> Any:
    """Mass of a power, as two int32: the first counts 2**20."""
    high = v + _TWELVE
    low = (v - (high - _TWELVE)) + _SLIVER
    return (
        np.int32(_bits_of(high) - _BITS_OF_TWELVE),
        np.int32(_bits_of(low) - _BITS_OF_SLIVER),
    )


@compiled
def mass_of(logit: Any, scaling: Any) -> Any:
    """Mass of a token."""
    high, low = _parts(float_mass_of(logit, scaling))
    return (np.int64(high) << 20) + low


@compiled
def _write_masses(keys: NDArray[np.int64], scaling: Any, masses: NDArray[np.int64]) -> None:
    for i in range(len(keys)):
        masses[i] = mass_of(logit_of(np.int32(~(keys[i] >> 32))), scaling)


def masses_of(keys: NDArray[np.int64], scaling: Any) -> NDArray[np.int64]:
    """Masses of the tokens that have these keys."""
    masses = np.empty(len(keys), np.int64)
    _write_masses(keys, scaling, masses)
    return masses


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
def has_no_mass(ordinal: Any, scaling: Any) -> Any:
    """Return whether tokens of this ordinal, and so all after them, have mass 0."""
    top, scale = scaling
    return ordinal < LOWEST or (logit_of(ordinal) - top) * scale < _WEIGHTLESS


@compiled
def _part_mass(block: Bits, bound: int, scaling: Any) -> Any:
    """Mass of the tokens of a block, or of a part of one, whose ordinal reaches a bound."""
    logits = block.view(np.float32)
    highs, lows, least = np.int32(0), np.int32(0), unread_bound(bound)
    for i in range(len(block)):
        v = float_mass_of(logits[i], scaling)
        high, low = _parts(v if unread_ordinal(block[i]) >= least else _ZERO)
        highs, lows = np.int32(highs + high), np.int32(lows + low)
    return (np.int64(highs) << 20) + lows


@compiled
def running_mass(
    bits: Bits,
    block_max: NDArray[np.int32],
    cut: Cut,
    scaling: Any,
    running: NDArray[np.int64],
) -> Any:
    """Mass of the tokens that a cut keeps; its running total, block by block, goes to `running`."""
    ordinal, token = cut
    total = np.int64(0)
    for b in range(len(block_max)):
        if block_max[b] >= ordinal and not has_no_mass(block_max[b], scaling):
            first, end = b * BLOCK, min((b + 1) * BLOCK, len(bits))
            split = min(max(token + 1, first), end)
            total += _part_mass(bits[first:split], ordinal, scaling)
            total += _part_mass(bits[split:end], ordinal + 1, scaling)
        running[b] = total
    return total


@compiled
def write_powers(bits: Bits, scaling: Any, out: NDArray[np.float32]) -> None:
    """Write 2**y of each token, y down to -126 and 0 below."""
    top, scale = scaling
    logits = bits.view(np.float32)
    for i in range(len(bits)):
        y = (logits[i] - top) * scale
        v = _power(y if y > _LOWEST_NORMAL else _LOWEST_NORMAL)
        out[i] = v if y >= _LOWEST_NORMAL else _ZERO


@compiled
def write_log_softmax(
    bits: Bits, top: float, temperature: float, log_total: float, out: NDArray[np.float32]
) -> None:
    """Write (x - m) / T - ln W of each token, computed in float64."""
    for i in range(len(bits)):
        logit = np.float64(logit_of(ordinal_of(bits[i])))
        out[i] = np.float32((logit - top) / temperature - log_total)
