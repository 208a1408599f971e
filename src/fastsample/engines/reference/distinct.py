"""Section 6 of the rule: n distinct tokens of one race, in the order of their first arrivals."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .draw import AFTER_RACE, draw, uniform
from .race import FIRST_LOOK, LIMIT, Place, Race, head, tail


def draw_distinct(race: Race, place: Place, n: int) -> list[int]:
    """The first n tokens without replacement; all that can be drawn where they are fewer.

    Examples
    --------
    >>> race = Race(np.array([3, 5, 6]), np.uint64([2**40, 2**39, 2**38]), v=3, q=None)
    >>> draw_distinct(race, Place(seed=7, position=0, stream=0), 2)
    [3, 5]
    """
    tokens = arrived(race, place, n)
    left = race.without(*tokens)
    while len(tokens) < n and len(left.tokens):
        u = uniform(*place, AFTER_RACE + 256 * len(tokens))
        tokens.append(draw(left.tokens, left.masses, u))
        left = left.without(tokens[-1])
    return tokens


def arrived(race: Race, place: Place, n: int) -> list[int]:
    """The first n distinct tokens that arrive; all that arrive where they are fewer."""
    by_clock = head(race, place)
    if race.q is None:
        # Of equal times the first in the list, which is the lower token.
        return _first_distinct(by_clock.tokens[by_clock.times.argsort(kind="stable")].tolist(), n)
    count = min(FIRST_LOOK, LIMIT)
    while True:
        by_tail = tail(race, place, count)
        counts, in_time = by_tail.counting, by_clock.times < by_tail.times[-1]
        times = np.concatenate([by_tail.times[counts], by_clock.times[in_time]])
        tokens = np.concatenate([by_tail.tokens[counts], by_clock.tokens[in_time]])
        # Of equal times the tail's, in its order, and then the lower token: as they are listed.
        found = _first_distinct(tokens[times.argsort(kind="stable")].tolist(), n)
        if len(found) == n or count == LIMIT:
            return found
        count = min(4 * count, LIMIT)


def _first_distinct(tokens: Iterable[int], n: int) -> list[int]:
    return list(dict.fromkeys(tokens))[:n]
