"""A race whose row lies in two shards, merged as section 6 of the rule says, without rows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fastsample.engines import reference
from fastsample.engines.reference.race import vocabulary_bits


class Shard(NamedTuple):
    """What one shard keeps: tokens in the numbers of the entire row, and their masses."""

    tokens: np.ndarray
    masses: np.ndarray

    def heavy(self) -> np.ndarray:
        """The number of its tokens with a mass of 2^q or more, for each q."""
        return np.array([np.count_nonzero(self.masses >= np.uint64(1 << q)) for q in range(48)])


def make_shard(logits: np.ndarray, first: int, largest: float, **filters: Any) -> Shard:
    """The shard of some columns, from `first` on; its masses are relative to the largest logit.

    The filters are a temperature and thresholds, which look at the largest logit alone.
    """
    row = np.append(logits, np.float32(largest))  # left out afterwards
    tokens, masses = reference.by_token(reference.trace(row, **filters))
    inside = tokens < len(logits)
    return Shard(tokens[inside] + first, masses[inside])


def first_arrival(row: np.ndarray, at: int, place: reference.Place, **filters: Any) -> Any:
    """The first arrival of a race that is not listed, from its columns below `at` and the others.

    Exchanged are the largest logits, the numbers of tokens by level, and one arrival each.
    """
    parts = (row[:at], 0), (row[at:], at)
    largest = max(float(logits.max()) for logits, _ in parts)
    shards = [make_shard(logits, first, largest, **filters) for logits, first in parts]
    v, heavy = vocabulary_bits(len(row)), sum(shard.heavy() for shard in shards)
    most = math.isqrt(2**v >> 5)
    q = next(q for q in range(max(0, 47 - v), 48) if heavy[q] <= most)
    found = [reference.decide(reference.Race(*shard, v, q), place) for shard in shards]
    arrivals = [one for one in found if one is not None]
    # Of equal times the tail's, and then the lower token.
    return min(arrivals, key=lambda one: (one.time, one.height < 0, one.token), default=None)
