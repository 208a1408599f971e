"""The functions of the reference engine, which computes row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines import reference
from fastsample.engines.contract import (
    NO_TOKENS,
    KeptSets,
    LogprobResult,
    SampleOutput,
    SampleRequest,
)
from fastsample.params.ops import DrawMethod
from fastsample.params.table import STAGES

from . import logprobs, softmax
from .logits_processors import adjusted_row, unmodified_row


def run(request: SampleRequest, out: SampleOutput, **_options: Any) -> None:
    """Draw for every row, as `Run` says. There are no instruction sets and no threads to choose."""
    out.write_nothing()
    for b in np.flatnonzero(out.status == reference.OK).tolist():
        row = adjusted_row(request, b)
        out.status[b] = reference.status(row)
        if out.status[b] == reference.OK:
            _write_row(request, out, b, row)


def write_softmax(
    name: str,
    request: SampleRequest,
    out: NDArray[Any],
    status: NDArray[np.uint8],
    **_options: Any,
) -> None:
    """Write softmax, log_softmax or logsumexp of each row."""
    for b, settings in enumerate(request.plan):
        row = unmodified_row(request, b)
        status[b] = reference.status(row)
        if status[b] == reference.OK:
            function, temperature = getattr(softmax, name), float(settings["temperature"])
            out[b] = function(row, temperature, request.reduction)


def kept_sets(request: SampleRequest, status: NDArray[np.uint8], **_options: Any) -> KeptSets:
    """Find the kept set of each row."""
    found = [NO_TOKENS] * len(request.plan)
    for b in np.flatnonzero(status == reference.OK).tolist():
        row = adjusted_row(request, b)
        status[b] = reference.status(row)
        if status[b] == reference.OK:
            seen = reference.trace(row, **filters(request.plan[b]))
            found[b] = seen.tokens, seen.masses, row[seen.tokens]
    return KeptSets.of_rows(found)


def filters(row: np.void) -> dict[str, Any]:
    """One row's parameters as `reference.trace` takes them."""
    names = [STAGES[code - 1] for code in row["stages"]]
    values = {name: float(value) for name, value in zip(names, row["values"], strict=False)}
    values["temperature"] = float(row["temperature"])
    return {**values, "min_keep": int(row["min_keep"]), "stages": tuple(names)}


def _write_row(request: SampleRequest, out: SampleOutput, b: int, row: NDArray[np.float32]) -> None:
    seen = reference.trace(row, **filters(request.plan[b]), reduction=request.reduction)
    _write_draws(request, b, row, seen, out.tokens[b])
    if out.kept_count is not None:
        out.kept_count[b] = seen.kept
    if out.logprobs is not None:
        _write_logprobs(request, out.logprobs, b, row, seen, out.tokens[b])


def _write_draws(
    request: SampleRequest,
    b: int,
    row: NDArray[np.float32],
    seen: reference.Trace,
    tokens: NDArray[np.int64],
) -> None:
    race, kept = _race_of(request, b, row, seen), reference.by_token(seen)
    if not request.replacement:
        (place,) = _places(request, b, 1)
        found = (
            kept[0].tolist() if race is None else reference.draw_distinct(race, place, len(tokens))
        )
        tokens[: len(found)] = found
        return
    for n, place in enumerate(_places(request, b, len(tokens))):
        if race is None:
            tokens[n] = reference.draw(*kept, reference.uniform(*place), request.reduction)
        else:
            tokens[n] = reference.draw_by_race(race, place)


def _race_of(
    request: SampleRequest, b: int, row: NDArray[np.float32], seen: reference.Trace
) -> reference.Race | None:
    """The race of a row's draws; None for the inverse method, and where one token is kept."""
    if request.plan[b]["draw"] != DrawMethod.RACE or seen.kept == 1:
        return None
    listed = reference.is_listed(len(row), **filters(request.plan[b]))
    return reference.prepare(row, seen, listed)


def margins(request: SampleRequest, status: NDArray[np.uint8], draws: int) -> NDArray[np.float64]:
    """The margins of each row's draws; nan for a status other than OK, and without a race."""
    found = np.full((len(request.plan), draws), np.nan)
    for b in np.flatnonzero(status == reference.OK).tolist():
        row, temperature = adjusted_row(request, b), float(request.plan[b]["temperature"])
        seen = reference.trace(row, **filters(request.plan[b]), reduction=request.reduction)
        race = _race_of(request, b, row, seen)
        found[b] = [
            reference.margin(row, seen, race, place, temperature)
            for place in _places(request, b, draws)
        ]
    return found


def _places(request: SampleRequest, b: int, draws: int) -> list[reference.Place]:
    """The places of a row's draws, each on a stream of its own."""
    seed, position, stream = (int(request.plan[b][name]) for name in ("seed", "position", "stream"))
    return [reference.Place(seed, position, stream + n) for n in range(draws)]


def _write_logprobs(
    request: SampleRequest,
    out: LogprobResult,
    b: int,
    row: NDArray[np.float32],
    seen: reference.Trace,
    tokens: NDArray[np.int64],
) -> None:
    described, top_count = tokens[: out.logprobs.shape[2]], out.top_tokens.shape[2]
    for m, mode in enumerate(out.modes):
        at = m, b
        logits = unmodified_row(request, b) if mode == "raw" else row
        if mode == "raw":
            values = logprobs.raw(logits, request.reduction)
        elif mode == "tempered":
            temperature = float(request.plan[b]["temperature"])
            values = logprobs.tempered(row, temperature, request.reduction)
        else:
            values = logprobs.processed(seen)
        out.logprobs[at], out.ranks[at] = logprobs.of_tokens(logits, values, described)
        out.top_tokens[at], out.top_logprobs[at] = logprobs.first(logits, values, top_count)
        if request.logprob_tokens is not None:
            given = request.logprob_tokens[b]
            found = logprobs.of_tokens(logits, values, given)
            out.token_logprobs[at], out.token_ranks[at] = found
