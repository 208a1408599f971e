"""`verify`: check what is asked for, and prove it."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from typing import Any

from fastsample.checks import SEED
from fastsample.logits import as_rows

from .cases import good_rows
from .report import Report
from .run import Wish, prove

QUICK_SECONDS = 3.5
USUAL_SECONDS = 45.0


def verify(
    logits: Any = None,
    *,
    quick: bool = False,
    minutes: float | None = None,
    seed: int | None = None,
    progress: Callable[[float, int], None] | None = None,
) -> Report:
    """Prove on this machine that nothing but (row, parameters, seed, position, stream) matters.

    Every answer is held to the reference's, bit for bit: over engines, instruction sets, thread
    counts, batches, dtypes, strides, copies, flush-to-zero, shards and orders of the vocabulary.
    Fixed cases come first, then the logits given, then random ones until the time is over.

    Parameters
    ----------
    logits : array of shape (V,) or (B, V), optional
        Rows of your own, as `sample` takes them. Bad rows among them are left out, and of more
        than 64 rows all but 64 that are evenly spread.
    quick : bool
        Take 5 seconds at most, where it would be a minute at most.
    minutes : float, optional
        Go on for so long with random cases.
    seed : int, optional
        Makes the random cases; None takes a fresh one, which the report tells.
    progress : callable, optional
        Called after each case with the share of the time that is over, from 0 to 1, and with the
        number of tokens compared.

    Returns
    -------
    Report
        ``ok``, a line for each of ``invariants``, what is ``shown`` to differ where nothing is
        promised, the ``conditions`` that the result holds for, and a ``fingerprint`` that is equal
        on every machine.

    Raises
    ------
    TypeError
        Logits of a wrong kind or dtype.
    ValueError
        Logits without a good row, `minutes` that are not above 0, or given with `quick`.

    Examples
    --------
    >>> import fastsample
    >>> report = fastsample.verify(quick=True, seed=1)
    >>> report.ok, report.tokens > 100_000
    (True, True)
    """
    if minutes is not None and not 0 < minutes < math.inf:
        raise ValueError(f"`minutes` must be above 0 and finite, got {minutes!r} (1 is one minute)")
    if minutes is not None and quick:
        raise ValueError(f"`minutes` must be left out with `quick`, got {minutes!r} (one of both)")
    values = None if logits is None else as_rows(logits).values
    good = () if values is None else tuple(good_rows(values))
    if values is not None and not good:
        raise ValueError(
            "`logits` must hold a row from which a token can be drawn, got none (a good row holds "
            "a logit above -inf, and neither NaN nor +inf)"
        )
    seconds = QUICK_SECONDS if quick else USUAL_SECONDS if minutes is None else 60 * minutes
    number = secrets.randbits(32) if seed is None else SEED.one(seed)
    return prove(Wish(seconds, number, quick, values, good, progress))
