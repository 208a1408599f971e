"""One row: what is known of it, and the cuts that the stages of rule 5 make.

Each filter keeps the first tokens of rule 3's order, so each is a cut, a key; so are several. No
row is sorted: few tokens are, those in front, and what lies further back is found by weight.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines import reference
from fastsample.params.ops import Op

from .draw import draw
from .mass import masses_of, weigh_to, write_powers
from .ordinal import (
    ALL,
    BLOCK,
    INF,
    LOWEST,
    MINUS_INF,
    count_to,
    key_of,
    list_to,
    logit_of,
    nth_best,
    order_of,
    parts_of,
    reaching,
    scan,
)
from .select import lowest_order, nth_of_order, select
from .settings import RowParams

_FIRST = 128

Law = tuple[Any, Any]
_NO_KEYS = np.empty(0, np.int64)

scale_of = lru_cache(maxsize=256)(reference.scale)
_threshold_of = lru_cache(maxsize=256)(reference.threshold)


class Row:
    """A row that is drawn from.

    Parameters
    ----------
    logits : float32 array of shape (V,)
        Contiguous and aligned; adjusted. It is read where it lies.

    Attributes
    ----------
    bits : int32 array of shape (V,)
    top : float32
        m of the rule, the largest logit.
    status : int
    top_mass : float
        The mass of the top token: integers are masses, in the reduction "exact".
    """

    top_mass = 2.0**reference.TOP_MASS_BITS

    def __init__(self, logits: NDArray[np.float32]) -> None:
        self.bits = logits.view(np.int32)
        self.bits.flags.writeable = False
        self.best = np.empty(-(-len(logits) // BLOCK), np.int32)
        self._top, self._bottom = scan(self.bits, self.best)
        self.top = np.float32(logit_of(np.int32(self._top)))
        self._running = np.empty(len(self.best), np.int64)
        self._weighed: Any = None
        self._head = _NO_KEYS
        self._head_law: Any = None

    @property
    def status(self) -> int:
        """Whether a token can be drawn, by the numbers of the reference."""
        if self._top >= INF or self._bottom < MINUS_INF:
            return reference.INVALID
        return reference.EMPTY if self._top == MINUS_INF else reference.OK

    # ---- what a cut keeps

    def count(self, cut: int) -> int:
        """Count the tokens that a cut keeps."""
        if cut >= ALL and self._bottom > MINUS_INF:
            return len(self.bits)
        return int(count_to(self.bits, self.best, parts_of(cut)))

    def mass(self, cut: int, law: Law) -> Any:
        """W of the tokens that a cut keeps."""
        if self._weighed != (cut, law):
            self._total = int(weigh_to(self.bits, self.best, parts_of(cut), law, self._running))
            self._weighed = cut, law
        return self._total

    def masses(self, keys: NDArray[np.int64], law: Law) -> NDArray[Any]:
        """Masses of the tokens that have these keys."""
        return masses_of(keys, law)

    def write_powers(self, law: Law, out: NDArray[np.float32]) -> Any:
        """Write 2**y of each token; return the row's mass. `out` may be the row."""
        return write_powers(self.bits, law, out)

    def draw(self, cut: int, law: Law, place: Any, tokens: NDArray[np.int64]) -> None:
        """Draw from what a cut keeps, as `jit.draws` says."""
        self.mass(cut, law)
        draw(self.bits, self._running, parts_of(cut), law, place, tokens)

    def keys(self, cut: int) -> NDArray[np.int64]:
        """Keys of the tokens that a cut keeps, in rule 3's order."""
        return self._list(cut, len(self.bits))

    def _list(self, cut: int, most: int) -> NDArray[np.int64]:
        """Keys in rule 3's order; none where they might be more than `most`."""
        parts = parts_of(cut)
        room = reaching(self.best, np.int32(parts[0])) * BLOCK
        keys = np.empty(min(room, most), np.int64)
        kept: NDArray[np.int64] = keys[: max(0, list_to(self.bits, self.best, parts, keys))]
        kept.sort()
        return kept

    def first(self, count: int) -> NDArray[np.int64]:
        """Keys of the first tokens, those of -inf last and by token; `count` is at most V."""
        if count == 0:
            return _NO_KEYS
        keys = self.keys(self.nth(count))[:count]
        if len(keys) == count:
            return keys
        # A row that is written meanwhile may have too few: then these are the rest.
        first = key_of(MINUS_INF, 0) | np.arange(count)
        first[: len(keys)] = keys
        banned = np.flatnonzero(self.bits.view(np.float32) == -np.inf)[: count - len(keys)]
        first[len(keys) : len(keys) + len(banned)] = key_of(MINUS_INF, 0) | banned
        return first

    def key_of_token(self, token: int) -> int:
        """Key of a token."""
        return key_of(order_of(self.bits[token]), token)

    # ---- the n-th token

    def _head_of(self, count: int) -> NDArray[np.int64]:
        """Keys of the first tokens in order, `count` or more; fewer where these are not found soon.

        As many blocks hold as many of them, unless few blocks hold most or many tokens are equal.
        """
        if len(self._head) < count <= len(self.best):
            bound = max(nth_best(self.best, count), LOWEST)
            self._head = self._list(key_of(bound), 16 * count + 16 * BLOCK)
            self._head_law = None
        return self._head

    def _head_running(self, law: Law) -> NDArray[np.int64]:
        """Running mass of the head."""
        if self._head_law != law:
            self._head_masses = masses_of(self._head, law).cumsum()
            self._head_law = law
        return self._head_masses

    def nth(self, n: int) -> int:
        """Cut that keeps the first n tokens, or all where there are fewer."""
        if n == 1:
            return key_of(self._top, nth_of_order(self.bits, self.best, self._top, 1))
        head = self._head_of(n)
        if n <= len(head):
            return int(head[n - 1])
        if n >= self.count(ALL):
            return ALL
        return key_of(*select(self.bits, self.best, False, n, (self.top, np.float32(1))))

    # ---- the stages

    def nucleus(self, cut: int, law: Law, top_p: float) -> int:
        """Cut of top_p, a float32 below 1, on what a cut has left."""
        count = self._kept_of_head(cut)
        total = int(self._head_running(law)[count - 1]) if count else self.mass(cut, law)
        share = max(0, int(top_p * 2.0**31) - 2**10)
        return self._reaching(law, max(1, -((-share * total) >> 31)))

    def _kept_of_head(self, cut: int) -> int:
        """Count what a cut keeps, if all of it is in the head; else find a head, and 0."""
        count = int(self._head.searchsorted(cut, "right"))
        if count < len(self._head) or (count and cut == self._head[-1]):
            return count
        self._head_of(min(_FIRST, len(self.best)))
        return 0

    def _reaching_in_head(self, law: Law, need: int) -> int | None:
        place = int(self._head_running(law).searchsorted(need))
        return int(self._head[place]) if place < len(self._head) else None

    def _reaching(self, law: Law, need: int) -> int:
        """Cut whose integer mass is the first to reach `need`, which the row's must do."""
        found = self._reaching_in_head(law, need)
        return key_of(*select(self.bits, self.best, True, need, law)) if found is None else found

    def above(self, law: Law, min_p: float) -> int:
        """Cut of min_p."""
        threshold = _threshold_of(min_p)
        if threshold is None:
            return ALL
        return key_of(lowest_order(np.float32(threshold), self._top, law))

    def cut(self, settings: RowParams) -> tuple[int, Law]:
        """Let the stages act; return the cut that they leave, and the law of the masses."""
        cut, law = ALL, (self.top, scale_of(1.0))
        for op, value in zip(settings.ops, settings.values, strict=False):
            if op == Op.SCALE:
                law = self.top, scale_of(value)
                continue
            found = self._filter(op, value, cut, law)
            if found < cut and settings.min_keep > 1:
                found = max(found, self.nth(settings.min_keep))
            cut = min(cut, found)
        return cut, law

    def _filter(self, op: int, value: float, cut: int, law: Law) -> int:
        if op == Op.COUNT:
            return self.nth(int(value)) if value > 0 else ALL
        if op == Op.THRESHOLD:
            return self.above(law, value)
        share = float(np.float32(value))
        return ALL if share >= 1 else self.nucleus(cut, law, share)
