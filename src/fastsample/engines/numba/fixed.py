"""Rule 8 in loops: float32 masses that add up in the order of the reduction "fixed".

No order is quicker here, so this is that of "fast" too. Sums of float32 round, so no loop may take
another order than it is written in: Numba keeps to it, as nothing is compiled with `fastmath`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import compiled
from .draw import LOW, uniform
from .mass import float_mass_of, masses_of, write_powers_of
from .ordinal import BLOCK, Bits, Cut, logit_of, order_of, parts_of, unread, unread_order
from .row import Law, Row

_LANES, _WIDE = 16, 4096
_ZERO, _STEP, _SHIFT = np.float32(0), 2.0**-53, np.uint64(11)
_UNITS = 2.0**40


@compiled
def _weigh_part(bits: Bits, first: int, end: int, bound: int, law: Any, masses: Any) -> None:
    """Write the masses of a part of a block; 0 for tokens whose order does not reach a bound."""
    part, least = bits[first:end], unread(bound)
    logits, place = part.view(np.float32), first % BLOCK
    for i in range(len(part)):
        v = float_mass_of(logits[i], law)
        masses[place + i] = v if unread_order(part[i]) >= least else _ZERO


@compiled
def _weigh_block(bits: Bits, block: int, cut: Cut, law: Any, masses: Any) -> None:
    """Write the masses of a block; 0 for tokens that a cut does not keep."""
    order, token = cut
    first, end = block * BLOCK, min((block + 1) * BLOCK, len(bits))
    split = min(max(token + 1, first), end)
    masses[end - first :] = _ZERO
    _weigh_part(bits, first, split, order, law, masses)
    _weigh_part(bits, split, end, order + 1, law, masses)


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
def add_to(
    bits: Bits, best: NDArray[np.int32], cut: Cut, law: Any, running: NDArray[np.float64]
) -> None:
    """Add up the masses that a cut keeps: what they come to, one wide block after the other."""
    order, _ = cut
    masses, lanes = np.empty(BLOCK, np.float32), np.zeros(_LANES, np.float32)
    total = np.float64(0)
    for wide in range(len(running)):
        start = wide * _WIDE // BLOCK
        for b in range(start, min(start + _WIDE // BLOCK, len(best))):
            if best[b] >= order:
                _weigh_block(bits, b, cut, law, masses)
                _add_lanes(masses, lanes)
        total += _total_of(lanes)
        running[wide] = total


@compiled
def near_total(bits: Bits, best: NDArray[np.int32], cut: Cut, law: Any) -> Any:
    """Add up the masses that a cut keeps in float64, in lanes: nearly without rounding."""
    order, _ = cut
    masses, lanes = np.empty(BLOCK, np.float32), np.zeros(_LANES, np.float64)
    for b in range(len(best)):
        if best[b] >= order:
            _weigh_block(bits, b, cut, law, masses)
            for first in range(0, BLOCK, _LANES):
                for lane in range(_LANES):
                    lanes[lane] += np.float64(masses[first + lane])
    total = np.float64(0)
    for lane in range(_LANES):
        total += lanes[lane]
    return total


@compiled
def write_powers_to(bits: Bits, law: Any, out: NDArray[np.float32]) -> Any:
    """Write 2**y of each token, y down to -126 and 0 below; return the row's W."""
    masses, lanes = np.empty(BLOCK, np.float32), np.zeros(_LANES, np.float32)
    total = np.float64(0)
    for start in range(0, len(bits), _WIDE):
        for first in range(start, min(start + _WIDE, len(bits)), BLOCK):
            end = min(first + BLOCK, len(bits))
            masses[end - first :] = _ZERO
            write_powers_of(bits[first:end], law, out[first:end], masses)
            _add_lanes(masses, lanes)
        total += _total_of(lanes)
    return total


@compiled
def _token_at(bits: Bits, wide: int, total: float, r: float, cut: Cut, law: Any) -> Any:
    """Token of a wide block at which a running total exceeds r, or the last that is kept.

    Some token of the block, where the row has been written since and it keeps none.
    """
    logits = bits.view(np.float32)
    order, last = cut
    end = min((wide + 1) * _WIDE, len(bits))
    found = np.int64(end - 1)
    for token in range(wide * _WIDE, end):
        if order_of(bits[token]) >= (order if token <= last else order + 1):
            found = np.int64(token)
            total += np.float64(float_mass_of(logits[token], law))
            if total > r:
                break
    return found


@compiled
def draw_floats(
    bits: Bits, running: NDArray[np.float64], cut: Cut, law: Any, place: Any, tokens: Any
) -> None:
    """Draw tokens at a place, and on the streams after it; `running` is that of `add_to`."""
    seed, position, stream = place
    for n in range(len(tokens)):
        u = uniform(seed, position, (stream + np.uint64(n)) & LOW)
        r = np.float64(u >> _SHIFT) * _STEP * running[-1]
        wide = np.searchsorted(running, r, side="right")
        before = running[wide - 1] if wide else np.float64(0)
        tokens[n] = _token_at(bits, wide, before, r, cut, law)


@compiled
def _write_float_masses(keys: NDArray[np.int64], law: Any, masses: NDArray[np.float32]) -> None:
    for i in range(len(keys)):
        masses[i] = float_mass_of(logit_of(np.int32(~(keys[i] >> 32))), law)


class FixedRow(Row):
    """A row whose masses are float32 and add up in the fixed order."""

    top_mass = 1.0

    def __init__(self, logits: NDArray[np.float32]) -> None:
        super().__init__(logits)
        self._sums = np.empty(-(-len(logits) // _WIDE))
        self._added: Any = None

    def mass(self, cut: int, law: Law) -> float:
        """W of the tokens that a cut keeps."""
        if self._added != (cut, law):
            add_to(self.bits, self.best, parts_of(cut), law, self._sums)
            self._added = cut, law
        return float(self._sums[-1])

    def masses(self, keys: NDArray[np.int64], law: Law) -> NDArray[np.float32]:
        """v of the tokens that have these keys."""
        masses = np.empty(len(keys), np.float32)
        _write_float_masses(keys, law, masses)
        return masses

    def write_powers(self, law: Law, out: NDArray[np.float32]) -> float:
        """Write 2**y of each token; return the row's mass. `out` may be the row."""
        return float(write_powers_to(self.bits, law, out))

    def draw(self, cut: int, law: Law, place: Any, tokens: NDArray[np.int64]) -> None:
        """Draw from what a cut keeps."""
        self.mass(cut, law)
        draw_floats(self.bits, self._sums, parts_of(cut), law, place, tokens)

    def nucleus(self, cut: int, law: Law, top_p: float) -> int:
        """Cut of top_p, a float32 below 1, on what a cut has left.

        The rule adds in its order, one by one, in float64. Where all these sums are exact, integers
        find the same cut without sorting, and where what sums round is too little to matter, which
        is nearly everywhere; elsewhere the tokens are sorted, and added so.
        """
        weight = self.mass(cut, law)
        need = (top_p - 2.0**-21) * weight
        # Past int64, or nan, only where the row has been written since.
        units = max(1, math.ceil(need * _UNITS)) if need * _UNITS < 2.0**63 else 1
        found = self._integer_nucleus(cut, law, units)
        if found is not None and self._adds_exactly(found, law, units):
            return min(found, cut)
        if found is not None and found <= cut and self._surely_ends(found, law, need, weight):
            return found
        keys = self.keys(cut)
        if not len(keys):
            return cut  # likewise
        running = self.masses(keys, law).cumsum(dtype=np.float64)
        return int(keys[min(int(running.searchsorted(need)), len(keys) - 1)])

    def _integer_nucleus(self, cut: int, law: Law, units: int) -> int | None:
        """Cut whose integer mass is the first to reach so many units, if one is known to."""
        self._kept_of_head(cut)
        found = self._reaching_in_head(law, units)
        if found is None and units <= super().mass(cut, law):
            found = self._reaching(law, units)
        return found

    def _adds_exactly(self, found: int, law: Law, units: int) -> bool:
        """Tell whether float64 sums, from the top to a cut that so many units need, are exact.

        A mass of 2^24 units or more is that of a v of 2^-16 or more, and no v before it is below
        its half. So each is a whole number of units, of which float64 keeps 53 bits from the last
        bit of the smallest one.
        """
        last = int(masses_of(np.array([found]), law)[0])
        return last >= 2**24 and units + last <= 2 ** (last.bit_length() + 28)

    def _surely_ends(self, found: int, law: Law, need: float, weight: float) -> bool:
        """Tell whether float64 sums reach `need` at a cut and not before, however they round.

        A sum of n masses takes less than n roundings, each by half a last bit of the weight at
        most; a quarter more, and 4096 of them, leave room for those of the sum that is made here.
        """
        total = float(near_total(self.bits, self.best, parts_of(found), law))
        last = float(self.masses(np.array([found]), law)[0])
        slack = 1.25 * _STEP * weight * (self.count(found) + 4096)
        return total - last + slack < need <= total - slack
