"""The functions of the Numba engine, for where the compiled extension is not installed.

Rows are computed one after the other in the caller's thread, whatever `n_threads` is. The loops
release the GIL, so callers may use threads of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines.contract import (
    NO_TOKENS,
    KeptSets,
    LogprobResult,
    SampleOutput,
    SampleRequest,
)
from fastsample.engines.reference import rows as reference
from fastsample.engines.reference.logits_processors import adjusted_row
from fastsample.params.ops import RACE

from . import softmax
from .distinct import draw_distinct
from .filters import Kept, filter_row
from .fixed import FixedRow
from .float_mode import DefaultMode
from .logprobs import kept_logprobs, row_logprobs
from .mass import masses_of
from .ordinal import logits_of, tokens_of
from .race import draw_by_race
from .row import Row

_NO_TOKENS = np.empty(0, np.int64)
# No order of float32 is faster here than the fixed one.
_ROWS: dict[str, type[Row]] = {"exact": Row, "fixed": FixedRow, "fast": FixedRow}


def run(request: SampleRequest, out: SampleOutput, **_options: Any) -> None:
    """Draw for every row, as `Run` says. There are no instruction sets and no threads to choose."""
    out.write_nothing()
    with DefaultMode():
        for b, params in enumerate(request.plan):
            if out.status[b] == reference.OK:
                row = _ROWS[request.reduction](_processed_row(request, b))
                out.status[b] = row.status
                if row.status == reference.OK:
                    _write_row(request, out, b, row, params)


def write_softmax(
    name: str,
    request: SampleRequest,
    out: NDArray[Any],
    status: NDArray[np.uint8],
    **_options: Any,
) -> None:
    """Write softmax, log_softmax or logsumexp of each row."""
    with DefaultMode():
        for b, params in enumerate(request.plan):
            row = _ROWS[request.reduction](_raw_row(request, b))
            status[b] = row.status
            if row.status == reference.OK:
                temperature = reference.to_float32(params["temperature"])
                getattr(softmax, name)(row, temperature, out[b : b + 1])


def kept_sets(request: SampleRequest, status: NDArray[np.uint8], **_options: Any) -> KeptSets:
    """Find the kept set of each row."""
    found = [NO_TOKENS] * len(request.plan)
    with DefaultMode():
        for b, params in enumerate(request.plan):
            if status[b] == reference.OK:
                row = Row(_processed_row(request, b))
                status[b] = row.status
                if row.status == reference.OK:
                    kept = filter_row(row, params)
                    keys = kept.row.keys(kept.cut)
                    masses = masses_of(keys, kept.scaling).view(np.uint64)
                    found[b] = tokens_of(keys), masses, logits_of(keys)
    return KeptSets.of_rows(found)


# ---------------------------------------------------------------- rows


def _raw_row(request: SampleRequest, b: int) -> NDArray[np.float32]:
    """A row's logits as contiguous, aligned float32, copied only if they are not."""
    row = request.values[b, : request.vocabulary]
    if row.dtype == np.float32 and row.flags.c_contiguous and row.flags.aligned:
        return row
    return np.ascontiguousarray(reference.widen(row))


def _processed_row(request: SampleRequest, b: int) -> NDArray[np.float32]:
    return _raw_row(request, b) if request.processors is None else adjusted_row(request, b)


# ---------------------------------------------------------------- draws


def _write_row(
    request: SampleRequest, out: SampleOutput, b: int, row: Row, params: np.void
) -> None:
    kept = filter_row(row, params)
    rng_position = tuple(np.uint64(params[name]) for name in ("seed", "position", "stream"))
    if not request.replacement:
        draw_distinct(kept, params, rng_position, out.tokens[b])
    elif params["draw"] == RACE:
        draw_by_race(kept, params, rng_position, out.tokens[b])
    else:
        kept.row.draw(kept.cut, kept.scaling, rng_position, out.tokens[b])
    if out.kept_count is not None:
        out.kept_count[b] = kept.row.count(kept.cut)
    if out.logprobs is not None:
        given = _NO_TOKENS if request.logprob_tokens is None else request.logprob_tokens[b]
        for m, mode in enumerate(out.logprobs.modes):
            source = row
            if mode == "raw" and request.processors is not None:
                source = _ROWS[request.reduction](_raw_row(request, b))
            if source.status == reference.OK:
                _write_logprobs(out.logprobs, (m, b), source, out.tokens[b], given, kept, params)


def _write_logprobs(
    out: LogprobResult,
    at: tuple[int, int],
    row: Row,
    drawn: NDArray[np.int64],
    given: NDArray[np.int64],
    kept: Kept,
    params: np.void,
) -> None:
    """Write the log-probabilities of draws, top tokens and given tokens in one mode."""
    mode = out.modes[at[0]]
    temperature = 1.0 if mode == "raw" else reference.to_float32(params["temperature"])
    draws = out.logprobs.shape[2]
    tokens = np.concatenate([drawn[:draws], given])
    is_none = tokens < 0
    keys = np.array([row.sort_key_of_token(max(0, one)) for one in tokens.tolist()], np.int64)
    first = row.first(out.top_tokens.shape[2])
    listed = np.concatenate([keys, first])
    if mode == "processed" or temperature == 0:
        logprobs = kept_logprobs(kept, listed)
    else:
        logprobs = row_logprobs(row, temperature, listed)
    ranks = np.array([row.count(key) for key in keys.tolist()], np.int64)
    logprobs[: len(tokens)][is_none], ranks[is_none] = np.nan, 0
    out.logprobs[at], out.ranks[at] = logprobs[:draws], ranks[:draws]
    out.token_logprobs[at], out.token_ranks[at] = logprobs[draws : len(tokens)], ranks[draws:]
    out.top_logprobs[at], out.top_tokens[at] = logprobs[len(tokens) :], tokens_of(first)
