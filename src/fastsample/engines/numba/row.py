"""One row: its blocks, and the cuts that counts, masses and thresholds make.

Where the first tokens are enough, only these are sorted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines.reference.draw import INVERSE
from fastsample.engines.reference.mass import TOP_MASS_BITS
from fastsample.engines.reference.reductions import nucleus_target
from fastsample.engines.reference.rows import EMPTY, INVALID, OK, read

from .draw import draw
from .mass import lowest_ordinal, masses_of, running_mass
from .ordinal import (
    ALL,
    BLOCK,
    INF,
    LOWEST,
    MINUS_INF,
    count_kept,
    key_parts,
    list_kept,
    logit_of,
    ordinal_of,
    scan,
    sort_key,
)

_FIRST = 128

Scaling = tuple[Any, Any]
"""m and s of section 4."""

_NO_KEYS = np.empty(0, np.int64)


class Row:
    """A row that is drawn from.

    Parameters
    ----------
    logits : float32 array of shape (V,)
        After section 2; contiguous and aligned. It is not copied.

    Attributes
    ----------
    bits : int32 array of shape (V,)
    top : float32
        m of the rule, the largest logit.
    top_ordinal : int
    status : int
    top_mass : float
        The mass of the top token: masses are the integers of the reduction "exact".
    """

    top_mass = 2.0**TOP_MASS_BITS
    sum_type: Any = np.int64

    def __init__(self, logits: NDArray[np.float32]) -> None:
        self.bits = logits.view(np.int32)
        self.bits.flags.writeable = False
        self.block_max = np.empty(-(-len(logits) // BLOCK), np.int32)
        self.top_ordinal, self._bottom = scan(self.bits, self.block_max)
        self.top = np.float32(logit_of(np.int32(self.top_ordinal)))
        self._running = np.empty(len(self.block_max), np.int64)
        self._weighed: Any = None
        self._first = _NO_KEYS

    @property
    def status(self) -> int:
        """Whether a token can be drawn, as the reference has it."""
        if self.top_ordinal >= INF or self._bottom < MINUS_INF:
            return INVALID
        return EMPTY if self.top_ordinal == MINUS_INF else OK

    # ---- what a cut keeps

    def count(self, cut: int) -> int:
        """Count the tokens that a cut keeps."""
        if cut >= ALL and self._bottom > MINUS_INF:
            return len(self.bits)
        return int(count_kept(self.bits, self.block_max, key_parts(cut)))

    def total_mass(self, cut: int, scaling: Scaling) -> int:
        """W of the tokens that a cut keeps, as an integer in every reduction."""
        if self._weighed != (cut, scaling):
            self._total = int(
                running_mass(self.bits, self.block_max, key_parts(cut), scaling, self._running)
            )
            self._weighed = cut, scaling
        return self._total

    def mass(self, cut: int, scaling: Scaling) -> Any:
        """W of the tokens that a cut keeps."""
        return self.total_mass(cut, scaling)

    def masses(self, keys: NDArray[np.int64], scaling: Scaling) -> NDArray[Any]:
        """Masses of the tokens that have these keys."""
        return masses_of(keys, scaling)

    def draw(
        self,
        cut: int,
        scaling: Scaling,
        rng_position: Any,
        tokens: NDArray[np.int64],
        purpose: int = INVERSE,
    ) -> None:
        """Draw from the tokens that a cut keeps: see `numba.draw`."""
        self.total_mass(cut, scaling)
        draw(self.bits, self._running, key_parts(cut), scaling, rng_position, purpose, tokens)

    def keys(self, cut: int, in_order: bool = True) -> NDArray[np.int64]:
        """Sort keys of the tokens that a cut keeps, in order or by token."""
        return self._list(cut, len(self.bits), in_order)

    def _list(self, cut: int, most: int, in_order: bool = True) -> NDArray[np.int64]:
        """Sort keys; none where they might be more than `most`."""
        parts = key_parts(cut)
        capacity = np.count_nonzero(self.block_max >= parts[0]) * BLOCK
        keys = np.empty(min(capacity, most), np.int64)
        kept: NDArray[np.int64] = keys[: max(0, list_kept(self.bits, self.block_max, parts, keys))]
        if in_order:
            kept.sort()
        return kept

    def first(self, count: int) -> NDArray[np.int64]:
        """Sort keys of the first tokens, those of -inf last; `count` is at most V."""
        if count == 0:
            return _NO_KEYS
        keys = self.keys(self.nth(count))[:count]
        if len(keys) == count:
            return keys
        # A row that is written during the call may have too few: then these are the rest.
        first = sort_key(MINUS_INF, 0) | np.arange(count)
        first[: len(keys)] = keys
        banned = np.flatnonzero(self.bits.view(np.float32) == -np.inf)[: count - len(keys)]
        first[len(keys) : len(keys) + len(banned)] = sort_key(MINUS_INF, 0) | banned
        return first

    def sort_key_of_token(self, token: int) -> int:
        """Sort key of a token."""
        return sort_key(ordinal_of(self.bits[token]), token)

    # ---- the n-th token

    def _first_keys(self, count: int) -> NDArray[np.int64]:
        """Sort keys of the first tokens, `count` or more; fewer where they take long to find.

        As many blocks hold as many of them, unless few blocks hold most or many tokens are equal.
        """
        if len(self._first) < count <= len(self.block_max):
            bound = max(int(np.partition(self.block_max, -count)[-count]), LOWEST)
            self._first = self._list(sort_key(bound), 16 * count + 16 * BLOCK)
        return self._first

    def nth(self, n: int) -> int:
        """Cut that keeps the first n tokens, or all where there are fewer."""
        if n == 1:
            start = int(self.block_max.argmax()) * BLOCK
            block = read(self.bits[start : start + BLOCK].view(np.float32))
            return sort_key(self.top_ordinal, start + int(block.argmax()))
        keys = self._first_keys(n)
        if n <= len(keys):
            return int(keys[n - 1])
        if n < self.count(ALL):
            keys = self.keys(ALL)
        return int(keys[n - 1]) if n <= len(keys) else ALL

    # ---- masses and thresholds

    def need(self, cut: int, scaling: Scaling, share: float) -> float:
        """Mass that reaches a share, a float32 below 1, of the mass up to a cut."""
        return nucleus_target(share, self.total_mass(cut, scaling))

    def nucleus(self, cut: int, scaling: Scaling, share: float) -> int:
        """Cut of the tokens that reach a share of the mass up to a cut.

        Masses are added in order, one by one: as the rule does in section 8, where sums round.
        """
        need = self.need(cut, scaling, share)
        if not len(self._first) or cut > self._first[-1]:
            self._first_keys(min(_FIRST, len(self.block_max)))
        keys = self._first[: self._first.searchsorted(cut, "right")]
        running = self.masses(keys, scaling).cumsum(dtype=self.sum_type)
        if not len(keys) or running[-1] < need:
            keys = self.keys(cut)
            running = self.masses(keys, scaling).cumsum(dtype=self.sum_type)
        if not len(keys):
            return cut  # Only where the row has been written since.
        return int(keys[min(int(running.searchsorted(need)), len(keys) - 1)])

    def reaching(self, y: np.float32, scaling: Scaling) -> int:
        """Cut of the tokens whose y reaches a threshold below 0."""
        return sort_key(lowest_ordinal(y, self.top_ordinal, scaling))

    def without_above(self, ordinal: int) -> Row:
        """Copy the row with the logits above an ordinal at -inf."""
        logits = read(self.bits.view(np.float32))
        logits[logits > logit_of(np.int32(ordinal))] = -np.inf
        return type(self)(logits)
