"""Section 5 of the rule: the stages of a row, from all its tokens to the interval that is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.params.ops import Op
from fastsample.params.table import BY_NAME, STAGES

from .mass import LOG2_E, TOP_MASS_BITS, ln, masses, scale
from .ordinal import order
from .reductions import REDUCTIONS, Reduction, nucleus_target
from .rows import OK, is_minus_inf, read, require_rounding_to_nearest, status, to_float32

__all__ = ["STAGES", "Trace", "by_token", "trace"]

Interval = tuple[int, int]
"""The places of the first token and past the last one, in section 3's order."""


@dataclass(frozen=True)
class _Kept:
    """The tokens kept so far, in section 3's order, and how MASS adds their masses.

    The temperature is 1 before its stage; `min_keep` is at most the number of tokens.
    """

    tokens: NDArray[np.int64]
    logits: NDArray[np.float32]
    temperature: float
    min_keep: int
    reduction: Reduction

    @cached_property
    def _masses(self) -> tuple[NDArray[np.float32], NDArray[np.uint64]]:
        return masses(self.logits, self.logits[0], self.temperature)

    @property
    def y(self) -> NDArray[np.float32]:
        return self._masses[0]

    @property
    def mass(self) -> NDArray[np.uint64]:
        return self._masses[1]

    @property
    def total(self) -> int:
        return int(self.mass.sum(dtype=np.uint64))

    def prefix(self, count: int) -> Interval:
        """The first tokens, `min_keep` or more."""
        return 0, min(max(count, self.min_keep), len(self.tokens))

    @property
    def everything(self) -> Interval:
        return 0, len(self.tokens)

    def reaching(self, t: np.float32) -> Interval:
        """The tokens whose y reaches a threshold: y never rises along the order."""
        return self.prefix(int(np.count_nonzero(self.y >= t)))


# ---------------------------------------------------------------- COUNT and MASS


def _keep_count(kept: _Kept, v: float) -> Interval:
    return kept.everything if v <= 0 else kept.prefix(int(v))


def _keep_mass(kept: _Kept, v: float) -> Interval:
    if to_float32(v) == 1.0:
        return kept.everything
    how = kept.reduction
    _, mass = how.masses(kept.logits, kept.logits[0], kept.temperature)
    return kept.prefix(how.nucleus(kept.tokens, mass, v))


# ---------------------------------------------------------------- the THRESHOLD ops

_SLACK = 2.0**-19
_HIGHEST = np.float32(-(2.0**-36))


def _log2(v: float) -> float:
    return float(ln(v)) * LOG2_E


def _log2_share(v: float) -> float | None:
    """a of section 5, or None where v keeps every token."""
    v = to_float32(v)
    return None if v <= 2.0**-60 else _log2(v) - _SLACK


def _log2_total(total: int) -> float:
    """b of section 5."""
    return _log2(float(total)) - TOP_MASS_BITS


def _bounded(t: float) -> np.float32:
    with np.errstate(all="ignore"):
        return min(np.float32(t), _HIGHEST)


def _threshold(kept: _Kept, v: float, b: int = 0) -> np.float32 | None:
    """t of a + b, or None where v keeps every token; `b` is how often b of section 5 is added."""
    a = _log2_share(v)
    if a is None:
        return None
    return _bounded(a + b * _log2_total(kept.total) if b else a)


def deviation(logits: NDArray[np.float32]) -> float:
    """Standard deviation of logits: sigma of section 5.

    Examples
    --------
    >>> deviation(np.array([1000, 1, -1], dtype=np.float32)) < 512
    True
    """
    with np.errstate(all="ignore"):
        steps = (logits.max() - logits) * np.float32(2.0**11)
    d = np.rint(np.minimum(steps, np.float32(2**20 - 1))).astype(np.int64)
    mean = float(d.sum()) / len(d)
    variance = max(0.0, float((d * d).sum()) / len(d) - mean * mean)
    return math.sqrt(variance) * 2.0**-11


def _threshold_of_deviation(kept: _Kept, v: float) -> np.float32 | None:
    v = to_float32(v)
    if v == 0.0:
        return None
    return _bounded(-(v * deviation(kept.logits)) * float(scale(kept.temperature)))


_THRESHOLDS: dict[Op, Callable[[_Kept, float], np.float32 | None]] = {
    Op.THRESHOLD: _threshold,
    Op.THRESHOLD_OF_TOTAL: partial(_threshold, b=1),
    Op.THRESHOLD_OF_TOP_SHARE: partial(_threshold, b=-1),
    Op.THRESHOLD_OF_DEVIATION: _threshold_of_deviation,
}
"""The least y that an op keeps; None where it keeps every token."""


# ---------------------------------------------------------------- BAND


def center(y: NDArray[np.float32], mass: NDArray[Any]) -> np.float32:
    """Mean of y under the probabilities: c of section 5.

    Examples
    --------
    >>> y = np.array([0, -1], dtype=np.float32)
    >>> float(center(y, np.array([2**40, 2**40], dtype=np.uint64)))
    -0.5
    """
    k = np.rint(-y * np.float32(2.0**16)).astype(np.int64)
    mass = mass.astype(np.int64)
    e1, e0 = int(((mass >> 19) * k).sum()), int(((mass & (2**19 - 1)) * k).sum())
    mean = (float(e1) * 2.0**19 + float(e0)) / (float(int(mass.sum())) * 2.0**16)
    return _bounded(-mean)


def _keep_band(kept: _Kept, v: float) -> Interval:
    if to_float32(v) == 1.0:
        return kept.everything
    distance = np.abs(kept.y - center(kept.y, kept.mass))
    nearest = np.argsort(distance, kind="stable")
    running = np.cumsum(kept.mass[nearest], dtype=np.uint64)
    reached = int(np.searchsorted(running, np.uint64(nucleus_target(v, kept.total))))
    farthest = distance[nearest[max(reached, kept.min_keep - 1)]]
    # y never rises along the order, so the tokens within a distance are an interval.
    inside = np.flatnonzero(distance <= farthest)
    return int(inside[0]), int(inside[-1]) + 1


# ---------------------------------------------------------------- all stages of a row

_FILTERS: dict[Op, Callable[[_Kept, float], Interval]] = {
    Op.COUNT: _keep_count,
    Op.MASS: _keep_mass,
    Op.BAND: _keep_band,
}


def _keep(op: Op, kept: _Kept, v: float) -> tuple[Interval, float]:
    """What an op keeps, and the threshold by which it does: -inf without one."""
    if op not in _THRESHOLDS:
        return _FILTERS[op](kept, v), -math.inf
    t = _THRESHOLDS[op](kept, v)
    return (kept.everything, -math.inf) if t is None else (kept.reaching(t), float(t))


@dataclass(frozen=True)
class Trace:
    """What the stages did to one row.

    Attributes
    ----------
    order : int64 array of shape (V,)
        All tokens in section 3's order. What is kept is an interval of it.
    mass : uint64 array of shape (V,), float32 in the reductions "fixed" and "fast"
        Masses in this order, 0 for tokens that are not kept. The first token that is kept has
        2**40, or 1 in these two.
    stages : tuple of (str, int, int)
        The name of each stage, and the interval that is kept after it: the place in the order of
        its first token, and the place past its last one. "mask" drops the logits of -inf. At
        temperature 0 "temperature" keeps one token and is the last.
    first, end : int
        The interval that is kept in the end.
    total : int, or float where masses are
        W, the kept set's total mass.
    temperature : float
        That in force in the end.
    least_y : float
        The largest of the thresholds t of section 5 that acted, -inf without one.
    """

    order: NDArray[np.int64]
    mass: NDArray[Any]
    stages: tuple[tuple[str, int, int], ...]
    first: int
    end: int
    total: Any
    temperature: float
    least_y: float

    @property
    def kept(self) -> int:
        """How many tokens are kept."""
        return self.end - self.first

    @property
    def tokens(self) -> NDArray[np.int64]:
        """The tokens that are kept, in section 3's order."""
        return self.order[self.first : self.end]

    @property
    def masses(self) -> NDArray[Any]:
        """Their masses."""
        return self.mass[self.first : self.end]


def trace(
    row: NDArray[np.float32],
    *,
    min_keep: int = 1,
    stages: Sequence[str] = STAGES,
    reduction: str = "exact",
    **values: float,
) -> Trace:
    """Run the stages on one row and return what each of them kept.

    Parameters
    ----------
    row : float32 array of shape (V,)
        A row after section 2: see `adjust`.
    min_keep : int
        Every filter keeps at least `min_keep` tokens, or all where it gets fewer. At least 1.
    stages : sequence of str
        The stages in their order, each at most once. In those before "temperature" the temperature
        is 1. A filter that is left out is off; with no "temperature" here, it is to be 1.
    reduction : {"exact", "fixed", "fast"}
        How masses are added: section 8.
    **values
        The values of stages by name, as `fastsample.SamplingParams` has them; the defaults of the
        table for those left out. A temperature of 0 keeps the first token alone and skips the
        filters.

    Returns
    -------
    Trace

    Raises
    ------
    TypeError
        A value for a name that is no stage.
    ValueError
        When nothing can be drawn from the row.
    RuntimeError
        When the processor does not round to nearest.

    Examples
    --------
    >>> row = np.log(np.array([0.5, 0.2, 0.1, 0.08, 0.04, 0.01, 0.07], dtype=np.float32))
    >>> trace(row, top_p=0.8, stages=("temperature", "top_p")).stages
    (('mask', 0, 7), ('temperature', 0, 7), ('top_p', 0, 3))
    >>> trace(row, typical_p=0.15, stages=("typical_p",)).stages
    (('mask', 0, 7), ('typical_p', 1, 2))
    """
    require_rounding_to_nearest()
    if status(row) != OK:
        raise ValueError("`row` must hold a logit above -inf, and neither NaN nor +inf")
    unknown = sorted(values.keys() - set(STAGES))
    if unknown:
        raise TypeError(f"`trace` has no stage {unknown[0]!r} (they are {STAGES})")
    numbers = {name: BY_NAME[name].default for name in STAGES} | values
    logits, how = read(row), REDUCTIONS[reduction]
    ranked = order(logits)
    ordered = logits[ranked]
    first, end, temperature = 0, int(np.count_nonzero(~is_minus_inf(logits))), 1.0
    least_y = -math.inf
    passed = [("mask", first, end)]
    if to_float32(numbers["temperature"]) == 0.0:
        end, stages = 1, ()
        passed.append(("temperature", first, end))
    for stage in stages:
        op, v = BY_NAME[stage].op, numbers[stage]
        if op is Op.SCALE:
            temperature = v
        elif op is not None:
            least = min(min_keep, end - first)
            kept = _Kept(ranked[first:end], ordered[first:end], temperature, least, how)
            (start, stop), t = _keep(op, kept, v)
            first, end, least_y = first + start, first + stop, max(least_y, t)
        passed.append((stage, first, end))
    _, masses_kept = how.masses(ordered[first:end], ordered[first], temperature)
    mass = np.zeros(len(row), masses_kept.dtype)
    mass[first:end] = masses_kept
    total = how.total(ranked[first:end], masses_kept)
    return Trace(ranked, mass, tuple(passed), first, end, total, temperature, least_y)


def by_token(seen: Trace) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Tokens and masses of a `Trace`'s kept set, in ascending token.

    Examples
    --------
    >>> by_token(trace(np.array([1, 3, 1], dtype=np.float32), top_k=2))[0].tolist()
    [0, 1]
    """
    ascending = np.argsort(seen.tokens)
    return seen.tokens[ascending], seen.masses[ascending]
