"""Rule 4 in loops: integer masses, each float32 operation rounded on its own.

Logits need not be read by rule 1 first, as the row's top has been: taking a denormal for 0 moves y
by too little to change p, which then is 1. A law is what turns logits into masses: (top, scale), m
and s of the rule, both float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import compiled
from .ordinal import BLOCK, LOWEST, Bits, Cut, logit_of, order_of, unread, unread_order

_FLOOR, _LOWEST_NORMAL, _ZERO, _ONE, _TWELVE = (np.float32(x) for x in (-64, -126, 0, 1, 12))
_WEIGHTLESS, _LEAST = np.float32(-41.0), np.float32(2.0**-64)
_ROUNDER = np.float32(12582912.0)
_C1, _C2, _C3, _C4, _C5 = (
    np.float32(float.fromhex(c))
    for c in ("0x1.62e42ap-1", "0x1.ebf9c2p-3", "0x1.c6b6e4p-5", "0x1.3ce8acp-7", "0x1.5bda40p-10")
)
_SLIVER = np.float32(1.5 * 2.0**-17)
_BITS_OF_ONE, _BITS_OF_TWELVE, _BITS_OF_SLIVER = (
    x.view(np.int32) for x in (_ONE, _TWELVE, _SLIVER)
)
_BITS_OF_MINUS_INF = np.float32(-np.inf).view(np.int32)


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
def _exponent(logit: Any, law: Any) -> Any:
    top, scale = law
    y = (logit - top) * scale
    return y if y > _FLOOR else _FLOOR


@compiled
def float_mass_of(logit: Any, law: Any) -> Any:
    """Float mass of a token: 2**y, y at least -64."""
    return _power(_exponent(logit, law))


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
def mass_of(logit: Any, law: Any) -> Any:
    """Mass of a token."""
    high, low = _parts(float_mass_of(logit, law))
    return (np.int64(high) << 20) + low


@compiled
def _write_masses(keys: NDArray[np.int64], law: Any, masses: NDArray[np.int64]) -> None:
    for i in range(len(keys)):
        masses[i] = mass_of(logit_of(np.int32(~(keys[i] >> 32))), law)


def masses_of(keys: NDArray[np.int64], law: Any) -> NDArray[np.int64]:
    """Masses of the tokens that have these keys."""
    masses = np.empty(len(keys), np.int64)
    _write_masses(keys, law, masses)
    return masses


@compiled
def weightless(order: Any, law: Any) -> Any:
    """Tell whether tokens of this order, and with them all that come after, have mass 0."""
    top, scale = law
    return order < LOWEST or (logit_of(order) - top) * scale < _WEIGHTLESS


@compiled
def _weigh_from(block: Bits, bound: int, law: Any) -> Any:
    """Mass of the tokens of a block, or of a part of one, whose order reaches a bound."""
    logits = block.view(np.float32)
    highs, lows, least = np.int32(0), np.int32(0), unread(bound)
    for i in range(len(block)):
        v = float_mass_of(logits[i], law)
        high, low = _parts(v if unread_order(block[i]) >= least else _ZERO)
        highs, lows = np.int32(highs + high), np.int32(lows + low)
    return (np.int64(highs) << 20) + lows


@compiled
def weigh_to(
    bits: Bits,
    best: NDArray[np.int32],
    cut: Cut,
    law: Any,
    running: NDArray[np.int64],
) -> Any:
    """Mass of the tokens that a cut keeps, and block by block what it has come to in `running`."""
    order, token = cut
    total = np.int64(0)
    for b in range(len(best)):
        if best[b] >= order and not weightless(best[b], law):
            first, end = b * BLOCK, min((b + 1) * BLOCK, len(bits))
            split = min(max(token + 1, first), end)
            total += _weigh_from(bits[first:split], order, law)
            total += _weigh_from(bits[split:end], order + 1, law)
        running[b] = total
    return total


@compiled
def write_powers(bits: Bits, law: Any, out: NDArray[np.float32]) -> Any:
    """Write 2**y of each token, y down to -126 and 0 below; return the row's mass."""
    top, scale = law
    logits = bits.view(np.float32)
    total = np.int64(0)
    for first in range(0, len(bits), BLOCK):
        highs, lows = np.int32(0), np.int32(0)
        for i in range(first, min(first + BLOCK, len(bits))):
            y = (logits[i] - top) * scale
            v = _power(y if y > _LOWEST_NORMAL else _LOWEST_NORMAL)
            high, low = _parts(v)
            highs, lows = np.int32(highs + high), np.int32(lows + low)
            out[i] = v if y >= _LOWEST_NORMAL else _ZERO
        total += (np.int64(highs) << 20) + lows
    return total


@compiled
def write_powers_of(part: Bits, law: Any, out: NDArray[np.float32], masses: Any) -> None:
    """Write 2**y of some tokens as `write_powers` does, and their float masses."""
    top, scale = law
    logits = part.view(np.float32)
    for i in range(len(part)):
        least = _LEAST if part[i] != _BITS_OF_MINUS_INF else _ZERO
        y = (logits[i] - top) * scale
        v = _power(y if y > _LOWEST_NORMAL else _LOWEST_NORMAL)
        masses[i] = v if y > _FLOOR else least
        out[i] = v if y >= _LOWEST_NORMAL else _ZERO


@compiled
def write_log_law(
    bits: Bits, top: float, temperature: float, log_total: float, out: NDArray[np.float32]
) -> None:
    """Write (x - m) / T - ln W of each token, computed in float64."""
    for i in range(len(bits)):
        logit = np.float64(logit_of(order_of(bits[i])))
        out[i] = np.float32((logit - top) / temperature - log_total)
