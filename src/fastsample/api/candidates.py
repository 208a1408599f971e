"""`candidates`: the top tokens of a row, and which filter removes each."""

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
from fastsample.params.validation import IntParameter

from .result import require_valid_rows


@dataclass(frozen=True)
class Candidate:
    """One token of a row, as in the result of `candidates`.

    Attributes
    ----------
    rank : int
        From 1, by descending logit, ties by ascending token.
    token : int
    logit : float
    raw_probability : float
        At temperature 1, without filters.
    running_total : float
        The sum of the raw probabilities up to this rank.
    probability : float
        After temperature and filters; 0.0 if the token cannot be drawn.
    cut_by : str or None
        Why the token cannot be drawn: "mask" (its logit is -inf), "temperature" (0 keeps only the
        top token), the name of the filter that removes it, or "mass" (it is kept, but its mass
        rounds to 0). None if it can be drawn.
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
    top_a: float = 0.0,
) -> list[Candidate]:
    """List the first `n` tokens of one row, with probabilities before and after the filters.

    Parameters
    ----------
    logits : array of shape (V,)
        One row, as in `sample`.
    n : int
        The number of tokens to list, at least 1; all of a smaller vocabulary.
    temperature, top_k, top_p, min_p, typical_p, epsilon_cutoff, top_n_sigma, top_a
        As in `SamplingParams`.

    Returns
    -------
    list of Candidate
        By rank.

    Raises
    ------
    TypeError
        Logits or a parameter of the wrong type.
    ValueError
        Logits that are not one row, an invalid row, or a parameter out of range.

    Notes
    -----
    A probability is the quotient of two integers, the mass of the token and the total mass, rounded
    once. `raw_probability` and `running_total` depend on the row alone.

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
    arguments = locals()
    params = SamplingParams(**{name: arguments[name] for name in STAGES})
    row = _one_row(logits)
    n = min(_COUNT.one(n), row.size)
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


_COUNT = IntParameter(name="n", rule="at least 1", way_out="tokens to list", low=1)


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
