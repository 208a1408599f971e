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


def of_tokens(
    row: NDArray[np.float32], logprobs: NDArray[np.float64], tokens: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Select what is returned for some tokens of a row.

    Parameters
    ----------
    row : float32 array of shape (V,)
        The row that gives the order: unmodified for `raw`, else after section 2.
    logprobs : float64 array of shape (V,)
    tokens : int64 array of shape (K,)
        In [0, V), or -1 for none.

    Returns
    -------
    logprobs : float64 array of shape (K,)
        nan for no token, and for all if the row is invalid.
    ranks : int64 array of shape (K,)
        1 + the number of tokens before each in section 3's order; 0 where the first array is nan.

    Examples
    --------
    >>> row = np.array([1, 3, 2], dtype=np.float32)
    >>> of_tokens(row, raw(row), np.array([2, -1, 1]))[1].tolist()
    [2, 0, 1]
    """
    found, ranks = np.full(len(tokens), np.nan), np.zeros(len(tokens), np.int64)
    if status(row) == OK:
        is_token = tokens >= 0
        found[is_token] = logprobs[tokens[is_token]]
        ranks[is_token] = 1 + np.argsort(order(row))[tokens[is_token]]
    return found, ranks


def first(
    row: NDArray[np.float32], logprobs: NDArray[np.float64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the first tokens of a row, those at -inf last, and their log-probabilities.

    -1 and nan if the row is invalid. `count` is at most V.

    Examples
    --------
    >>> row = np.array([1, 3, 2], dtype=np.float32)
    >>> first(row, raw(row), 2)[0].tolist()
    [1, 2]
    """
    if status(row) != OK:
        return np.full(count, -1), np.full(count, np.nan)
    tokens = order(row)[:count]
    return tokens, logprobs[tokens]
