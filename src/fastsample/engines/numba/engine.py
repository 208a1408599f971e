"""The Numba engine: loops that Numba compiles behind the doors that every engine has.

For where the compiled extension is not installed. Row after row in the caller's thread, whatever
`n_threads`; the loops release the GIL, so callers may bring threads of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines.contract import KeptSets, LogprobResult, SampleOutput, SampleRequest
from fastsample.engines.reference import rows as reference

from .fixed import FixedRow
from .float_mode import DefaultMode
from .mass import masses_of, write_log_law
from .ordinal import logits_of, parts_of, tokens_of
from .penalties import adjust
from .row import Law, Row, scale_of
from .settings import RowParams, row_params
from .softmax import kept_law, log_total, whole_law

# No order of float32 is quicker here than the fixed one.
_ROWS: dict[str, type[Row]] = {"exact": Row, "fixed": FixedRow, "fast": FixedRow}


def run(
    request: SampleRequest,
    out: SampleOutput,
    *,
    isa: str | None = None,
    n_threads: int | None = None,
) -> None:
    """Draw for every row.

    Parameters
    ----------
    request : SampleRequest
    out : SampleOutput
        Written.
    isa, n_threads : ignored
        Here for the shape of the door: Numba compiles for this processor, and rows take turns.
    """
    _write_nothing(out)
    with DefaultMode():
        for b, settings in enumerate(row_params(request.plan)):
            if out.status[b] == reference.OK:
                row = _ROWS[request.reduction](_adjusted(request, b, settings))
                out.status[b] = row.status
                if row.status == reference.OK:
                    _write_row(request, out, b, row, settings)


def write_softmax(
    name: str,
    request: SampleRequest,
    out: NDArray[Any],
    status: NDArray[np.uint8],
    *,
    isa: str | None = None,
    n_threads: int | None = None,
) -> None:
    """Write softmax, log_softmax or logsumexp of each row, as `WriteSoftmax` says."""
    with DefaultMode():
        for b, settings in enumerate(row_params(request.plan)):
            row = _ROWS[request.reduction](_as_it_came(request, b))
            status[b] = row.status
            if row.status == reference.OK:
                _LAWS[name](row, reference.to_float32(settings.temperature), out[b : b + 1])


def kept_sets(
    request: SampleRequest,
    status: NDArray[np.uint8],
    *,
    isa: str | None = None,
    n_threads: int | None = None,
) -> KeptSets:
    """Find the kept set of each row, as `FindKeptSets` says; `isa` and `n_threads` as in `run`."""
    found: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    masses: list[NDArray[np.uint64]] = [np.empty(0, np.uint64)]
    offsets = np.zeros(len(request.plan) + 1, np.int64)
    with DefaultMode():
        for b, settings in enumerate(row_params(request.plan)):
            offsets[b + 1] = offsets[b]
            if status[b] != reference.OK:
                continue
            row = Row(_adjusted(request, b, settings))
            status[b] = row.status
            if row.status == reference.OK:
                cut, law = _cut(row, settings)
                found.append(row.keys(cut))
                masses.append(masses_of(found[-1], law).view(np.uint64))
                offsets[b + 1] += len(found[-1])
    keys = np.concatenate(found)
    return KeptSets(tokens_of(keys), np.concatenate(masses), logits_of(keys), offsets)


# ---------------------------------------------------------------- rows


def _as_it_came(request: SampleRequest, b: int) -> NDArray[np.float32]:
    """A row's tokens as float32, contiguous and aligned: where they lie, if they are."""
    row = request.values[b, : request.vocabulary]
    if row.dtype == np.float32 and row.flags.c_contiguous and row.flags.aligned:
        return row
    return np.ascontiguousarray(reference.widen(row))


def _adjusted(request: SampleRequest, b: int, settings: RowParams) -> NDArray[np.float32]:
    row = _as_it_came(request, b)
    if request.adjustments is None:
        return row
    row = np.array(row)
    adjust(row, request.adjustments, b, settings)
    return row


def _cut(row: Row, settings: RowParams) -> tuple[int, Law]:
    """The cut that the filters leave, and the law of its masses; at temperature 0 one token's."""
    if reference.to_float32(settings.temperature) == 0:
        return row.nth(1), (row.top, scale_of(1.0))
    return row.cut(settings)


# ---------------------------------------------------------------- draws


def _write_nothing(out: SampleOutput) -> None:
    out.tokens[:] = -1
    if out.kept_count is not None:
        out.kept_count[:] = 0
    if out.logprobs is not None:
        out.logprobs.logprobs[:], out.logprobs.ranks[:] = np.nan, 0
        out.logprobs.top_tokens[:], out.logprobs.top_logprobs[:] = -1, np.nan


def _write_row(
    request: SampleRequest, out: SampleOutput, b: int, row: Row, settings: RowParams
) -> None:
    cut, law = _cut(row, settings)
    place = tuple(map(np.uint64, (settings.seed, settings.position, settings.stream)))
    row.draw(cut, law, place, out.tokens[b])
    if out.kept_count is not None:
        out.kept_count[b] = row.count(cut)
    if out.logprobs is not None:
        token = int(out.tokens[b, 0])
        for m, mode in enumerate(out.logprobs.modes):
            source = row
            if mode == "raw" and request.adjustments is not None:
                source = _ROWS[request.reduction](_as_it_came(request, b))
            if source.status == reference.OK:
                _write_logprobs(out.logprobs, (m, b), source, token, cut, law, settings)


def _write_logprobs(
    out: LogprobResult,
    at: tuple[int, int],
    row: Row,
    token: int,
    cut: int,
    law: Law,
    settings: RowParams,
) -> None:
    """Write the log-probabilities of a token and of the row's top tokens in one mode."""
    mode = out.modes[at[0]]
    temperature = 1.0 if mode == "raw" else reference.to_float32(settings.temperature)
    drawn = row.key_of_token(token)
    first = row.first(out.top_tokens.shape[2])
    keys = np.concatenate([np.array([drawn]), first])
    if mode == "processed" or temperature == 0:
        logprobs = kept_law(row, cut, law, keys)
    else:
        logprobs = whole_law(row, temperature, keys)
    out.logprobs[at], out.top_logprobs[at] = logprobs[0], logprobs[1:]
    out.ranks[at], out.top_tokens[at] = row.count(drawn), tokens_of(first)


# ---------------------------------------------------------------- laws of whole rows


def _write_one_hot(row: Row, hot: float, cold: float, out: NDArray[np.float32]) -> None:
    # Found first: `out` may be the row.
    _, token = parts_of(row.nth(1))
    out[:] = cold
    out[token] = hot


def _write_softmax(row: Row, temperature: float, out: NDArray[np.float32]) -> None:
    if temperature == 0:
        _write_one_hot(row, 1.0, 0.0, out[0])
        return
    total = row.write_powers((row.top, scale_of(temperature)), out[0])
    out *= np.float32(row.top_mass / total)


def _write_log_softmax(row: Row, temperature: float, out: NDArray[np.float32]) -> None:
    if temperature == 0:
        _write_one_hot(row, 0.0, -np.inf, out[0])
        return
    write_log_law(row.bits, float(row.top), temperature, log_total(row, temperature), out[0])


def _write_logsumexp(row: Row, temperature: float, out: NDArray[np.float64]) -> None:
    out[0] = float(row.top) / temperature + log_total(row, temperature)


_LAWS: dict[str, Callable[[Row, float, NDArray[Any]], None]] = {
    "softmax": _write_softmax,
    "log_softmax": _write_log_softmax,
    "logsumexp": _write_logsumexp,
}
