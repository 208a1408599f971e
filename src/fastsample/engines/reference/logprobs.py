"""Section 7 of the rule: the laws that a draw is told by, and softmax and its kin.

The last of the reference's rooms. A law is a float64 array of log-probabilities, one for each
token of a row; there are three: raw (the row as it came), tempered (the adjusted row at its
temperature) and processed (the kept set). `reduction` is a mode of section 8. Like `trace`, they
raise RuntimeError where the processor does not round to nearest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .filters import Trace
from .mass import ln, power, scale
from .ordinal import order
from .reductions import REDUCTIONS
from .rows import OK, read, require_rounding_to_nearest, status, to_float32

_LOWEST_EXPONENT = np.float32(-126.0)

# ---------------------------------------------------------------- laws


def _total(row: NDArray[np.float32], temperature: float, reduction: str) -> float:
    """Mass of the whole row, where the top token's is 1: W / 2**40, in exact."""
    require_rounding_to_nearest()
    how = REDUCTIONS[reduction]
    _, mass = how.masses(row, row.max(), temperature)
    return float(how.total(np.arange(len(row)), mass)) / how.top


def _whole(row: NDArray[np.float32], temperature: float, reduction: str) -> NDArray[np.float64]:
    """(x - m) / T - ln(W / 2**40) over a row that `read` returned."""
    gap = row.astype(np.float64) - np.float64(row.max())
    log_total = ln(_total(row, temperature, reduction))
    with np.errstate(all="ignore"):
        law: NDArray[np.float64] = gap / to_float32(temperature) - log_total
    return law


def _one_hot(row: NDArray[np.float32]) -> NDArray[np.float64]:
    law = np.full(row.shape, -np.inf)
    law[order(row)[0]] = 0.0
    return law


def raw(row: NDArray[np.float32], reduction: str = "exact") -> NDArray[np.float64]:
    """Log-probabilities of a row as it came: before it is adjusted, at temperature 1.

    nan for all tokens when the row itself holds NaN or +inf, which a mask may have banned.

    Examples
    --------
    >>> raw(np.zeros(2, dtype=np.float32)).tolist()
    [-0.6931471805599453, -0.6931471805599453]
    """
    if status(row) != OK:
        return np.full(row.shape, np.nan)
    return _whole(read(row), 1.0, reduction)


def tempered(
    row: NDArray[np.float32], temperature: float, reduction: str = "exact"
) -> NDArray[np.float64]:
    """Log-probabilities of an adjusted row at a temperature, before the filters.

    At temperature 0: 0 for the first token, -inf for the rest.

    Examples
    --------
    >>> tempered(np.array([0, 1], dtype=np.float32), 0.0).tolist()
    [-inf, 0.0]
    """
    if to_float32(temperature) == 0.0:
        return _one_hot(row)
    return _whole(read(row), temperature, reduction)


def processed(seen: Trace) -> NDArray[np.float64]:
    """Log-probabilities of the kept set: of the very law that is drawn from.

    -inf for tokens that are not kept or have mass 0.

    Examples
    --------
    >>> from fastsample.engines.reference import trace
    >>> processed(trace(np.zeros(3, dtype=np.float32), top_k=2)).round(12).tolist()
    [-0.69314718056, -0.69314718056, -inf]
    """
    law = np.full(seen.order.shape, -np.inf)
    is_drawable = seen.masses > 0
    mass = seen.masses[is_drawable].astype(np.float64)
    law[seen.tokens[is_drawable]] = ln(mass) - ln(float(seen.total))
    return law


@dataclass(frozen=True)
class Told:
    """What a law says of a draw.

    Attributes
    ----------
    logprob : float
        The drawn token's.
    rank : int
        1 + the tokens before it in section 3's order; 0 where the row has no law.
    top_tokens : int64 array of shape (N,)
        The first N tokens of the row; -1 where it has no law.
    top_logprobs : float64 array of shape (N,)
    """

    logprob: float
    rank: int
    top_tokens: NDArray[np.int64]
    top_logprobs: NDArray[np.float64]


def tell(row: NDArray[np.float32], law: NDArray[np.float64], token: int, count: int) -> Told:
    """Tell of a draw by one law.

    Parameters
    ----------
    row : float32 array of shape (V,)
        The row of the law, which gives the order: as it came for `raw`, else adjusted.
    law : float64 array of shape (V,)
    token : int
        The token drawn.
    count : int
        How many of the first tokens to tell of, at most V. Those of -inf come last.

    Examples
    --------
    >>> row = np.array([1, 3, 2], dtype=np.float32)
    >>> told = tell(row, raw(row), token=2, count=2)
    >>> told.rank, told.top_tokens.tolist()
    (2, [1, 2])
    """
    if status(row) != OK:
        return Told(np.nan, 0, np.full(count, -1), np.full(count, np.nan))
    ranked = order(row)
    first = ranked[:count]
    return Told(float(law[token]), 1 + ranked.tolist().index(token), first, law[first])


# ---------------------------------------------------------------- softmax and its kin


def _checked(row: NDArray[np.float32]) -> NDArray[np.float32]:
    if status(row) != OK:
        raise ValueError("`row` must hold a logit above -inf, and neither NaN nor +inf")
    return read(row)


def softmax(
    row: NDArray[np.float32], temperature: float, reduction: str = "exact"
) -> NDArray[np.float32]:
    """Probabilities of a whole row: float32, with full relative precision down to 2**-126.

    2**y of section 4, with y down to -126 and 0 below, times float32(2**40 / W), W the row's total
    mass; in section 8's other modes float32(1 / W). At temperature 0: 1 for the first token. Raises
    ValueError for a bad row.

    Examples
    --------
    >>> softmax(np.array([0, 0, -np.inf], dtype=np.float32), 1.0)
    array([0.5, 0.5, 0. ], dtype=float32)
    """
    row = _checked(row)
    if to_float32(temperature) == 0.0:
        return np.exp(_one_hot(row)).astype(np.float32)
    with np.errstate(all="ignore"):
        y = (row - row.max()) * scale(temperature)
        p, k = power(np.maximum(y, _LOWEST_EXPONENT))
    unscaled = np.where(y >= _LOWEST_EXPONENT, np.ldexp(p, k), 0.0)
    r = np.float32(1.0 / _total(row, temperature, reduction))
    return _nearest_float32(unscaled * np.float64(r))


def _nearest_float32(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round values of at least 0 to float32; what becomes denormal, as the integer it is."""
    bits = np.maximum(values, 2.0**-126).astype(np.float32).view(np.uint32)
    denormal = np.rint(values * 2.0**149)
    return np.where(values < 2.0**-126, denormal, bits).astype(np.uint32).view(np.float32)


def log_softmax(
    row: NDArray[np.float32], temperature: float, reduction: str = "exact"
) -> NDArray[np.float32]:
    """Log-probabilities of a whole row at a temperature: `tempered`, rounded to float32.

    Raises ValueError for a bad row.

    Examples
    --------
    >>> log_softmax(np.array([2, 2], dtype=np.float32), 1.0)
    array([-0.6931472, -0.6931472], dtype=float32)
    """
    with np.errstate(all="ignore"):
        return tempered(_checked(row), temperature, reduction).astype(np.float32)


def logsumexp(row: NDArray[np.float32], temperature: float, reduction: str = "exact") -> float:
    """ln of the sum of exp(x / T) over a whole row: m / T + ln(W / 2**40), T above 0, in float64.

    Raises ValueError for a bad row.

    Examples
    --------
    >>> logsumexp(np.array([2, 2], dtype=np.float32), 1.0)
    2.6931471805599454
    """
    row = _checked(row)
    log_total = ln(_total(row, temperature, reduction))
    return float(np.float64(row.max()) / to_float32(temperature) + log_total)
