"""Section 8 in loops: float32 masses, added in the order of the reduction "fixed".

No order is faster here, so "fast" adds in this one too. Sums of float32 round, so no loop may add
in another order than it is written in: Numba keeps to it, as nothing is compiled with `fastmath`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines.reference.draw import INVERSE

from . import compiled
from .draw import words
from .mass import float_mass_of
from .ordinal import BLOCK, Bits, Cut, key_parts, logit_of, ordinal_of, unread_bound, unread_ordinal
from .row import Row, Scaling

_LANES, _WIDE = 16, 4096
_ZERO, _STEP, _SHIFT = np.float32(0), 2.0**-53, np.uint64(11)


@compiled
def _write_part_masses(
    bits: Bits, first: int, end: int, bound: int, scaling: Any, masses: Any
) -> None:
    """Write the masses of a part of a block; 0 for tokens whose ordinal does not reach a bound."""
    part, least = bits[first:end], unread_bound(bound)
    logits, place = part.view(np.float32), first % BLOCK
    for i in range(len(part)):
        v = float_mass_of(logits[i], scaling)
        masses[place + i] = v if unread_ordinal(part[i]) >= least else _ZERO


@compiled
def _write_block_masses(bits: Bits, block: int, cut: Cut, scaling: Any, masses: Any) -> None:
    """Write the masses of a block; 0 for tokens that a cut does not keep."""
    ordinal, token = cut
    first, end = block * BLOCK, min((block + 1) * BLOCK, len(bits))
    split = min(max(token + 1, first), end)
    masses[end - first :] = _ZERO
    _write_part_masses(bits, first, split, ordinal, scaling, masses)
    _write_part_masses(bits, split, end, ordinal + 1, scaling, masses)


@compiled
def _add_lanes(masses: Any, lanes: Any) -> None:
    for first in range(0, BLOCK, _LANES):
        for lane in range(_LANES):
            lanes[lane] += masses[first + lane]


@compiled
def _total_of(lanes: Any) -> Any:
    """Add lane i + 8 to lane i, then so by 4, 2 and 1; leave all lanes at 0."""
    half = _LANES // 2
    while half:
        for lane in range(half):
            lanes[lane] += lanes[lane + half]
        half //= 2
    total = np.float64(lanes[0])
    lanes[:] = _ZERO
    return total


@compiled
def running_sum(
    bits: Bits, block_max: NDArray[np.int32], cut: Cut, scaling: Any, running: NDArray[np.float64]
) -> None:
    """Add up the masses that a cut keeps: what they come to, one wide block after the other."""
    ordinal, _ = cut
    masses, lanes = np.empty(BLOCK, np.float32), np.zeros(_LANES, np.float32)
    total = np.float64(0)
    for wide in range(len(running)):
        start = wide * _WIDE // BLOCK
        for b in range(start, min(start + _WIDE // BLOCK, len(block_max))):
            if block_max[b] >= ordinal:
                _write_block_masses(bits, b, cut, scaling, masses)
                _add_lanes(masses, lanes)
        total += _total_of(lanes)
        running[wide] = total


@compiled
def _token_at(bits: Bits, wide: int, total: float, r: float, cut: Cut, scaling: Any) -> Any:
    """Token of a wide block at which a running total exceeds r, or the last that is kept.

    Some token of the block, where the row has been written since and it keeps none.
    """
    logits = bits.view(np.float32)
    ordinal, last = cut
    end = min((wide + 1) * _WIDE, len(bits))
    found = np.int64(end - 1)
    for token in range(wide * _WIDE, end):
        if ordinal_of(bits[token]) >= (ordinal if token <= last else ordinal + 1):
            found = np.int64(token)
            total += np.float64(float_mass_of(logits[token], scaling))
            if total > r:
                break
    return found


@compiled
def draw_floats(
    bits: Bits,
    running: NDArray[np.float64],
    cut: Cut,
    scaling: Any,
    rng_position: Any,
    purpose: int,
    tokens: Any,
) -> None:
    """Draw tokens at (seed, position, stream), and on the streams after it.

    `running` is that of `running_sum` for the same cut and scaling.
    """
    seed, position, stream = rng_position
    for n in range(len(tokens)):
        u, _ = words(seed, position, stream + np.uint64(n), np.uint64(purpose))
        r = np.float64(u >> _SHIFT) * _STEP * running[-1]
        wide = np.searchsorted(running, r, side="right")
        before = running[wide - 1] if wide else np.float64(0)
        tokens[n] = _token_at(bits, wide, before, r, cut, scaling)


@compiled
def _write_float_masses(keys: NDArray[np.int64], scaling: Any, masses: NDArray[np.float32]) -> None:
    for i in range(len(keys)):
        masses[i] = float_mass_of(logit_of(np.int32(~(keys[i] >> 32))), scaling)


class FixedRow(Row):
    """A row whose masses are float32 and add up in the fixed order."""

    top_mass = 1.0
    sum_type = np.float64

    def __init__(self, logits: NDArray[np.float32]) -> None:
        super().__init__(logits)
        self._sums = np.empty(-(-len(logits) // _WIDE))
        self._added: Any = None

    def mass(self, cut: int, scaling: Scaling) -> float:
        """W of the tokens that a cut keeps."""
        if self._added != (cut, scaling):
            running_sum(self.bits, self.block_max, key_parts(cut), scaling, self._sums)
            self._added = cut, scaling
        return float(self._sums[-1])

    def masses(self, keys: NDArray[np.int64], scaling: Scaling) -> NDArray[np.float32]:
        """v of the tokens that have these keys."""
        masses = np.empty(len(keys), np.float32)
        _write_float_masses(keys, scaling, masses)
        return masses

    def draw(
        self,
        cut: int,
        scaling: Scaling,
        rng_position: Any,
        tokens: NDArray[np.int64],
        purpose: int = INVERSE,
    ) -> None:
        """Draw from what a cut keeps."""
        self.mass(cut, scaling)
        parts = key_parts(cut)
        draw_floats(self.bits, self._sums, parts, scaling, rng_position, purpose, tokens)

    def need(self, cut: int, scaling: Scaling, share: float) -> float:
        """Mass that reaches a share, a float32 below 1, of the mass up to a cut."""
        return (share - 2.0**-21) * self.mass(cut, scaling)
