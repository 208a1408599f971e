"""Section 6 of the rule: how far log-masses may move before another token is drawn."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import race as _race
from .filters import Trace
from .mass import ln
from .ordinal import order
from .race import Arrival, Place, Race, decide, head, tail
from .rows import read, to_float32


class Decision(NamedTuple):
    """The arrivals that decided a draw.

    Attributes
    ----------
    winner : Arrival or None
        None where the inverse method drew.
    runner_up : Arrival or None
        The first arrival of another token; None where none came before the end of the race.
    margin : float
    """

    winner: Arrival | None
    runner_up: Arrival | None
    margin: float


def explain(race: Race, place: Place) -> Decision:
    """Find the arrivals that decided a draw from a kept set of two tokens or more, and its margin.

    Examples
    --------
    >>> race = Race(np.array([3, 5]), np.uint64([2**40, 2**39]), v=3, q=None)
    >>> seen = explain(race, Place(seed=7, position=0, stream=0))
    >>> seen.winner.token, seen.runner_up.token, round(seen.margin, 3)
    (3, 5, 1.376)
    """
    winner = decide(race, place)
    if winner is None:
        return Decision(None, None, math.nan)
    runner_up = decide(race.without(winner.token), place)
    ratio = _least_ratio(race, place, winner, _end(race, place, runner_up))
    margin = math.inf if ratio == math.inf else float(ln(max(ratio, 1.0)))
    return Decision(winner, runner_up, margin)


def margin(
    row: NDArray[np.float32], seen: Trace, race: Race | None, place: Place, temperature: float
) -> float:
    """Margin of one draw from a row after section 2; `race` is None for the inverse method.

    Examples
    --------
    >>> from fastsample.engines.reference import prepare, trace
    >>> row, place = np.array([1, 3, 2.5], dtype=np.float32), Place(7, 0, 0)
    >>> seen = trace(row)
    >>> margin(row, seen, None, place, 1.0), margin(row, seen, None, place, 0.0)
    (nan, 0.5)
    >>> round(margin(row, seen, prepare(row, seen, listed=True), place, 1.0), 3)
    0.28
    """
    if to_float32(temperature) == 0.0:
        return gap_of_top_two(row)
    if seen.kept == 1:
        return math.inf
    return math.nan if race is None else explain(race, place).margin


def gap_of_top_two(row: NDArray[np.float32]) -> float:
    """Margin at temperature 0: the gap of the top two logits, infinity for one above -inf.

    Examples
    --------
    >>> gap_of_top_two(np.array([1, 3, 2.5], dtype=np.float32))
    0.5
    """
    ranked = order(row)[:2]
    if len(ranked) < 2:
        return math.inf
    first, second = read(row)[ranked].astype(np.float64)
    return float(first - second)


def _end(race: Race, place: Place, runner_up: Arrival | None) -> float:
    """t2: the time of the runner-up, or where the race ends without one."""
    if runner_up is not None:
        return runner_up.time
    return math.inf if race.q is None else float(tail(race, place, _race.LIMIT).times[-1])


def _least_ratio(race: Race, place: Place, winner: Arrival, t2: float) -> float:
    """The least factor by which a mass may change before the draw does."""
    t1 = winner.time
    if race.q is None:
        return t2 / t1
    with np.errstate(divide="ignore"):
        arrived = head(race, place)
        is_winner = arrived.tokens == winner.token
        floor, mass = float(race.floor), arrived.masses.astype(np.float64)
        ratios = [_of_winner(race, winner, arrived.clocks[is_winner], t2)]
        ratios += ((floor + arrived.clocks / t1) / mass)[~is_winner].tolist()
    return min([*ratios, *_of_misses(race, place, winner)])


def _of_winner(race: Race, winner: Arrival, clocks: NDArray[np.float64], t2: float) -> float:
    mass = float(race.masses[race.tokens == winner.token][0])
    if winner.height == 0:
        return math.inf
    if winner.height > 0:
        return mass / winner.height
    return mass / (race.floor + float(clocks[0]) / t2)


def _of_misses(race: Race, place: Place, winner: Arrival) -> list[float]:
    """Height by mass of the arrivals before the winner's that lay above their token's mass."""
    count = 128
    arrived = tail(race, place, count)
    while arrived.times[-1] <= winner.time and count < _race.LIMIT:
        count = min(4 * count, _race.LIMIT)
        arrived = tail(race, place, count)
    if winner.height < 0:
        before = arrived.times <= winner.time
    else:
        before = np.arange(count) < arrived.counting[0]
    missed = before & (arrived.masses > 0) & (arrived.masses <= arrived.heights)
    ratios: list[float] = (arrived.heights[missed] / arrived.masses[missed]).tolist()
    return ratios
