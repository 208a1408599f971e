"""What differs where nothing is promised: `fast`, and the softmax that people write themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .calls import Answer, Way
from .cases import Case
from .comparison import mismatch, told
from .report import Mismatch, Shown
from .sharding import uniforms

PLAIN = "plain float32 softmax + cumsum (NumPy)"


class Tally:
    """How often a way without a promise draws another token than exact does."""

    def __init__(self, name: str) -> None:
        self._name, self._draws, self._differ, self._errors = name, 0, 0, 0
        self._first: Mismatch | None = None

    def ask(self, case: Case, exact: Answer, draw: Callable[[], NDArray[np.int64]]) -> None:
        """Draw and count; an error is counted as well, and shown."""
        try:
            self.add(case, exact, draw())
        except Exception as error:
            self._errors += 1
            self._remember(case, (0, 0), "error", "an answer", repr(error))

    def add(self, case: Case, exact: Answer, tokens: NDArray[np.int64]) -> None:
        """Count one case; a token below 0 is none."""
        assert exact.tokens is not None
        drawn = tokens >= 0
        differ = drawn & (tokens != exact.tokens)
        self._draws += int(np.count_nonzero(drawn))
        self._differ += int(np.count_nonzero(differ))
        if np.any(differ):
            row, draw = (int(at) for at in np.argwhere(differ)[0])
            sides = (told("token", (one,), row, draw) for one in (exact.tokens, tokens))
            self._remember(case, (row, draw), "token", *sides)

    def _remember(self, case: Case, place: tuple[int, int], *what: str) -> None:
        """Keep the first."""
        if self._first is None:
            reduction = "fast" if self._name != PLAIN else "none"
            self._first = mismatch(case, place, "none", reduction, "", self._name, *what)

    def shown(self) -> Shown:
        """What it comes to."""
        return Shown(self._name, self._draws, self._differ, self._first, self._errors)


def fast_tokens(way: Way, case: Case) -> NDArray[np.int64]:
    """What an engine draws in the mode that promises nothing."""
    return way.draw(case.rows, case.settings, case.draws)


def plain_tokens(case: Case) -> NDArray[np.int64]:
    """What float32 probabilities draw by the same random numbers; -1 where they are not finite.

    Only of plain cases.
    """
    tokens = np.full((len(case.rows), case.draws), -1, np.int64)
    for b, row in enumerate(case.rows):
        with np.errstate(all="ignore"):
            law = plain_law(row, **case.filters_of(b))
        if np.all(np.isfinite(law)):
            numbers = uniforms(**case.place_of(b), count=case.draws)
            shares = np.array([u >> 11 for u in numbers]) * 2.0**-53
            running = np.cumsum(law)
            places = np.searchsorted(running, shares * running[-1], side="right")
            tokens[b] = np.minimum(places, len(law) - 1)
    return tokens


def plain_law(
    row: NDArray[np.float32], temperature: float, top_k: int, top_p: float, min_p: float
) -> NDArray[np.float32]:
    """Probabilities as a sampler in float32 has them: sorted, summed and cut in float32.

    Examples
    --------
    >>> plain_law(np.float32([1.0, 3.0, 2.0]), 1.0, 2, 1.0, 0.0).round(2).tolist()
    [0.0, 0.7300000190734863, 0.27000001072883606]
    """
    law = np.zeros_like(row)
    if temperature == 0:
        law[np.argmax(row)] = 1
        return law
    ranked = np.argsort(-row, kind="stable")[: top_k or None]
    kept = _softmax(row[ranked] / np.float32(temperature))
    below = np.cumsum(kept) - kept < np.float32(top_p)
    below |= top_p == 1
    below &= kept >= np.float32(min_p) * kept[0]
    below[0] = True
    law[ranked[below]] = kept[below] / kept[below].sum()
    return law


def _softmax(logits: NDArray[Any]) -> NDArray[np.float32]:
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum(), dtype=np.float32)
