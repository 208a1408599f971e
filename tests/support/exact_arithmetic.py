"""Float32 arithmetic in fractions."""

from __future__ import annotations

import math
from fractions import Fraction


def round_to_float32(x: Fraction) -> Fraction:
    """Correctly rounded float32, ties to even, gradual underflow; no overflow."""
    if x == 0:
        return x
    exponent = math.floor(math.log2(abs(x)))
    exponent += (abs(x) >= Fraction(2) ** (exponent + 1)) - (abs(x) < Fraction(2) ** exponent)
    quantum = Fraction(2) ** (max(exponent, -126) - 23)
    return round(x / quantum) * quantum
