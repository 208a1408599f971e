"""The reference engine: the readable rule behind the door that every engine has, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample import reference, reference_laws
from fastsample.job import Job, Outcome

_SCOPES: dict[int, reference.Scope] = {-1: "all", -2: "prompt", -3: "output"}
_PENALTIES = ("repetition", "frequency", "presence")


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


def row_as_it_came(job: Job, b: int) -> NDArray[np.float32]:
    """A row's tokens as float32."""
    return reference.widen(job.values[b, : job.vocabulary])


def adjusted_row(job: Job, b: int) -> NDArray[np.float32]:
    """A row after section 2."""
    row = row_as_it_came(job, b)
    if job.adjustments is None:
        return reference.read(row)
    mask, bias, prompt, output = job.adjustments
    penalties: dict[str, Any] = {}
    for name in _PENALTIES:
        scope = int(job.plan[b][f"{name}_scope"])
        penalties[f"{name}_penalty"] = float(job.plan[b][f"{name}_penalty"])
        penalties[f"{name}_scope"] = _SCOPES.get(scope, scope)
    return reference.adjust(
        row,
        mask=None if mask is None else mask[b % len(mask)],
        bias=None if bias is None else (_list_of(bias, b), _list_of(bias, b, of=bias.values)),
        prompt=() if prompt is None else _list_of(prompt, b).tolist(),
        output=() if output is None else _list_of(output, b).tolist(),
        **penalties,
    )


def _list_of(lists: Any, b: int, of: NDArray[Any] | None = None) -> NDArray[Any]:
    """A row's part of one of the arrays that hold a list for each row end to end."""
    items = lists.tokens if of is None else of
    return np.asarray(items[lists.offsets[b] : lists.offsets[b + 1]])


def filters(settings: np.void) -> dict[str, Any]:
    """One row's settings as `reference.trace` takes them."""
    codes = (int(settings["stages"]) >> shift & 15 for shift in range(0, 32, 4))
    return {
        "temperature": float(settings["temperature"]),
        "top_k": int(settings["top_k"]),
        "top_p": float(settings["top_p"]),
        "min_p": float(settings["min_p"]),
        "min_keep": int(settings["min_keep"]),
        "stages": tuple(reference.STAGES[code - 1] for code in codes if code),
    }


def _write_nothing(out: Outcome, b: int) -> None:
    out.tokens[b] = -1
    if out.kept_count is not None:
        out.kept_count[b] = 0
    for at in range(len(out.forms)):
        out.logprobs[at, b], out.ranks[at, b] = np.nan, 0
        out.top_tokens[at, b], out.top_logprobs[at, b] = -1, np.nan


def _write_row(job: Job, out: Outcome, b: int, row: NDArray[np.float32]) -> None:
    seen = reference.trace(row, **filters(job.plan[b]))
    _write_draws(job.plan[b], seen, out.tokens[b])
    if out.kept_count is not None:
        out.kept_count[b] = seen.kept
    for at, form in enumerate(out.forms):
        told = _tell(job, b, row, seen, form, int(out.tokens[b, 0]), out.top_tokens.shape[2])
        out.logprobs[at, b], out.ranks[at, b] = told.logprob, told.rank
        out.top_tokens[at, b], out.top_logprobs[at, b] = told.top_tokens, told.top_logprobs


def _write_draws(settings: np.void, seen: reference.Trace, tokens: NDArray[np.int64]) -> None:
    kept = reference.by_token(seen)
    seed, position, stream = (int(settings[name]) for name in ("seed", "position", "stream"))
    for n in range(len(tokens)):
        tokens[n] = reference.draw(*kept, reference.uniform(seed, position, stream + n))


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
        law = reference_laws.raw(row)
    elif form == "tempered":
        law = reference_laws.tempered(row, float(job.plan[b]["temperature"]))
    else:
        law = reference_laws.processed(seen)
    return reference_laws.tell(row, law, token, count)
