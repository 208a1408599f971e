"""Section 4 of the rule, the mass of a token, and the logarithm of section 7, op by op."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fastsample.engines.reference import mass as reference

_ROUNDER = 12582912.0
_ROUNDER_BITS = 0x4B400000
_C1, _C2, _C3, _C4, _C5 = reference.POWER
_G = reference.LOGARITHM
_FRACTION = 2**52 - 1
_SIGN = -(2**31)
_EXPONENT = 0x7F800000
SCALE_OF_ONE = 1.4426950216293335
"""s at temperature 1: a float32."""


def scale_of(temperature: Tensor) -> Tensor:
    """s: the scale of logits in base 2, as float32, at float64 temperatures above 0.

    Examples
    --------
    >>> scale_of(torch.tensor([1.0, 1e-30], dtype=torch.float64)).tolist()
    [1.4426950216293335, 1.8446744073709552e+19]
    """
    quotient = torch.full_like(temperature, reference.LOG2_E).div_(temperature)
    return quotient.clamp_(2.0**-126, 2.0**64).to(torch.float32)


class Scaling(NamedTuple):
    """m and s: float32 tensors of shape (B, 1)."""

    top: Tensor
    scale: Tensor


def exponent2(logits: Tensor, scaling: Scaling, least: float = -64.0) -> Tensor:
    """y: (x - m) * s, the exponent to base 2, at least `least`; float32 of shape (B, N)."""
    return logits.sub(scaling.top).mul_(scaling.scale).clamp_min_(least)


def power(y: Tensor) -> tuple[Tensor, Tensor]:
    """2**y for y at most 0 as p, float32, and k, int32: 2**y is about p * 2**k."""
    t = y.add(_ROUNDER)
    f = y.sub(t.sub(_ROUNDER))
    p = f.mul(_C5).add_(_C4)
    for coefficient in (_C3, _C2, _C1, 1.0):
        p.mul_(f).add_(coefficient)
    return p, t.view(torch.int32) - _ROUNDER_BITS


def masses(y: Tensor) -> Tensor:
    """Masses of tokens with the exponents `y`: int64, 2**40 for y = 0.

    Examples
    --------
    >>> masses(torch.tensor([0.0, -1.4426950216293335, -64.0])).tolist()
    [1099511627776, 404487766016, 0]
    """
    p, k = power(y)
    v = p.view(torch.int32).add_(k << 23).view(torch.float32)
    # Exact in float64; round_ rounds half to even.
    return v.to(torch.float64).mul_(2.0**reference.TOP_MASS_BITS).round_().to(torch.int64)


def ln(z: Tensor) -> Tensor:
    """Natural logarithm of positive normal float64, with the bits of `reference.ln`.

    Examples
    --------
    >>> ln(torch.tensor([1.0, 2.0], dtype=torch.float64)).tolist()
    [0.0, 0.6931471805599453]
    """
    a = z.view(torch.int64) + (0x3FF0000000000000 - reference.SQRT_HALF_BITS)
    e = ((a >> 52) - 1023).to(torch.float64)
    f = ((a & _FRACTION) + reference.SQRT_HALF_BITS).view(torch.float64) - 1.0
    q = f / (f + 2.0)
    w = q * q
    v = w * w
    even = w * (v * (v * (v * _G[6] + _G[4]) + _G[2]) + _G[0])
    odd = v * (v * (v * _G[5] + _G[3]) + _G[1])
    h = (f * 0.5) * f
    return e * reference.LN2_HIGH - ((h - (q * (h + (even + odd)) + e * reference.LN2_LOW)) - f)


def log2_of(values: Tensor) -> Tensor:
    """ln(z) * LOG2_E: the rule's logarithm to base 2."""
    return ln(values) * reference.LOG2_E


def to_float32(values: Tensor) -> Tensor:
    """Round float64 to float32, as float64; denormals by whole multiples of 2**-149.

    Examples
    --------
    >>> to_float32(torch.tensor([0.8, 1e-40, 1e-50], dtype=torch.float64)).tolist()
    [0.800000011920929, 9.99994610111476e-41, 0.0]
    """
    tiny = values.abs() < 2.0**-126
    denormal = (values * 2.0**149).round() * 2.0**-149
    return torch.where(tiny, denormal, values.to(torch.float32).to(torch.float64))


def nearest_float32(values: Tensor) -> Tensor:
    """Round float64 to float32; denormal results are made from integers.

    Examples
    --------
    >>> nearest_float32(torch.tensor([0.8, -1e-45], dtype=torch.float64)).view(torch.int32).tolist()
    [1061997773, -2147483647]
    """
    size = values.abs()
    normal = size.clamp_min(2.0**-126).to(torch.float32).view(torch.int32)
    denormal = (size * 2.0**149).round().to(torch.int32)
    bits = torch.where(size < 2.0**-126, denormal, normal)
    return torch.where(values < 0, bits | _SIGN, bits).view(torch.float32)


def exact(values: Tensor) -> Tensor:
    """Widen float32 to float64, denormals by their bits."""
    bits = values.view(torch.int32)
    size = (bits & 0x7FFFFFFF).to(torch.float64) * 2.0**-149
    denormal = torch.where(bits < 0, -size, size)
    return torch.where((bits & _EXPONENT) == 0, denormal, values.to(torch.float64))
