"""`verify`: check what is asked for. The proof is loaded only then: whoever samples needs none."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fastsample.inputs.logits import as_rows
from fastsample.params.parameters import fresh_seed
from fastsample.params.table import SEED
from fastsample.params.validation import FloatParameter

if TYPE_CHECKING:
    from . import Report

QUICK_SECONDS = 3.5
USUAL_SECONDS = 45.0
MINUTES = FloatParameter(
    name="minutes",
    rule="above 0 and finite",
    way_out="1 is one minute",
    low=math.nextafter(0.0, 1.0),
    high=sys.float_info.max,
    dtype=np.float64,
)


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
    Fixed cases come first, then the logits given, then random ones until the time is over. Torch,
    where it is installed, answers in a forked child, so that nothing changes for yours here.

    Parameters
    ----------
    logits : array of shape (V,) or (B, V), optional
        Rows of your own, as `sample` takes them. Bad rows among them are left out, and of more
        than 64 rows all but 64 that are evenly spread.
    quick : bool
        Take about 5 seconds, where it would be about a minute: the fixed cases and a case that has
        begun are held to their end, which takes longer without the compiled extension.
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
        Logits of a wrong kind or dtype, `minutes` that are no number, `quick` that is no bool, or a
        `progress` that cannot be called.
    ValueError
        Logits without a good row, `minutes` that are not above 0, or given with `quick`.

    Examples
    --------
    >>> import fastsample
    >>> report = fastsample.verify(quick=True, seed=1)
    >>> report.ok, report.tokens > 100_000
    (True, True)
    """
    from .cases import good_rows
    from .run import Wish, prove

    _check_kinds(quick, progress)
    length = None if minutes is None else MINUTES.one(minutes)
    if minutes is not None and quick:
        raise ValueError(f"`minutes` must be left out with `quick`, got {minutes!r} (one of both)")
    values = None if logits is None else as_rows(logits).values
    good = () if values is None else tuple(good_rows(values))
    if values is not None and not good:
        raise ValueError(
            "`logits` must hold a row from which a token can be drawn, got none (a good row holds "
            "a logit above -inf, and neither NaN nor +inf)"
        )
    seconds = QUICK_SECONDS if quick else USUAL_SECONDS if length is None else 60 * length
    # A seed that is told is short enough to be typed.
    number = fresh_seed() >> 32 if seed is None else SEED.one(seed)
    return prove(Wish(seconds, number, quick, values, good, progress))


def _check_kinds(quick: Any, progress: Any) -> None:
    if not isinstance(quick, bool):
        raise TypeError(
            f"`quick` must be True or False, got {type(quick).__name__} {quick!r} (True takes "
            "about 5 seconds)"
        )
    if progress is not None and not callable(progress):
        raise TypeError(
            f"`progress` must be callable, got {type(progress).__name__} {progress!r} (it is "
            "called with a share of the time and a number of tokens; None tells nobody)"
        )
