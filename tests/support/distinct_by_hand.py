"""Section 6 a second time, "Without replacement", in Python's integers and floats.

Written from the text of docs/rule.md and sharing no code with the package: see `race_by_hand`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from tests.support.race_by_hand import (
    ORDER,
    Kept,
    clock_of,
    exponent,
    inverse,
    kept_set,
    level,
    mass_of,
    philox,
)

LIMIT = 32768
Numbers = tuple[int, int, int]
"""Seed, position and stream."""


def distinct(
    row: Sequence[float],
    place: Numbers,
    n: int,
    stages: Sequence[str] = ORDER,
    limit: int = LIMIT,
    **settings: Any,
) -> tuple[list[int], int]:
    """The tokens of one row, adjusted, with every logit normal or 0; and how many have arrived."""
    kept = kept_set(row, settings, stages)
    m, temperature = max(row[t] for t in kept.tokens), kept.temperature
    masses = {t: mass_of(row[t], m, temperature) for t in kept.tokens}
    arriving = (
        listed(masses, place) if kept.is_listed else arrivals(row, kept, masses, place, limit)
    )
    tokens: list[int] = []
    for token in arriving:
        if token not in tokens:
            tokens.append(token)
        if len(tokens) == n:
            break
    arrived = len(tokens)
    while len(tokens) < n and (left := {t: a for t, a in masses.items() if a and t not in tokens}):
        tokens.append(inverse(left, place, 3, len(tokens)))
    return tokens, arrived


def listed(masses: dict[int, int], place: Numbers) -> list[int]:
    times = [(clock_of(*philox(*place, 1, t)[:2]) / a, t) for t, a in masses.items() if a > 0]
    return [token for _, token in sorted(times)]


def arrivals(
    row: Sequence[float], kept: Kept, masses: dict[int, int], place: Numbers, limit: int
) -> Iterator[int]:
    """Tokens in the order of their arrivals, each as often as it arrives."""
    v = next(v for v in range(1, 23) if len(row) <= 2**v)
    least = max(kept.thresholds, default=-math.inf)
    m, temperature = max(row[t] for t in kept.tokens), kept.temperature
    q = level((mass_of(x, m, temperature) for x in row if exponent(x, m, temperature) >= least), v)
    head = sorted(
        (clock_of(*philox(*place, 1, t)[:2]) / (a - 2**q), t) for t, a in masses.items() if a > 2**q
    )
    steps = 0
    for j in range(limit):
        w0, w1, w2, w3 = philox(*place, 2, j)
        steps += round(clock_of(w0, w1) * 2.0**32)  # half to even; the product is exact
        now = steps * 2.0**-32 * 2.0 ** -(v + q)
        while head and head[0][0] < now:
            yield head.pop(0)[1]
        point = w2 + 2**32 * w3
        token, height = point >> 64 - v, (point >> 64 - v - q) % 2**q
        if masses.get(token, 0) > height:
            yield token
