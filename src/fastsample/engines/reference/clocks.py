"""Section 6 of the rule: the clocks of a race, from random words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .mass import ln

ROUNDER = 1572864.0
"""1.5 * 2^20: its last bit is worth 2^-32."""


def clock(k: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Clocks of 64-bit words: exponential with mean 1, above 0 and below 37.

    Examples
    --------
    >>> clock(np.array([0, 2**63, 2**64 - 1], dtype=np.uint64)).tolist()
    [36.7368005696771, 0.6931471805599451, 1.1102230246251565e-16]
    """
    u = ((k >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    c: NDArray[np.float64] = -ln(u)
    return c


def in_steps(clocks: NDArray[Any]) -> NDArray[np.float64]:
    """Round clocks to multiples of 2^-32, which add up exactly in any order.

    Examples
    --------
    >>> in_steps(np.array([2.0**-34, 3 * 2.0**-33, 1.0])).tolist() == [0, 2 * 2.0**-32, 1]
    True
    """
    g: NDArray[np.float64] = (clocks + ROUNDER) - ROUNDER
    return g
