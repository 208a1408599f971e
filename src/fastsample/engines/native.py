"""The native engine: the compiled kernels behind the doors that every engine has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample import _native

from .contract import KeptSets, LogitsProcessors, LogprobResult, SampleOutput, SampleRequest

ISAS = _native.isa_usable()
make_step = _native.Step
make_draw = _native.Draw
_NO_PROCESSORS = LogitsProcessors(None, None, None, None)
_NO_LOGPROBS = LogprobResult.empty((), 0, 0)
_LAWS: dict[str, Callable[..., None]] = {
    "softmax": _native.softmax,
    "log_softmax": _native.log_softmax,
    "logsumexp": _native.logsumexp,
}


def run(
    request: SampleRequest,
    out: SampleOutput,
    *,
    isa: str | None = None,
    n_threads: int | None = None,
) -> None:
    """Draw for every row, with the GIL released unless the call is brief.

    It is with up to 2,048 logits and draws, all rows together, and no histories to look at.

    Parameters
    ----------
    request : SampleRequest
    out : SampleOutput
        Written.
    isa : str or None
        The instruction set; None takes the process's own.
    n_threads : int or None
        None lets the kernels choose. The answers are the same for every number.
    """
    values, vocabulary, plan, processors, reduction = request
    mask, bias, prompt, output = processors or _NO_PROCESSORS
    _native.sample(
        values,
        request.kind,
        vocabulary,
        plan,
        mask,
        bias,
        prompt,
        output,
        out.tokens,
        out.status,
        out.kept_count,
        *(out.logprobs or _NO_LOGPROBS),
        isa,
        n_threads or 0,
        reduction,
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
    """Write the law of each whole row, as `WriteSoftmax` says."""
    temperatures = np.ascontiguousarray(request.plan["temperature"])
    _LAWS[name](
        *(request.values, request.kind, request.vocabulary, temperatures),
        *(out, status, isa, n_threads or 0, request.reduction),
    )


def kept_sets(
    request: SampleRequest,
    status: NDArray[np.uint8],
    *,
    isa: str | None = None,
    n_threads: int | None = None,
) -> KeptSets:
    """Find the kept set of each row, as `FindKeptSets` says."""
    values, vocabulary, plan, processors, _ = request
    mask, bias, prompt, output = processors or _NO_PROCESSORS
    return KeptSets(
        *_native.kept_sets(
            values,
            request.kind,
            vocabulary,
            plan,
            mask,
            bias,
            prompt,
            output,
            status,
            isa,
            n_threads or 0,
        )
    )
