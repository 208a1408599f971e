"""Section 5: the stages of a row. What is kept is the row up to a cut.

A band that drops the top tokens makes a row of the others, whose top is another; so every stage
sees a row that it keeps a prefix of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fastsample.engines.reference.filters import center, deviation
from fastsample.engines.reference.mass import LOG2_E, TOP_MASS_BITS, ln, scale
from fastsample.engines.reference.reductions import nucleus_target
from fastsample.engines.reference.rows import to_float32
from fastsample.params.ops import Op

from .mass import masses_of
from .ordinal import ALL, key_parts, logits_of
from .row import Row, Scaling

_HIGHEST = np.float32(-(2.0**-36))

scale_of = lru_cache(maxsize=256)(scale)


@dataclass(slots=True)
class Kept:
    """The tokens of a row up to a cut, and the scaling of their masses.

    `threshold` is the cut of the thresholds alone, whatever `min_keep` is.
    """

    row: Row
    cut: int
    scaling: Scaling
    threshold: int = ALL

    def upto(self, cut: int, min_keep: int) -> None:
        """Keep the tokens up to a cut, and at least the first `min_keep`."""
        if cut < self.cut:
            if min_keep > 1:
                cut = max(cut, self.row.nth(min_keep))
            self.cut = min(cut, self.cut)

    @property
    def total(self) -> int:
        """W of section 5."""
        return self.row.total_mass(self.cut, self.scaling)


def _scale(kept: Kept, op: int, v: float, min_keep: int) -> None:
    kept.scaling = kept.row.top, scale_of(v)


def _count(kept: Kept, op: int, v: float, min_keep: int) -> None:
    if v > 0:
        kept.upto(kept.row.nth(int(v)), min_keep)


def _mass(kept: Kept, op: int, v: float, min_keep: int) -> None:
    share = to_float32(v)
    if share < 1:
        kept.upto(kept.row.nucleus(kept.cut, kept.scaling, share), min_keep)


# ---------------------------------------------------------------- thresholds


@lru_cache(maxsize=256)
def _log2_share(v: float) -> float | None:
    """a of section 5; None where v keeps all tokens."""
    v = to_float32(v)
    return None if v <= 2.0**-60 else float(ln(v)) * LOG2_E - 2.0**-19


def _log2_total(kept: Kept) -> float:
    """b of section 5; the total is 0 only where the row has been written since."""
    return float(ln(float(max(1, kept.total)))) * LOG2_E - TOP_MASS_BITS


def _log2_deviation(kept: Kept, v: float) -> float | None:
    v, keys = to_float32(v), kept.row.keys(kept.cut, in_order=False)
    if v == 0 or not len(keys):
        return None
    return -(v * deviation(logits_of(keys))) * float(kept.scaling[1])


@lru_cache(maxsize=256)
def _bounded(t: float) -> np.float32:
    """Threshold of y, which is at least -64; float32 could not hold some lower numbers."""
    return min(np.float32(max(t, -64.0)), _HIGHEST)


def _threshold(kept: Kept, op: int, v: float, min_keep: int) -> None:
    t = _log2_deviation(kept, v) if op == Op.THRESHOLD_OF_DEVIATION else _log2_share(v)
    if t is None:
        return
    if op == Op.THRESHOLD_OF_TOTAL:
        t += _log2_total(kept)
    elif op == Op.THRESHOLD_OF_TOP_SHARE:
        t -= _log2_total(kept)
    cut = kept.row.reaching(_bounded(t), kept.scaling)
    kept.threshold = min(kept.threshold, cut)
    kept.upto(cut, min_keep)


# ---------------------------------------------------------------- bands


def _band(kept: Kept, op: int, v: float, min_keep: int) -> None:
    share = to_float32(v)
    if share == 1:
        return
    keys, (top, scale) = kept.row.keys(kept.cut, in_order=False), kept.scaling
    # NaN, negative masses and none at all are only where the row has been written since.
    mass = masses_of(keys, kept.scaling).clip(0)
    if not mass.any():
        return
    y = np.fmax((logits_of(keys) - top) * scale, np.float32(-64))
    distance = np.abs(y - center(y, mass))
    nearest = np.argsort(distance)
    running = mass[nearest].cumsum()
    reached = running.searchsorted(nucleus_target(share, int(running[-1])))
    last = min(max(int(reached), min_keep - 1), len(keys) - 1)
    inside = keys[distance <= distance[nearest[last]]]
    kept.cut = int(inside.max())
    highest, _ = key_parts(int(inside.min()))
    if highest < kept.row.top_ordinal:
        kept.row = kept.row.without_above(highest)
        kept.scaling = kept.row.top, scale


# ---------------------------------------------------------------- all stages

_OPS: dict[int, Callable[[Kept, int, float, int], None]] = {
    Op.SCALE: _scale,
    Op.COUNT: _count,
    Op.MASS: _mass,
    Op.THRESHOLD: _threshold,
    Op.THRESHOLD_OF_TOTAL: _threshold,
    Op.THRESHOLD_OF_TOP_SHARE: _threshold,
    Op.THRESHOLD_OF_DEVIATION: _threshold,
    Op.BAND: _band,
}


def filter_row(row: Row, params: np.void) -> Kept:
    """Run the stages of a row; at temperature 0 the first token alone is kept."""
    kept = Kept(row, ALL, (row.top, scale_of(1.0)))
    if to_float32(params["temperature"]) == 0:
        kept.cut = row.nth(1)
        return kept
    min_keep = int(params["min_keep"])
    with np.errstate(all="ignore"):
        for op, v in zip(params["ops"], params["values"].tolist(), strict=False):
            _OPS[op](kept, op, v, min_keep)
    return kept
