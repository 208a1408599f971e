"""`verify`: check on this machine that results depend on the inputs of section 9 alone.

Cases (`cases`, `rows`) are checked on every backend (`backends`, `calls`) by each of the
`invariants`, and `comparison` compares the results with the reference's; `run` does so until the
time is over, with torch in a forked process (`worker`). These modules are loaded by the call.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastsample.inputs.logits import as_rows
from fastsample.params.table import MINUTES, SEED

if TYPE_CHECKING:
    from .comparison import Comparison as Comparison
    from .comparison import Mismatch as Mismatch
    from .comparison import Report as Report

QUICK_SECONDS = 3.5
DEFAULT_SECONDS = 45.0


def verify(
    logits: Any = None,
    *,
    quick: bool = False,
    minutes: float | None = None,
    seed: int | None = None,
    progress: Callable[[float, int], None] | None = None,
) -> Report:
    """Check on this machine that a token depends on row, parameters and random numbers alone.

    Results are compared bit for bit with the reference's over engines, instruction sets, thread
    counts, batches, dtypes, strides, copies, flush-to-zero, shards and permutations of the
    vocabulary: in fixed cases, with your logits, then in random cases until the time is over. Torch
    is checked in a forked process, so that nothing changes for torch in this one.

    Parameters
    ----------
    logits : array of shape (V,) or (B, V), optional
        Your own rows, as `sample` takes them. Invalid rows are left out, and of more than 64 rows
        all but 64 that are evenly spread.
    quick : bool
        Take about 5 seconds instead of about a minute. The fixed cases, and a case that has begun,
        are always finished, which takes longer without the compiled extension.
    minutes : float, optional
        Continue with random cases for this long.
    seed : int, optional
        Makes the random cases; None takes a fresh one, which the report has.
    progress : callable, optional
        Called after each case with the share of the time that is over, from 0 to 1, and with the
        number of tokens compared.

    Returns
    -------
    Report
        ``ok``; a line for each of ``invariants``; ``baselines``, samplers without guarantees; the
        ``environment`` that the result holds for; a ``fingerprint`` that is equal on every machine.

    Raises
    ------
    TypeError
        `logits` of a wrong kind or dtype, `minutes` that is not a number, `quick` that is not a
        bool, or `progress` that is not callable.
    ValueError
        `logits` without a valid row, `minutes` not above 0, or `minutes` together with `quick`.

    Examples
    --------
    >>> import fastsample
    >>> report = fastsample.verify(quick=True, seed=1)
    >>> report.ok, report.tokens > 100_000
    (True, True)
    """
    from .cases import valid_rows
    from .run import Verification

    if not isinstance(quick, bool):
        raise TypeError(
            f"`quick` must be True or False, got {type(quick).__name__} {quick!r} (True takes "
            "about 5 seconds)"
        )
    if progress is not None and not callable(progress):
        raise TypeError(
            f"`progress` must be callable, got {type(progress).__name__} {progress!r} (it is "
            "called with a share of the time and a number of tokens; None calls nothing)"
        )
    if minutes is not None and quick:
        raise ValueError(f"`minutes` must be left out with `quick`, got {minutes!r} (one of both)")
    usual = QUICK_SECONDS if quick else DEFAULT_SECONDS
    seconds = usual if minutes is None else 60 * MINUTES.one(minutes)
    values = None if logits is None else as_rows(logits).values
    valid = () if values is None else tuple(valid_rows(values))
    if values is not None and not valid:
        raise ValueError(
            "`logits` must hold a row from which a token can be drawn, got none (a valid row holds "
            "a logit above -inf, and neither NaN nor +inf)"
        )
    # 32 bits, so that a seed from a report is short enough to type.
    number = int.from_bytes(os.urandom(4), "little") if seed is None else SEED.one(seed)
    return Verification(seconds, number, quick, values, valid, progress).run()
