"""The doors of the engines whose batches are tensors: from arrays to a device, and back.

Arrays are for tests, and for where nothing else is installed. Tensors that stay on their device go
through `fastsample.device` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastsample.engines.contract import KeptSets, SampleOutput, SampleRequest
from fastsample.engines.reference.rows import OK, require_rounding_to_nearest
from fastsample.params.table import STAGES

from . import softmax as laws
from .batch import Answer, Asked, adjusted, prepared, scale_kept, status_of
from .from_numpy import (
    PLACE,
    REALS,
    SCOPES,
    WHOLES,
    adjustments_of,
    columns,
    require_exact,
    scopes_of,
    stages_code,
)
from .logprobs import FORMS
from .mass import gaps, masses
from .penalties import Adjustments
from .prepare_params import settings_of
from .rows import first, rows_of, widened

_LOGITS_AT_ONCE = 2**20
_SAME = ("stages", *SCOPES)
_LAWS = {
    "softmax": laws.softmax,
    "log_softmax": laws.log_softmax,
    "logsumexp": laws.logsumexp,
}


class Doors(NamedTuple):
    """The doors of an engine.

    Attributes
    ----------
    sample : callable
        From `Asked` to `Answer`.
    device : torch.device
        Where it draws.
    """

    sample: Callable[[Asked], Answer]
    device: torch.device

    def run(
        self,
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
            Here for the shape of the door: torch has threads of its own.
        """
        require_exact(request.reduction)
        draws, result = out.tokens.shape[1], out.logprobs
        forms = result.modes if result else ()
        top_count = result.top_tokens.shape[2] if result else 0
        for some in _batches(request):
            asked = self._asked(request, some, out.status, draws, forms, top_count)
            answer = Answer(*(part.cpu().numpy() for part in self.sample(asked)))
            came = out.status[some]
            out.tokens[some] = answer.tokens
            out.status[some] = np.where(came == OK, answer.status, came)
            if out.kept_count is not None:
                out.kept_count[some] = answer.kept_count
            if result is not None:
                result.logprobs[:, some], result.ranks[:, some] = answer.logprobs, answer.ranks
                result.top_tokens[:, some] = answer.top_tokens
                result.top_logprobs[:, some] = answer.top_logprobs

    def kept_sets(
        self,
        request: SampleRequest,
        status: NDArray[np.uint8],
        *,
        isa: str | None = None,
        n_threads: int | None = None,
    ) -> KeptSets:
        """Find the kept set of each row, as `FindKeptSets` says: so many first tokens."""
        found: list[tuple[NDArray[Any], ...]] = [_NO_TOKENS] * len(request.plan)
        for some in _batches(request):
            asked = self._asked(request, some, status)
            answer = self.sample(asked)
            came, counts = status[some], answer.kept_count.cpu().numpy()
            status[some] = np.where(came == OK, answer.status.cpu().numpy(), came)
            settings, chain, _ = prepared(asked)
            _, rows = adjusted(asked, settings)
            tokens, logits = first(rows, int(counts.max()))
            mass = masses(gaps(logits, rows.top, scale_kept(chain, settings)))
            lists = (part.cpu().numpy() for part in (tokens, mass, logits))
            for b, count, *row in zip(some, counts, *lists, strict=True):
                found[b] = tuple(one[:count] for one in row)
        offsets = np.cumsum([0, *(len(row[0]) for row in found)], dtype=np.int64)
        tokens, mass, logits = (
            np.concatenate(column) for column in zip(_NO_TOKENS, *found, strict=True)
        )
        return KeptSets(tokens, mass.view(np.uint64), logits, offsets)

    def _asked(
        self,
        request: SampleRequest,
        some: NDArray[np.int64],
        status: NDArray[np.uint8],
        draws: int = 1,
        forms: tuple[str, ...] = (),
        top_count: int = 0,
    ) -> Asked:
        plan = request.plan[some]
        *parts, scopes = adjustments_of(request.adjustments, some, scopes_of(plan))
        there = (None if part is None else part.to(self.device) for part in parts)
        return Asked(
            _tensor(request.values if len(some) == len(request.plan) else request.values[some]).to(
                self.device
            ),
            request.vocabulary,
            columns(plan, REALS),
            columns(plan, WHOLES),
            columns(plan, PLACE),
            torch.from_numpy(status[some] != OK),
            Adjustments._make((*there, scopes)),
            stages_code(tuple(STAGES[code - 1] for code in plan["stages"][0])),
            draws,
            tuple(FORMS.index(form) for form in forms),
            top_count,
        )


def write_softmax(
    name: str,
    request: SampleRequest,
    out: NDArray[Any],
    status: NDArray[np.uint8],
    *,
    isa: str | None = None,
    n_threads: int | None = None,
) -> None:
    """Write softmax, log_softmax or logsumexp of each row, on the CPU, as `WriteSoftmax` says."""
    require_exact(request.reduction)
    require_rounding_to_nearest()
    rows = rows_of(widened(_tensor(request.values), request.vocabulary))
    settings, _ = settings_of(columns(request.plan, REALS), columns(request.plan, WHOLES))
    status[:] = status_of(rows, torch.zeros_like(rows.top, dtype=torch.bool))[:, 0]
    law = _LAWS[name](rows, settings)
    good = status == OK
    out[good] = (law[:, 0] if name == "logsumexp" else law[:, : request.vocabulary]).numpy()[good]


_NO_TOKENS = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))


# ---------------------------------------------------------------- from arrays to tensors


def _batches(request: SampleRequest) -> Iterator[NDArray[np.int64]]:
    """The rows of a request, grouped by what a batch shares, in parts that fit in caches."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for b, row in enumerate(zip(*(request.plan[name].tolist() for name in _SAME), strict=True)):
        groups.setdefault(row, []).append(b)
    most = max(1, _LOGITS_AT_ONCE // request.vocabulary)
    for group in groups.values():
        for at in range(0, len(group), most):
            yield np.array(group[at : at + most], np.int64)


def _tensor(values: NDArray[Any]) -> Tensor:
    """The logits as a tensor: in place, unless torch has no name for such memory."""
    whole = all(step >= 0 and step % values.itemsize == 0 for step in values.strides)
    if not (whole and values.flags.writeable and values.flags.aligned):
        values = np.array(values, order="C")
    if values.dtype == np.uint16:
        return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(values)
