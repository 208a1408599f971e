"""The native engine: the compiled kernels behind the door that every engine has."""

from __future__ import annotations

from fastsample import _native
from fastsample.adjustments import Adjustments
from fastsample.job import Job, Outcome

_NO_ADJUSTMENTS = Adjustments(None, None, None, None)


def run(job: Job, out: Outcome, *, isa: str | None = None, n_threads: int | None = None) -> None:
    """Draw for every row, with the GIL released.

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
    values, vocabulary, plan, adjustments = job
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
    )
