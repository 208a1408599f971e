"""The native engine: the compiled kernels behind the doors that every engine has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample import _native

from .contract import Adjustments, Job, KeptSets, Outcome

ISAS = _native.isa_usable()
make_step = _native.Step
make_draw = _native.Draw
_NO_ADJUSTMENTS = Adjustments(None, None, None, None)
_LAWS: dict[str, Callable[..., None]] = {
    "softmax": _native.softmax,
    "log_softmax": _native.log_softmax,
    "logsumexp": _native.logsumexp,
}


def run(job: Job, out: Outcome, *, isa: str | None = None, n_threads: int | None = None) -> None:
    """Draw for every row, with the GIL released unless the call is brief.

    It is with up to 2,048 logits and draws, all rows together, and no histories to look at.

    Parameters
    ----------
    job : Job
    out : Outcome
        Written.
    isa : str or None
        The instruction set; None takes the process's own.
    n_threads : int or None
        None lets the kernels choose. The answers are the same for every number.
    """
    values, vocabulary, plan, adjustments, reduction = job
    mask, bias, prompt, output = adjustments or _NO_ADJUSTMENTS
    _native.sample(
        values,
        job.kind,
        vocabulary,
        plan,
        mask,
        bias,
        prompt,
        output,
        *out,
        isa,
        n_threads or 0,
        reduction,
    )


def write_law(
    name: str,
    job: Job,
    out: NDArray[Any],
    status: NDArray[np.uint8],
    *,
    isa: str | None = None,
    n_threads: int | None = None,
) -> None:
    """Write the law of each whole row, as `WriteLaw` says."""
    temperatures = np.ascontiguousarray(job.plan["temperature"])
    _LAWS[name](
        *(job.values, job.kind, job.vocabulary, temperatures),
        *(out, status, isa, n_threads or 0, job.reduction),
    )


def kept_sets(
    job: Job, status: NDArray[np.uint8], *, isa: str | None = None, n_threads: int | None = None
) -> KeptSets:
    """Find the kept set of each row, as `FindKeptSets` says."""
    values, vocabulary, plan, adjustments, _ = job
    mask, bias, prompt, output = adjustments or _NO_ADJUSTMENTS
    return KeptSets(
        *_native.kept_sets(
            values,
            job.kind,
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
