"""Section 4 of the rule and section 7's logarithm, as functions that kernels call."""

from __future__ import annotations

import triton
import triton.language as tl

from fastsample.engines.reference import mass as reference
from fastsample.engines.torch.mass import SCALE_OF_ONE as _SCALE_OF_ONE

from .ordinal import logit_of

_ROUNDER = tl.constexpr(12582912.0)
_ROUNDER_BITS = tl.constexpr(0x4B400000)
_C1, _C2, _C3, _C4, _C5 = map(tl.constexpr, reference.POWER)
_TWELVE_BITS = tl.constexpr(0x41400000)
_SLIVER = tl.constexpr(1.5 * 2.0**-17)
_SLIVER_BITS = tl.constexpr(0x37400000)
SCALE_OF_ONE = tl.constexpr(_SCALE_OF_ONE)


@triton.jit
def exponent2(ordinal, top, scale):
    """y: (x - m) * s, the exponent to base 2, at least -64; float32, as `scale` is."""
    y = (logit_of(ordinal) - logit_of(top)) * scale
    return tl.where(y > -64.0, y, -64.0)


@triton.jit
def mass(y):
    """The mass of a token with the exponent y: int64, 2**40 for y = 0."""
    t = y + _ROUNDER
    f = y - (t - _ROUNDER)
    p = f * _C5 + _C4
    p = p * f + _C3
    p = p * f + _C2
    p = p * f + _C1
    p = p * f + 1.0
    k = t.to(tl.int32, bitcast=True) - _ROUNDER_BITS
    v = (p.to(tl.int32, bitcast=True) + (k << 23)).to(tl.float32, bitcast=True)
    # Two additions that round to 2**-20 and 2**-40; the sums' bits count those units.
    upper = v + 12.0
    lower = (v - (upper - 12.0)) + _SLIVER
    units = (upper.to(tl.int32, bitcast=True) - _TWELVE_BITS).to(tl.int64) << 20
    return units + (lower.to(tl.int32, bitcast=True) - _SLIVER_BITS).to(tl.int64)


_LOG2_E = tl.constexpr(reference.LOG2_E)
_LN2_HIGH, _LN2_LOW = tl.constexpr(reference.LN2_HIGH), tl.constexpr(reference.LN2_LOW)
_G0, _G1, _G2, _G3, _G4, _G5, _G6 = map(tl.constexpr, reference.LOGARITHM)
_FRACTION = tl.constexpr(2**52 - 1)
_SQRT_HALF_BITS = tl.constexpr(reference.SQRT_HALF_BITS)
_ONE_BITS = tl.constexpr(0x3FF0000000000000)


@triton.jit
def ln(z):
    """Section 7's natural logarithm of positive normal float64."""
    a = z.to(tl.int64, bitcast=True) + (_ONE_BITS - _SQRT_HALF_BITS)
    e = ((a >> 52) - 1023).to(tl.float64)
    f = ((a & _FRACTION) + _SQRT_HALF_BITS).to(tl.float64, bitcast=True) - 1.0
    q = f / (f + 2.0)
    w = q * q
    v = w * w
    even = w * (v * (v * (v * _G6 + _G4) + _G2) + _G0)
    odd = v * (v * (v * _G5 + _G3) + _G1)
    h = (f * 0.5) * f
    return e * _LN2_HIGH - ((h - (q * (h + (even + odd)) + e * _LN2_LOW)) - f)


@triton.jit
def log2_of(z):
    """ln(z) * LOG2_E: the rule's logarithm to base 2."""
    return ln(z) * _LOG2_E


_ROUNDER_OF_64 = tl.constexpr(1.5 * 2.0**52)


@triton.jit
def to_float32(value):
    """Round float64 to float32, as float64; denormals by whole multiples of 2**-149."""
    multiple = (value * 2.0**149 + _ROUNDER_OF_64) - _ROUNDER_OF_64
    is_tiny = (value > -(2.0**-126)) & (value < 2.0**-126)
    return tl.where(is_tiny, multiple * 2.0**-149, value.to(tl.float32).to(tl.float64))


@triton.jit
def scale_of(temperature):
    """s of section 4, float32, at a float64 temperature above 0."""
    quotient = _LOG2_E / temperature
    quotient = tl.where(quotient < 2.0**-126, 2.0**-126, quotient)
    return tl.where(quotient > 2.0**64, 2.0**64, quotient).to(tl.float32)
