"""Section 7 of the rule: softmax, log_softmax and logsumexp of a row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .logprobs import relative_total, tempered
from .mass import ln, power, scale
from .rows import OK, read, status, to_float32

_LOWEST_EXPONENT = np.float32(-126.0)


def _checked(row: NDArray[np.float32]) -> NDArray[np.float32]:
    if status(row) != OK:
        raise ValueError("`row` must hold a logit above -inf, and neither NaN nor +inf")
    return read(row)


def softmax(
    row: NDArray[np.float32], temperature: float, reduction: str = "exact"
) -> NDArray[np.float32]:
    """Probabilities of a row: float32, with full relative precision down to 2**-126.

    2**y of section 4, with y down to -126 and 0 below, times float32(2**40 / W), W the row's total
    mass; in section 8's other modes float32(1 / W). At temperature 0: 1 for the first token. Raises
    ValueError for an invalid row.

    Examples
    --------
    >>> softmax(np.array([0, 0, -np.inf], dtype=np.float32), 1.0)
    array([0.5, 0.5, 0. ], dtype=float32)
    """
    row = _checked(row)
    if to_float32(temperature) == 0.0:
        return np.exp(tempered(row, 0.0)).astype(np.float32)
    with np.errstate(all="ignore"):
        y = (row - row.max()) * scale(temperature)
        p, k = power(np.maximum(y, _LOWEST_EXPONENT))
    unscaled = np.where(y >= _LOWEST_EXPONENT, np.ldexp(p, k), 0.0)
    r = np.float32(1.0 / relative_total(row, temperature, reduction))
    return _nearest_float32(unscaled * np.float64(r))


def _nearest_float32(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round values of at least 0 to float32; denormal results are computed as integers."""
    bits = np.maximum(values, 2.0**-126).astype(np.float32).view(np.uint32)
    denormal = np.rint(values * 2.0**149)
    return np.where(values < 2.0**-126, denormal, bits).astype(np.uint32).view(np.float32)


def log_softmax(
    row: NDArray[np.float32], temperature: float, reduction: str = "exact"
) -> NDArray[np.float32]:
    """Log-probabilities of a row at a temperature: `tempered`, rounded to float32.

    Raises ValueError for an invalid row.

    Examples
    --------
    >>> log_softmax(np.array([2, 2], dtype=np.float32), 1.0)
    array([-0.6931472, -0.6931472], dtype=float32)
    """
    with np.errstate(all="ignore"):
        return tempered(_checked(row), temperature, reduction).astype(np.float32)


def logsumexp(row: NDArray[np.float32], temperature: float, reduction: str = "exact") -> float:
    """ln of the sum of exp(x / T) over a row: m / T + ln(W / 2**40), T above 0, in float64.

    Raises ValueError for an invalid row.

    Examples
    --------
    >>> logsumexp(np.array([2, 2], dtype=np.float32), 1.0)
    2.6931471805599454
    """
    row = _checked(row)
    log_total = ln(relative_total(row, temperature, reduction))
    return float(np.float64(row.max()) / to_float32(temperature) + log_total)
