"""The reference engine: the readable rule behind the doors that every engine has, row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines import reference
from fastsample.engines.contract import Job, KeptSets, Outcome
from fastsample.params.table import STAGES

from . import logprobs as reference_laws
from .adjusted import adjusted_row, row_as_it_came

_LAWS: dict[str, Callable[[NDArray[np.float32], float, str], Any]] = {
    "softmax": reference_laws.softmax,
    "log_softmax": reference_laws.log_softmax,
    "logsumexp": reference_laws.logsumexp,
}


def run(job: Job, out: Outcome, *, isa: str | None = None, n_threads: int | None = None) -> None:
    """Draw for every row.

    Parameters
    ----------
    job : Job
    out : Outcome
        Written.
    isa, n_threads : ignored
        Here for the shape of the door: this engine has no kernels and no threads.
    """
    for b in range(len(job.values)):
        _write_nothing(out, b)
        if out.status[b] != reference.OK:
            continue
        row = adjusted_row(job, b)
        out.status[b] = reference.status(row)
        if out.status[b] == reference.OK:
            _write_row(job, out, b, row)


def write_law(
    name: str,
    job: Job,
    out: NDArray[Any],
    status: NDArray[np.uint8],
    *,
    isa: str | None = None,
    n_threads: int | None = None,
) -> None:
    """Write the law of each whole row, as `WriteLaw` says; `isa` and `n_threads` as in `run`."""
    for b, settings in enumerate(job.plan):
        row = row_as_it_came(job, b)
        status[b] = reference.status(row)
        if status[b] == reference.OK:
            out[b] = _LAWS[name](row, float(settings["temperature"]), job.reduction)


def kept_sets(
    job: Job, status: NDArray[np.uint8], *, isa: str | None = None, n_threads: int | None = None
) -> KeptSets:
    """Find the kept set of each row, as `FindKeptSets` says; `isa` and `n_threads` as in `run`."""
    tokens: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    masses: list[NDArray[np.uint64]] = [np.empty(0, np.uint64)]
    logits: list[NDArray[np.float32]] = [np.empty(0, np.float32)]
    offsets = np.zeros(len(job.plan) + 1, np.int64)
    for b, settings in enumerate(job.plan):
        row = adjusted_row(job, b)
        status[b] = status[b] or reference.status(row)
        offsets[b + 1] = offsets[b]
        if status[b] == reference.OK:
            seen = reference.trace(row, **filters(settings))
            kept = seen.order[: seen.kept]
            tokens.append(kept)
            masses.append(seen.mass[: seen.kept])
            logits.append(row[kept])
            offsets[b + 1] += seen.kept
    ends = np.concatenate(tokens), np.concatenate(masses), np.concatenate(logits)
    return KeptSets(*ends, offsets)


def filters(row: np.void) -> dict[str, Any]:
    """One row's parameters as `reference.trace` takes them."""
    names = [STAGES[code - 1] for code in row["stages"]]
    values = {name: float(value) for name, value in zip(names, row["values"], strict=False)}
    values["temperature"] = float(row["temperature"])
    return {**values, "min_keep": int(row["min_keep"]), "stages": tuple(names)}


def _write_nothing(out: Outcome, b: int) -> None:
    out.tokens[b] = -1
    if out.kept_count is not None:
        out.kept_count[b] = 0
    for at in range(len(out.forms)):
        out.logprobs[at, b], out.ranks[at, b] = np.nan, 0
        out.top_tokens[at, b], out.top_logprobs[at, b] = -1, np.nan


def _write_row(job: Job, out: Outcome, b: int, row: NDArray[np.float32]) -> None:
    seen = reference.trace(row, **filters(job.plan[b]), reduction=job.reduction)
    _write_draws(job, b, seen, out.tokens[b])
    if out.kept_count is not None:
        out.kept_count[b] = seen.kept
    for at, form in enumerate(out.forms):
        told = _tell(job, b, row, seen, form, int(out.tokens[b, 0]), out.top_tokens.shape[2])
        out.logprobs[at, b], out.ranks[at, b] = told.logprob, told.rank
        out.top_tokens[at, b], out.top_logprobs[at, b] = told.top_tokens, told.top_logprobs


def _write_draws(job: Job, b: int, seen: reference.Trace, tokens: NDArray[np.int64]) -> None:
    kept = reference.by_token(seen)
    seed, position, stream = (int(job.plan[b][name]) for name in ("seed", "position", "stream"))
    for n in range(len(tokens)):
        u = reference.uniform(seed, position, stream + n)
        tokens[n] = reference.draw(*kept, u, job.reduction)


def _tell(
    job: Job,
    b: int,
    row: NDArray[np.float32],
    seen: reference.Trace,
    form: str,
    token: int,
    count: int,
) -> reference_laws.Told:
    """What the law of one form says of the token."""
    if form == "raw":
        row = row_as_it_came(job, b)
        law = reference_laws.raw(row, job.reduction)
    elif form == "tempered":
        temperature = float(job.plan[b]["temperature"])
        law = reference_laws.tempered(row, temperature, job.reduction)
    else:
        law = reference_laws.processed(seen)
    return reference_laws.tell(row, law, token, count)
