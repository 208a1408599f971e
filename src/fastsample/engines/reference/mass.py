"""Section 4 of the rule, the masses of tokens, and section 7's logarithm."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .rows import is_minus_inf, to_float32

LOG2_E = 1.4426950408889634
TOP_MASS_BITS = 40

# ---------------------------------------------------------------- section 4: mass

_FLOOR = np.float32(-64.0)
_ROUNDER = np.float32(12582912.0)
_ONE = np.float32(1.0)
POWER = tuple(
    float.fromhex(c)
    for c in ("0x1.62e42ap-1", "0x1.ebf9c2p-3", "0x1.c6b6e4p-5", "0x1.3ce8acp-7", "0x1.5bda40p-10")
)
"""c1 to c5: float32 numbers."""

_C1, _C2, _C3, _C4, _C5 = map(np.float32, POWER)


def scale(temperature: float) -> np.float32:
    """Scale of the logits in base 2 at a temperature above 0: s of section 4.

    Examples
    --------
    >>> float(scale(1.0)), float(scale(1e-30)) == 2.0**64
    (1.4426950216293335, True)
    """
    quotient = LOG2_E / to_float32(temperature)
    s: np.float32 = np.float32(min(max(quotient, 2.0**-126), 2.0**64))
    return s


def power(y: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """2**y for y at most 0, as p and k of section 4: 2**y is about p * 2**k.

    p comes as float64, in which p * 2**k is exact. Overwrites nothing.

    Examples
    --------
    >>> [a.tolist() for a in power(np.array([0, -3], dtype=np.float32))]
    [[1.0, 1.0], [0, -3]]
    """
    k = (y + _ROUNDER) - _ROUNDER
    f = y - k
    p = _C5 * f + _C4
    for coefficient in (_C3, _C2, _C1, _ONE):
        p = p * f + coefficient
    return p.astype(np.float64), k.astype(np.int32)


def exponents(
    logits: NDArray[np.float32], m: np.float32, temperature: float
) -> NDArray[np.float32]:
    """Logits in base 2, from the top: y of section 4, (logit - m) / temperature, at least -64.

    Parameters
    ----------
    logits : float32 array
        Logits as `read` returns them, none above `m`.
    m : float32
        The largest logit among the tokens kept so far, finite. It gets the largest mass.
    temperature : float
        Above 0.

    Examples
    --------
    >>> exponents(np.array([2.0, 1.0, -np.inf], dtype=np.float32), np.float32(2.0), 1.0).tolist()
    [0.0, -1.4426950216293335, -64.0]
    """
    with np.errstate(all="ignore"):
        y: NDArray[np.float32] = np.maximum((logits - np.float32(m)) * scale(temperature), _FLOOR)
    return y


def masses(
    logits: NDArray[np.float32], m: np.float32, temperature: float
) -> tuple[NDArray[np.float32], NDArray[np.uint64]]:
    """Masses of tokens: integers proportional to exp(logit / temperature).

    Parameters are those of `exponents`.

    Returns
    -------
    y : float32 array
        `exponents`.
    mass : uint64 array
        2**y * 2**40 as the rule rounds it; 0 for a logit of -inf. The top token has 2**40.

    Examples
    --------
    >>> masses(np.array([2.0, 1.0, -np.inf], dtype=np.float32), np.float32(2.0), 1.0)[1].tolist()
    [1099511627776, 404487766016, 0]
    """
    y = exponents(logits, m, temperature)
    p, k = power(y)
    # rint rounds half to even.
    mass = np.rint(np.ldexp(p, k + TOP_MASS_BITS)).astype(np.uint64)
    mass[is_minus_inf(logits)] = 0
    return y, mass


def float_masses(
    logits: NDArray[np.float32], m: np.float32, temperature: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Masses of section 8: v = 2**y in float32, above 0 for every logit but -inf.

    Parameters are those of `exponents`. Returns y and the masses, which are 1 for the top token.

    Examples
    --------
    >>> float_masses(np.array([2, -99, -np.inf], np.float32), np.float32(2), 1.0)[1].tolist()
    [1.0, 5.421010862427522e-20, 0.0]
    """
    y = exponents(logits, m, temperature)
    v = np.ldexp(*power(y)).astype(np.float32)
    v[is_minus_inf(logits)] = 0.0
    return y, v


# ---------------------------------------------------------------- section 7: the logarithm

LOGARITHM = tuple(
    float.fromhex(g)
    for g in (
        "0x1.5555555555593p-1",
        "0x1.999999997fa04p-2",
        "0x1.2492494229359p-2",
        "0x1.c71c51d8e78afp-3",
        "0x1.7466496cb03dep-3",
        "0x1.39a09d078c69fp-3",
        "0x1.2f112df3e5244p-3",
    )
)
"""G0 to G6."""

_G0, _G1, _G2, _G3, _G4, _G5, _G6 = LOGARITHM
LN2_HIGH = float.fromhex("0x1.62e42feep-1")
LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
SQRT_HALF_BITS = 0x3FE6A09E00000000


def ln(z: Any) -> Any:
    """Natural logarithm of positive normal float64, with the same bits on every machine.

    Within 0.80 units in the last place. The C library's logarithm differs between machines.

    Parameters
    ----------
    z : float or array

    Returns
    -------
    float64, or a float64 array of the same shape

    Examples
    --------
    >>> float(ln(1.0)), float(ln(2.0))
    (0.0, 0.6931471805599453)
    """
    b = np.asarray(z, dtype=np.float64).view(np.int64)
    a = b + (0x3FF0000000000000 - SQRT_HALF_BITS)
    e = ((a >> 52) - 1023).astype(np.float64)
    z = ((a & (2**52 - 1)) + SQRT_HALF_BITS).view(np.float64)
    f = z - 1.0
    q = f / (2.0 + f)
    w = q * q
    v = w * w
    r = w * (_G0 + v * (_G2 + v * (_G4 + v * _G6))) + v * (_G1 + v * (_G3 + v * _G5))
    h = (0.5 * f) * f
    return e * LN2_HIGH - ((h - (q * (h + r) + e * LN2_LOW)) - f)
