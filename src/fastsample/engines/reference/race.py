"""Section 6 of the rule: the race, in which the kept token that arrives first is drawn.

A `Race` is what all draws of a row share, `decide` the race of one draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsample.params.ops import Op
from fastsample.params.table import BY_NAME, STAGES

from .clocks import clock, in_steps
from .draw import AFTER_RACE, ARRIVAL, CLOCK, draw, uniform, words
from .filters import Trace, by_token
from .mass import masses
from .rows import read, to_float32

LIMIT = 32768
"""Arrivals of the tail that are looked at."""

LEVEL_BITS = 47
LISTED_COUNT, LISTED_SHARE = 128, 0.5
"""The least top_k and top_p that act and do not list a row."""

NO_EFFECT = 2.0**-60
"""The largest share at which the ops THRESHOLD, of a total and of a top share keep all."""

FIRST_LOOK = 128
"""So many arrivals are looked at first."""

# ---------------------------------------------------------------- 1: listed or not


def _acts(op: Op, v: float, size: int) -> bool:
    """Whether a filter acts on rows of so many tokens; v is a float32."""
    if op is Op.COUNT:
        return 0 < v < size
    if op in (Op.MASS, Op.BAND):
        return v != 1.0
    return v > (0.0 if op is Op.THRESHOLD_OF_DEVIATION else NO_EFFECT)


def is_listed(
    size: int, *, stages: Sequence[str] = STAGES, min_keep: int = 1, **values: float
) -> bool:
    """Whether every kept token of a row of `size` tokens gets a clock of its own: step 1.

    Stages and values are those of `trace`; `min_keep` changes nothing.

    Examples
    --------
    >>> is_listed(32000, temperature=0.8, top_k=50), is_listed(32000, temperature=0.8, top_p=0.9)
    (True, False)
    >>> is_listed(32000, top_p=0.9, temperature=0.8, stages=("top_p", "temperature"))
    True
    """
    is_filtered = False
    for stage in stages:
        parameter = BY_NAME[stage]
        op, v = Op(parameter.op or 0), to_float32(values.get(stage, parameter.default))
        if op is Op.SCALE:
            if is_filtered and v != 1.0:
                return True
        elif _acts(op, v, size):
            is_short = (op is Op.COUNT and v < LISTED_COUNT) or (op is Op.MASS and v < LISTED_SHARE)
            if is_short or op is Op.BAND:
                return True
            is_filtered = True
    return False


# ---------------------------------------------------------------- 2: the level


def vocabulary_bits(size: int) -> int:
    """The smallest v from 1 on with size <= 2^v.

    Examples
    --------
    >>> [vocabulary_bits(size) for size in (1, 2, 3, 4, 5)]
    [1, 1, 2, 2, 3]
    """
    return max(1, (size - 1).bit_length())


def level(v: int, heavy: NDArray[np.uint64]) -> int:
    """q of a row of up to 2^v tokens; `heavy` are the masses that count: those of C.

    Examples
    --------
    >>> level(10, np.uint64([2**40] * 5)), level(10, np.uint64([2**40] * 6))
    (37, 41)
    """
    most = math.isqrt(2**v >> 5)
    q = max(0, LEVEL_BITS - v)
    while np.count_nonzero(heavy >= np.uint64(2**q)) > most:
        q += 1
    return q


# ---------------------------------------------------------------- what all draws of a row share


class Race(NamedTuple):
    """A row that is ready for draws.

    Attributes
    ----------
    tokens : int64 array of shape (N,)
        The kept tokens with a mass above 0, ascending.
    masses : uint64 array of shape (N,)
    v : int
    q : int or None
        None where the row is listed.
    """

    tokens: NDArray[np.int64]
    masses: NDArray[np.uint64]
    v: int
    q: int | None

    @property
    def floor(self) -> int:
        """The mass up to which a token arrives by the tail, and above it by its clock."""
        return 0 if self.q is None else 1 << self.q

    def without(self, *tokens: int) -> Race:
        """The race of all tokens but some, at the same level."""
        others = ~np.isin(self.tokens, tokens)
        return self._replace(tokens=self.tokens[others], masses=self.masses[others])


def prepare(row: NDArray[np.float32], seen: Trace, listed: bool) -> Race:
    """Make the race of a row, from what `trace` returned for it in the reduction "exact".

    Examples
    --------
    >>> from fastsample.engines.reference import trace
    >>> row = np.array([0, 3, -1], dtype=np.float32)
    >>> prepare(row, trace(row, top_k=2), listed=True).tokens.tolist()
    [0, 1]
    >>> prepare(row, trace(row), listed=False).q
    45
    """
    tokens, mass = by_token(seen)
    can_arrive = mass > 0
    v, q = vocabulary_bits(len(row)), None
    if not listed:
        logits = read(row)
        y, all_masses = masses(logits, logits[seen.order[seen.first]], seen.temperature)
        q = level(v, all_masses[y >= seen.least_y])
    return Race(tokens[can_arrive], mass[can_arrive], v, q)


# ---------------------------------------------------------------- 3: the head, and listed tokens


class Place(NamedTuple):
    """What names the random words of a draw."""

    seed: int
    position: int
    stream: int


class Arrival(NamedTuple):
    """One arrival of a token; height -1 where it came by its clock."""

    token: int
    time: float
    height: int


class Head(NamedTuple):
    """The tokens with a clock: all tokens of a listed row, and their times."""

    tokens: NDArray[np.int64]
    masses: NDArray[np.uint64]
    clocks: NDArray[np.float64]
    times: NDArray[np.float64]


def head(race: Race, place: Place) -> Head:
    """The tokens that arrive by their clock, ascending.

    Examples
    --------
    >>> race = Race(np.array([3, 5]), np.uint64([2**40, 2**41]), v=3, q=None)
    >>> head(race, Place(seed=7, position=0, stream=0)).tokens.tolist()
    [3, 5]
    """
    above = race.masses > np.uint64(race.floor)
    tokens, mass = race.tokens[above], race.masses[above]
    low, _ = words(*place, CLOCK, tokens.astype(np.uint64))
    clocks = clock(low)
    times = clocks / (mass - np.uint64(race.floor)).astype(np.float64)
    return Head(tokens, mass, clocks, times)


def _first_of_head(race: Race, place: Place) -> Arrival | None:
    arrived = head(race, place)
    if not len(arrived.tokens):
        return None
    at = int(np.argmin(arrived.times))  # of equal times the first, which is the lower token
    return Arrival(int(arrived.tokens[at]), float(arrived.times[at]), -1)


# ---------------------------------------------------------------- 4: the tail


class Tail(NamedTuple):
    """Arrivals of the tail in their order; those at a token that cannot be drawn have mass 0."""

    tokens: NDArray[np.int64]
    masses: NDArray[np.uint64]
    heights: NDArray[np.uint64]
    times: NDArray[np.float64]

    @property
    def counting(self) -> NDArray[np.int64]:
        """The numbers of the arrivals that count."""
        return np.flatnonzero(self.masses > self.heights)


def tail(race: Race, place: Place, count: int) -> Tail:
    """The first `count` arrivals of the tail of a row that is not listed.

    Examples
    --------
    >>> race = Race(np.array([0, 1]), np.uint64([2**40, 2**38]), v=1, q=46)
    >>> arrivals = tail(race, Place(seed=7, position=0, stream=0), 1000)
    >>> arrivals.tokens[:9].tolist(), arrivals.counting.tolist()
    ([0, 1, 1, 0, 0, 1, 0, 0, 1], [114, 517, 565, 597, 654, 845])
    """
    assert race.q is not None
    k, point = words(*place, ARRIVAL, np.arange(count, dtype=np.uint64))
    tokens = (point >> np.uint64(64 - race.v)).astype(np.int64)
    below = point >> np.uint64(64 - race.v - race.q)
    heights = below & np.uint64(race.floor - 1)
    times = np.cumsum(in_steps(clock(k))) * 2.0 ** -(race.v + race.q)
    return Tail(tokens, _masses_at(race, tokens), heights, times)


def _masses_at(race: Race, tokens: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Masses of some tokens in a race; 0 for those that are not in it."""
    at = np.searchsorted(race.tokens, tokens)
    known = np.append(race.tokens, -1)
    mass = np.append(race.masses, np.uint64(0))
    return np.where(known[at] == tokens, mass[at], np.uint64(0))


# ---------------------------------------------------------------- 5: the decision


def decide(race: Race, place: Place) -> Arrival | None:
    """The first arrival of a race; None where the limit of arrivals leaves it open.

    Examples
    --------
    >>> race = Race(np.array([3, 5]), np.uint64([2**40, 2**39]), v=3, q=None)
    >>> decide(race, Place(seed=7, position=0, stream=0)).token
    3
    """
    best = _first_of_head(race, place)
    if race.q is None:
        return best
    h = math.inf if best is None else best.time
    count = min(FIRST_LOOK, LIMIT)
    while True:
        arrived = tail(race, place, count)
        for j in arrived.counting[:1].tolist():
            if arrived.times[j] <= h:
                token, height = int(arrived.tokens[j]), int(arrived.heights[j])
                return Arrival(token, float(arrived.times[j]), height)
        if h < arrived.times[-1]:
            return best
        if count == LIMIT:
            return None
        count = min(4 * count, LIMIT)


def draw_by_race(race: Race, place: Place) -> int:
    """Token of one draw, by the inverse method where the race is left open.

    Examples
    --------
    >>> race = Race(np.array([3, 5]), np.uint64([2**40, 2**39]), v=3, q=None)
    >>> draw_by_race(race, Place(seed=7, position=0, stream=0))
    3
    """
    first = decide(race, place)
    if first is None:
        return draw(race.tokens, race.masses, uniform(*place, AFTER_RACE))
    return first.token
