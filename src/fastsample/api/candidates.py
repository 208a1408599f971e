"""`candidates`: the top tokens of a row, and which filter removes each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from fastsample.engines import reference
from fastsample.engines.contract import SampleRequest
from fastsample.engines.plan import make_plan
from fastsample.inputs.logits import as_rows
from fastsample.params.parameters import SamplingParams
from fastsample.params.table import ONE_STREAM, POSITION, SEED, STAGES
from fastsample.params.validation import IntParameter

from .arguments import parse_flag
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
    tempered_probability : float
        At the temperature in use, without filters.
    tempered_total : float
        The sum of the tempered probabilities up to this rank.
    top_p_total : float or None
        The sum up to this rank of the probabilities by which top_p cuts: those of the tokens that
        the stages before it keep. top_p keeps a token where the sum up to the rank before is below
        top_p. None where top_p does not see the token, or is off.
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
    tempered_probability: float
    tempered_total: float
    top_p_total: float | None
    probability: float
    cut_by: str | None


@dataclass(frozen=True)
class Arrival:
    """One arrival of a race, as in a `DrawTrace`.

    Attributes
    ----------
    token : int
    time : float
        Of two arrivals the one with the lower time is the first.
    height : int or None
        None where the token came by its own clock. Else the token came by the stream that all
        tokens share, at this height, which counts for a token of a larger mass.
    """

    token: int
    time: float
    height: int | None


@dataclass(frozen=True)
class DrawTrace:
    """How one token of a row is drawn by race, as in the result of `candidates`.

    Attributes
    ----------
    token : int
        The token that `sample` draws with ``draw="race"``.
    winner : Arrival or None
        The arrival that decided. None where there was no race, as one token is kept, and where the
        race was left open, so that the inverse method drew.
    runner_up : Arrival or None
        The first arrival of another kept token; None where none came before the end of the race.
    margin : float
        That of `SampleResult`.
    """

    token: int
    winner: Arrival | None
    runner_up: Arrival | None
    margin: float


@overload
def candidates(
    logits: Any,
    n: int = ...,
    *,
    temperature: float = ...,
    top_k: int = ...,
    top_p: float = ...,
    min_p: float = ...,
    typical_p: float = ...,
    epsilon_cutoff: float = ...,
    top_n_sigma: float = ...,
    top_a: float = ...,
    draw: Literal[False] = ...,
) -> list[Candidate]: ...


@overload
def candidates(
    logits: Any,
    n: int = ...,
    *,
    temperature: float = ...,
    top_k: int = ...,
    top_p: float = ...,
    min_p: float = ...,
    typical_p: float = ...,
    epsilon_cutoff: float = ...,
    top_n_sigma: float = ...,
    top_a: float = ...,
    seed: int,
    position: int | None = ...,
    stream: int | None = ...,
    draw: Literal[True],
) -> tuple[list[Candidate], DrawTrace]: ...


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
    seed: int | None = None,
    position: int | None = None,
    stream: int | None = None,
    draw: bool = False,
) -> list[Candidate] | tuple[list[Candidate], DrawTrace]:
    """List the first `n` tokens of one row, with probabilities before and after the filters.

    Parameters
    ----------
    logits : array of shape (V,)
        One row, as in `sample`.
    n : int
        The number of tokens to list, at least 1; all of a smaller vocabulary.
    temperature, top_k, top_p, min_p, typical_p, epsilon_cutoff, top_n_sigma, top_a
        As in `SamplingParams`.
    seed, position, stream : int, optional
        Those of a draw, as in `sample`, with `draw`, which needs a seed; the others are 0 where
        left out.
    draw : bool
        Whether to return also how a token is drawn by race: its arrival, and that of the runner-up.

    Returns
    -------
    list of Candidate
        By rank.
    DrawTrace
        With `draw`: the result is then a pair.

    Raises
    ------
    TypeError
        Logits or a parameter of the wrong type.
    ValueError
        Logits that are not one row, an invalid row, or a parameter out of range.

    Notes
    -----
    A probability is the quotient of two integers, the mass of the token and the total mass, rounded
    once, and so is a sum. `raw_probability` and `running_total` depend on the row alone, the
    tempered ones on the row and the temperature.

    The arrivals are those of section 6 of docs/rule.md. Their times are exponential with the masses
    as rates, and depend on (seed, position, stream) and on the masses.

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
    >>> _, trace = candidates(row, draw=True, seed=7, top_p=0.8)
    >>> trace.token, trace.winner.token, trace.runner_up.token, round(trace.margin, 3)
    (1, 1, 0, 0.475)
    """
    arguments = locals()
    is_traced = parse_flag("draw", draw, "also returns how a race draws a token")
    place = _place(is_traced, seed, position, stream)
    params = SamplingParams(**{name: arguments[name] for name in STAGES})
    stages = {name: getattr(params, name) for name in STAGES}
    row = _one_row(logits)
    n = min(_COUNT.one(n), row.size)
    after = reference.trace(row, **stages)
    raw, raw_total = _shares(reference.trace(row), n)
    tempered, tempered_total = _shares(reference.trace(row, temperature=params.temperature), n)
    top_p_total = _top_p_totals(row, stages, n)
    listed = [
        Candidate(
            rank=i + 1,
            token=int(after.order[i]),
            logit=float(row[after.order[i]]),
            raw_probability=raw[i],
            running_total=raw_total[i],
            tempered_probability=tempered[i],
            tempered_total=tempered_total[i],
            top_p_total=top_p_total[i],
            probability=int(after.mass[i]) / after.total,
            cut_by=_cut_by(after, i),
        )
        for i in range(n)
    ]
    return listed if place is None else (listed, _trace_draw(row, stages, after, place))


def _shares(seen: reference.Trace, n: int) -> tuple[list[float], list[float]]:
    """Return the probabilities of the first n tokens, and their running sums."""
    mass = seen.mass[:n].tolist()
    return [m / seen.total for m in mass], [sum_ / seen.total for sum_ in accumulate(mass)]


def _top_p_totals(row: NDArray[np.float32], stages: dict[str, Any], n: int) -> list[float | None]:
    """Return `top_p_total` of the first n tokens."""
    if stages["top_p"] == 1.0 or stages["temperature"] == 0.0:
        return [None] * n
    before = STAGES[: STAGES.index("top_p")]
    seen = reference.trace(row, stages=before, **{name: stages[name] for name in before})
    totals = _shares(seen, n)[1]
    return [total if i < seen.end else None for i, total in enumerate(totals)]


def _place(draw: bool, seed: Any, position: Any, stream: Any) -> reference.Place | None:
    """Check the arguments of a draw; None without one."""
    if draw and seed is None:
        raise ValueError("`seed` must be given with `draw`, got None (the seed of the draw)")
    if not draw and (seed, position, stream) != (None, None, None):
        raise ValueError(
            f"`draw` must be True with a seed, position or stream, got False and {seed!r}, "
            f"{position!r}, {stream!r} (leave them out, or pass draw=True)"
        )
    if not draw:
        return None
    return reference.Place(
        replace(SEED, way_out="a number such as 1").one(seed),
        0 if position is None else POSITION.one(position),
        0 if stream is None else ONE_STREAM.one(stream),
    )


def _trace_draw(
    row: NDArray[np.float32],
    stages: dict[str, Any],
    seen: reference.Trace,
    place: reference.Place,
) -> DrawTrace:
    """Draw by race from a row of which `seen` is the trace, and explain the draw."""
    if seen.kept == 1:
        margin = reference.margin(row, seen, None, place, stages["temperature"])
        return DrawTrace(int(seen.tokens[0]), None, None, margin)
    race = reference.prepare(row, seen, reference.is_listed(len(row), **stages))
    found = reference.explain(race, place)
    token = reference.draw_by_race(race, place)
    return DrawTrace(token, _arrival(found.winner), _arrival(found.runner_up), found.margin)


def _arrival(one: reference.Arrival | None) -> Arrival | None:
    if one is None:
        return None
    return Arrival(one.token, one.time, None if one.height < 0 else one.height)


_COUNT = IntParameter(
    name="n", rule="at least 1", way_out="how many tokens to list, such as 10", low=1
)


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


def _cut_by(seen: reference.Trace, i: int) -> str | None:
    for stage, first, end in seen.stages:
        if not first <= i < end:
            return stage
    return None if seen.mass[i] else "mass"
