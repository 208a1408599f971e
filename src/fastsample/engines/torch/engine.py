"""The torch engine: operations of torch, on the CPU where the rows are arrays.

Arrays are for tests, and for installations without another engine. Tensors stay on their device:
`sample` takes them to `operator`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastsample.engines import contract
from fastsample.engines.contract import LogprobResult, SampleOutput, SampleRequest
from fastsample.engines.reference.rows import OK, require_rounding_to_nearest
from fastsample.params.table import PENALTY_SCOPES

from . import batch, softmax
from .batch import TensorOutput, TensorRequest
from .from_numpy import (
    method_of,
    numbers_of,
    ops_of,
    processors_of,
    rng_position_of,
    scopes_of,
    tensor_of,
)
from .logprobs import NO_LOGPROBS, LogprobTokens
from .mass import exponent2, masses
from .ordinal import read, rows_of, top_tokens
from .penalties import TensorProcessors
from .prepare_params import FIXED, prepare_params

_LOGITS_AT_ONCE = 2**20
_SHARED = ("ops", "draw", *(scope.name for scope in PENALTY_SCOPES))
"""The fields of a plan that all rows of a batch must share."""


class ArrayEngine(NamedTuple):
    """An engine of tensors that takes arrays: it copies them to a device, and the output back.

    Attributes
    ----------
    sample : callable
        From `TensorRequest` to `TensorOutput`.
    device : torch.device
        Where it draws.
    """

    sample: Callable[[TensorRequest], TensorOutput]
    device: torch.device

    def run(self, request: SampleRequest, out: SampleOutput, **_options: Any) -> None:
        """Draw for every row, as `Run` says; torch has threads of its own."""
        require_exact(request.reduction)
        result = out.logprobs
        for rows in _batches(request):
            wanted = _wanted(request, result, rows)
            part = _part(request, rows, out.status, out.tokens.shape[1], wanted)
            found = TensorOutput(
                *(tensor.cpu().numpy() for tensor in self.sample(_to(part, self.device)))
            )
            status = out.status[rows]
            out.tokens[rows] = found.tokens
            out.status[rows] = np.where(status == OK, found.status, status)
            if out.kept_count is not None:
                out.kept_count[rows] = found.kept_count
            if result is not None:
                for name in LogprobResult._fields[1:]:
                    getattr(result, name)[:, rows] = getattr(found, name)


def kept_sets(
    request: SampleRequest, status: NDArray[np.uint8], **_options: Any
) -> contract.KeptSets:
    """Find the kept set of each row; on the CPU."""
    found = [contract.NO_TOKENS] * len(request.plan)
    for some in _batches(request):
        rows, kept, its_status = batch.kept_sets(_part(request, some, status))
        status[some] = np.where(status[some] == OK, its_status[:, 0].numpy(), status[some])
        kept = kept._replace(end=kept.end.masked_fill(its_status != OK, 0))
        tokens, logits = top_tokens(rows, int(kept.end.max()))
        mass = masses(exponent2(logits, kept.scaling))
        for place, b in enumerate(some):
            part = slice(int(kept.begin[place]), int(kept.end[place]))
            found[b] = (
                tokens[place, part].numpy(),
                mass[place, part].numpy().view(np.uint64),
                logits[place, part].numpy(),
            )
    return contract.KeptSets.of_rows(found)


def write_softmax(
    name: str,
    request: SampleRequest,
    out: NDArray[Any],
    status: NDArray[np.uint8],
    **_options: Any,
) -> None:
    """Write softmax, log_softmax or logsumexp of each row, on the CPU."""
    require_exact(request.reduction)
    require_rounding_to_nearest()
    rows = rows_of(read(_tensor(request.values), request.vocabulary))
    params = prepare_params(tensor_of(numbers_of(request.plan)[:, : len(FIXED)]), ())
    status[:] = batch.status_of(rows, None)[:, 0]
    found = getattr(softmax, name)(rows, params)
    found = found[:, 0] if name == "logsumexp" else found[:, : request.vocabulary]
    valid = status == OK
    out[valid] = found.numpy()[valid]


def require_exact(reduction: str) -> None:
    """Refuse the reductions that these engines lack."""
    if reduction != "exact":
        raise ValueError(
            f"`reduction` must be \"exact\" for engines 'torch' and 'triton', got {reduction!r} "
            '(another engine has it: engine="native" for logits on the CPU)'
        )


run = ArrayEngine(batch.sample, torch.device("cpu")).run

# ---------------------------------------------------------------- from arrays to tensors


def _batches(request: SampleRequest) -> Iterator[NDArray[np.int64]]:
    """The rows of a request, grouped by what a batch shares, in parts that fit in caches."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for b, row in enumerate(zip(*(request.plan[name].tolist() for name in _SHARED), strict=True)):
        groups.setdefault(row, []).append(b)
    most = max(1, _LOGITS_AT_ONCE // request.vocabulary)
    for group in groups.values():
        for at in range(0, len(group), most):
            yield np.array(group[at : at + most], np.int64)


def _part(
    request: SampleRequest,
    rows: NDArray[np.int64],
    status: NDArray[np.uint8],
    draws: int = 1,
    wanted: LogprobTokens = NO_LOGPROBS,
) -> TensorRequest:
    """Some rows of a request, on the CPU."""
    plan = request.plan[rows]
    return TensorRequest(
        _tensor(request.values if len(rows) == len(request.plan) else request.values[rows]),
        request.vocabulary,
        tensor_of(numbers_of(plan)),
        None,
        tensor_of(rng_position_of(plan)),
        torch.from_numpy(status[rows] != OK),
        processors_of(request.processors, rows, scopes_of(plan)),
        ops_of(plan),
        draws,
        method_of(plan),
        wanted,
    )


def _wanted(
    request: SampleRequest, result: LogprobResult | None, rows: NDArray[np.int64]
) -> LogprobTokens:
    """Whose log-probabilities are wanted in some rows, on the CPU."""
    if result is None:
        return NO_LOGPROBS
    given = request.logprob_tokens
    tokens = None if given is None else tensor_of(given[rows])
    draws, top_count = result.logprobs.shape[2], result.top_tokens.shape[2]
    return LogprobTokens(result.modes, draws, top_count, tokens)


def _to(request: TensorRequest, device: torch.device) -> TensorRequest:
    """Copy what must be on the device of the logits there."""
    *parts, scopes = request.processors
    copies = (None if part is None else part.to(device) for part in parts)
    processors = TensorProcessors._make((*copies, scopes))
    wanted, given = request.wanted, request.wanted.given
    if given is not None:
        wanted = wanted._replace(given=given.to(device))
    return request._replace(values=request.values.to(device), processors=processors, wanted=wanted)


def _tensor(values: NDArray[Any]) -> Tensor:
    """The logits as a tensor: in place, unless torch cannot describe such memory."""
    is_strided = all(step >= 0 and step % values.itemsize == 0 for step in values.strides)
    if not (is_strided and values.flags.writeable and values.flags.aligned):
        values = np.array(values, order="C")
    if values.dtype == np.uint16:
        return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(values)
