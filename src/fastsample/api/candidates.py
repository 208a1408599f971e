"""The candidate table: what one row offers, and what the filters leave of it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines import reference
from fastsample.engines.contract import SampleRequest
from fastsample.engines.plan import make_plan
from fastsample.inputs.logits import as_rows
from fastsample.params.parameters import SamplingParams
from fastsample.params.table import STAGES

from .result import require_valid_rows


@dataclass(frozen=True)
class Candidate:
    """One token of a row, as `candidates` lists it.

    Attributes
    ----------
    rank : int
        1 for the first token: higher logit first, equal logits by token, the lower first.
    token : int
    logit : float
        As it stands in the row.
    raw_probability : float
        At temperature 1 and before any filter.
    running_total : float
        The raw probabilities of this token and of all before it, added up.
    probability : float
        After temperature and filters: how likely the token is drawn. 0.0 if it cannot be.
    cut_by : str or None
        What keeps the token from being drawn: "mask" (a logit of -inf), "temperature" (0 takes the
        first token alone), the name of a filter, or "mass" (kept, but so unlikely that its mass
        rounds to 0). None for a token that can be drawn.
    """

    rank: int
    token: int
    logit: float
    raw_probability: float
    running_total: float
    probability: float
    cut_by: str | None


def candidates(
    logits: Any,
    n: int = 10,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    typical_p: float = 1.0,
    epsilon_cutoff: float = 0.0,
    top_n_sigma: float = 0.0,
) -> list[Candidate]:
    """List the first `n` tokens of one row: before the filters, after them, and what cut them.

    Parameters
    ----------
    logits : array of shape (V,)
        One row, of any kind and dtype that `sample` takes. It does not change.
    n : int
        How many tokens to list, at least 1. A vocabulary with fewer is listed whole.
    temperature, top_k, top_p, min_p, typical_p, epsilon_cutoff, top_n_sigma
        As in `SamplingParams`.

    Returns
    -------
    list of Candidate
        By rank.

    Raises
    ------
    TypeError
        Logits or a parameter of the wrong kind.
    ValueError
        Logits that are not one row, a row from which nothing can be drawn, or a parameter outside
        its range.

    Notes
    -----
    Every probability is the quotient of two integers, a token's mass and the total, rounded once.
    `raw_probability` and `running_total` depend on the row alone; temperature and filters move
    `probability` and `cut_by`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsample import candidates
    >>> row = np.log(np.array([0.5, 0.2, 0.1, 0.08, 0.04, 0.01, 0.07], dtype=np.float32))
    >>> for c in candidates(row, 4, top_p=0.8):
    ...     print(c.rank, c.token, round(c.raw_probability, 3), round(c.probability, 3), c.cut_by)
    1 0 0.5 0.625 None
    2 1 0.2 0.25 None
    3 2 0.1 0.125 None
    4 3 0.08 0.0 top_p
    """
    params = SamplingParams(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        typical_p=typical_p,
        epsilon_cutoff=epsilon_cutoff,
        top_n_sigma=top_n_sigma,
    )
    row = _one_row(logits)
    n = min(_count(n), row.size)
    raw = reference.trace(row)
    after = reference.trace(row, **{name: getattr(params, name) for name in STAGES})
    raw_mass = raw.mass[:n].tolist()
    return [
        Candidate(
            rank=place + 1,
            token=int(token),
            logit=float(row[token]),
            raw_probability=raw_mass[place] / raw.total,
            running_total=running / raw.total,
            probability=int(after.mass[place]) / after.total,
            cut_by=_cut_by(after, place),
        )
        for place, (token, running) in enumerate(zip(raw.order, accumulate(raw_mass), strict=False))
    ]


def _one_row(logits: Any) -> NDArray[np.float32]:
    rows = as_rows(logits)
    if rows.shape:
        raise ValueError(
            f"`logits` must be one row of shape (V,), got {rows.values.shape} (pass `logits[0]`)"
        )
    row = reference.widen(rows.values[0])
    request = SampleRequest(rows.values, rows.vocabulary, make_plan(1), None)
    require_valid_rows(request, np.array([reference.status(row)], np.uint8), rows.shape)
    return row


def _cut_by(seen: reference.Trace, place: int) -> str | None:
    for stage, first, end in seen.stages:
        if not first <= place < end:
            return stage
    return None if seen.mass[place] else "mass"


def _count(n: Any) -> int:
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)):
        raise TypeError(f"`n` must be an integer, got {type(n).__name__} {n!r} (tokens to list)")
    if n < 1:
        raise ValueError(f"`n` must be at least 1, got {n} (tokens to list)")
    return int(n)
