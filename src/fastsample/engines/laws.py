"""What is asked of an engine beside a draw: the law of whole rows, and the kept set of each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsample.job import Job

from . import resolve


class KeptSets(NamedTuple):
    """The kept sets of a batch, laid end to end, each in section 3's order.

    Attributes
    ----------
    tokens : int64 array of shape (N,)
    masses : uint64 array of shape (N,)
    logits : float32 array of shape (N,)
        After adjusting.
    offsets : int64 array of shape (B + 1,)
        Row b has ``tokens[offsets[b] : offsets[b + 1]]``; a bad row has none.
    """

    tokens: NDArray[np.int64]
    masses: NDArray[np.uint64]
    logits: NDArray[np.float32]
    offsets: NDArray[np.int64]


def write_law(
    name: str,
    job: Job,
    out: NDArray[Any],
    status: NDArray[np.uint8],
    *,
    engine: str | None = None,
    isa: str | None = None,
    n_threads: int | None = None,
) -> None:
    """Write the law of each whole row at its temperature, with no adjustment and no filter.

    Parameters
    ----------
    name : {"softmax", "log_softmax", "logsumexp"}
    job : Job
        Its plan gives the temperatures; above 0 for "logsumexp".
    out : float32 array of shape (B, vocabulary), or float64 of shape (B,) for "logsumexp"
        C-contiguous. Written where a row is good. It may lie exactly where `job.values` does.
    status : uint8 array of shape (B,)
        Comes as 0. Written: 1 for an invalid row, 2 for an empty one.
    engine, isa, n_threads
        As in `sample`.
    """
    if _is_native(engine, isa):
        from fastsample import _native

        getattr(_native, name)(
            job.values,
            job.kind,
            job.vocabulary,
            np.ascontiguousarray(job.plan["temperature"]),
            out,
            status,
            isa,
            n_threads or 0,
        )
        return
    from fastsample import reference, reference_laws

    from .reference import row_as_it_came

    law = getattr(reference_laws, name)
    for b, settings in enumerate(job.plan):
        row = row_as_it_came(job, b)
        status[b] = reference.status(row)
        if status[b] == reference.OK:
            out[b] = law(row, float(settings["temperature"]))


def kept_sets(
    job: Job, status: NDArray[np.uint8], *, engine: str | None = None, isa: str | None = None
) -> KeptSets:
    """Find the kept set of each row.

    Parameters
    ----------
    job : Job
    status : uint8 array of shape (B,)
        As in `write_law`.
    engine, isa
        As in `sample`.
    """
    if _is_native(engine, isa):
        from fastsample import _native

        mask, bias, prompt, output = job.adjustments or (None, None, None, None)
        return KeptSets(
            *_native.kept_sets(
                *(job.values, job.kind, job.vocabulary, job.plan),
                *(mask, bias, prompt, output),
                *(status, isa),
            )
        )
    return _reference_kept_sets(job, status)


def _reference_kept_sets(job: Job, status: NDArray[np.uint8]) -> KeptSets:
    from fastsample import reference

    from .reference import adjusted_row, filters

    tokens: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    masses: list[NDArray[np.uint64]] = [np.empty(0, np.uint64)]
    logits: list[NDArray[np.float32]] = [np.empty(0, np.float32)]
    offsets = np.zeros(len(job.plan) + 1, np.int64)
    for b, settings in enumerate(job.plan):
        row = adjusted_row(job, b)
        status[b] = reference.status(row)
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


def _is_native(engine: str | None, isa: str | None) -> bool:
    return resolve(engine, isa) is not resolve("reference")
