"""Section 7 of the rule: log-probabilities, raw, tempered and processed.

Each is a float64 array with a log-probability for every token of a row. `reduction` is a mode of
section 8. As in `trace`, a processor that does not round to nearest is a RuntimeError.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .filters import Trace
from .mass import ln
from .ordinal import order
from .reductions import REDUCTIONS
from .rows import OK, read, require_rounding_to_nearest, status, to_float32


def relative_total(row: NDArray[np.float32], temperature: float, reduction: str) -> float:
    """Sum the masses of a row, relative to that of the top token: W / 2**40 in exact."""
    require_rounding_to_nearest()
    mode = REDUCTIONS[reduction]
    _, mass = mode.masses(row, row.max(), temperature)
    return float(mode.total(np.arange(len(row)), mass)) / mode.top


def raw(row: NDArray[np.float32], reduction: str = "exact") -> NDArray[np.float64]:
    """Log-probabilities of an unmodified row, at temperature 1.

    nan for all tokens if the row holds NaN or +inf, which a mask may ban.

    Examples
    --------
    >>> raw(np.zeros(2, dtype=np.float32)).tolist()
    [-0.6931471805599453, -0.6931471805599453]
    """
    if status(row) != OK:
        return np.full(row.shape, np.nan)
    return _of_row(read(row), 1.0, reduction)


def tempered(
    row: NDArray[np.float32], temperature: float, reduction: str = "exact"
) -> NDArray[np.float64]:
    """Log-probabilities of a row after section 2, at a temperature, before the filters.

    At temperature 0: 0 for the first token, -inf for the rest.

    Examples
    --------
    >>> tempered(np.array([0, 1], dtype=np.float32), 0.0).tolist()
    [-inf, 0.0]
    """
    if to_float32(temperature) == 0.0:
        logprobs = np.full(row.shape, -np.inf)
        logprobs[order(row)[0]] = 0.0
        return logprobs
    return _of_row(read(row), temperature, reduction)


def _of_row(row: NDArray[np.float32], temperature: float, reduction: str) -> NDArray[np.float64]:
    """(x - m) / T - ln(W / 2**40) over a row that `read` returned."""
    gap = row.astype(np.float64) - np.float64(row.max())
    log_total = ln(relative_total(row, temperature, reduction))
    with np.errstate(all="ignore"):
        logprobs: NDArray[np.float64] = gap / to_float32(temperature) - log_total
    return logprobs


def processed(seen: Trace) -> NDArray[np.float64]:
    """Log-probabilities of the kept set, which the token is drawn from.

    -inf for tokens that are not kept or have mass 0.

    Examples
    --------
    >>> from fastsample.engines.reference import trace
    >>> processed(trace(np.zeros(3, dtype=np.float32), top_k=2)).round(12).tolist()
    [-0.69314718056, -0.69314718056, -inf]
    """
    logprobs = np.full(seen.order.shape, -np.inf)
    is_drawable = seen.masses > 0
    mass = seen.masses[is_drawable].astype(np.float64)
    logprobs[seen.tokens[is_drawable]] = ln(mass) - ln(float(seen.total))
    return logprobs


def select(
    row: NDArray[np.float32], logprobs: NDArray[np.float64], token: int, count: int
) -> tuple[float, int, NDArray[np.int64], NDArray[np.float64]]:
    """Select what is returned for a draw.

    Parameters
    ----------
    row : float32 array of shape (V,)
        The row that gives the order: unmodified for `raw`, else after section 2.
    logprobs : float64 array of shape (V,)
    token : int
        The token drawn.
    count : int
        The number of top tokens, at most V. Those at -inf are last.

    Returns
    -------
    logprob : float
        That of the drawn token.
    rank : int
        1 + the number of tokens before it in section 3's order; 0 if the row is invalid.
    top_tokens : int64 array of shape (count,)
        The first tokens of the row; -1 if it is invalid.
    top_logprobs : float64 array of shape (count,)

    Examples
    --------
    >>> row = np.array([1, 3, 2], dtype=np.float32)
    >>> _, rank, top_tokens, _ = select(row, raw(row), token=2, count=2)
    >>> rank, top_tokens.tolist()
    (2, [1, 2])
    """
    if status(row) != OK:
        return np.nan, 0, np.full(count, -1), np.full(count, np.nan)
    ranked = order(row)
    rank = 1 + int(np.flatnonzero(ranked == token)[0])
    return float(logprobs[token]), rank, ranked[:count], logprobs[ranked[:count]]
