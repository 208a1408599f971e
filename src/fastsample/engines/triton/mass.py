"""Rules 1, 3, 4, 6 and 7 for single numbers, as functions that kernels call.

A rank is an int32 in the order of the logits: equal where they are, with denormals and -0 as +0,
and every NaN above +inf. Where a row is bad, whatever is worked out of it is some number.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastsample.engines.reference import mass as reference
from fastsample.engines.torch.mass import SCALE_OF_ONE as _SCALE_OF_ONE

BLOCK = tl.constexpr(64)
"""Tokens in a block."""

MINUS_INF = tl.constexpr(-0x7F800001)
PLUS_INF = tl.constexpr(0x7F800000)
"""Ranks of the infinities; whatever is above it is NaN."""

_MAGNITUDE = tl.constexpr(0x7FFFFFFF)
_LEAST_NORMAL = tl.constexpr(0x00800000)
_NAN = tl.constexpr(0x7FC00000)


# ---------------------------------------------------------------- logits


@triton.jit
def rank_of(bits: tl.tensor) -> tl.tensor:
    """The rank of a float32 logit, by its bits in int32."""
    size = bits & _MAGNITUDE
    bits = tl.where(size < _LEAST_NORMAL, 0, bits)
    bits = tl.where(size > PLUS_INF, _NAN, bits)
    return bits ^ ((bits >> 31) & _MAGNITUDE)


@triton.jit
def logit_of(rank: tl.tensor) -> tl.tensor:
    """The logit of a rank, float32."""
    return (rank ^ ((rank >> 31) & _MAGNITUDE)).to(tl.float32, bitcast=True)


@triton.jit
def ranks_at(
    row: tl.tensor, step: tl.tensor, tokens: tl.tensor, vocabulary: tl.tensor
) -> tl.tensor:
    """Ranks of some tokens of a row, that of -inf past the vocabulary.

    `row` points to the first logit, as `bits_of` gives them; from each to the next it is `step`.
    """
    inside = tokens < vocabulary
    values = tl.load(row + tokens.to(tl.int64) * step, mask=inside, other=0)
    if values.dtype == tl.float16:
        bits = values.to(tl.float32).to(tl.int32, bitcast=True)
    elif values.dtype == tl.int16:
        bits = values.to(tl.int32) << 16
    else:
        bits = values
    return tl.where(inside, rank_of(bits), MINUS_INF)


# ---------------------------------------------------------------- masses

_ROUNDER = tl.constexpr(12582912.0)
_ROUNDER_BITS = tl.constexpr(0x4B400000)
_C1, _C2, _C3, _C4, _C5 = map(tl.constexpr, reference.POWER)
_TWELVE_BITS = tl.constexpr(0x41400000)
_SLIVER = tl.constexpr(1.5 * 2.0**-17)
_SLIVER_BITS = tl.constexpr(0x37400000)
SCALE_OF_ONE = tl.constexpr(_SCALE_OF_ONE)


@triton.jit
def gap(rank: tl.tensor, top: tl.tensor, scale: tl.tensor) -> tl.tensor:
    """y: a logit in base 2, from the row's top, at least -64; float32, as `scale` is."""
    y = (logit_of(rank) - logit_of(top)) * scale
    return tl.where(y > -64.0, y, -64.0)


@triton.jit
def mass(y: tl.tensor) -> tl.tensor:
    """The mass of a token whose gap is y: int64, the top one's 2**40."""
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


# ---------------------------------------------------------------- wide products

_31_BITS = tl.constexpr(2**31 - 1)


@triton.jit
def needed(share: tl.tensor, total: tl.tensor) -> tl.tensor:
    """ceil(P * W / 2**31), for P from 0 to 2**31 and W up to 2**62; no product reaches 2**63."""
    return share * (total >> 31) + ((share * (total & _31_BITS) + _31_BITS) >> 31)


@triton.jit
def scaled(u: tl.tensor, total: tl.tensor) -> tl.tensor:
    """floor(U * W / 2**64), int64, for U in uint64 and W up to 2**62."""
    return tl.umulhi(u, total.to(tl.uint64)).to(tl.int64)


@triton.jit
def uniform(seed: tl.tensor, position: tl.tensor, stream: tl.tensor) -> tl.tensor:
    """U in uint64, for int64 tensors of one shape that hold seed and position as bits."""
    low, high = position.to(tl.uint32), (position >> 32).to(tl.uint32)
    word, next_word, _, _ = tl.philox(seed, low, high, stream.to(tl.uint32), low * 0)
    return word.to(tl.uint64) | (next_word.to(tl.uint64) << 32)


# ---------------------------------------------------------------- parameters

_LOG2_E = tl.constexpr(reference.LOG2_E)
_LN2_HIGH, _LN2_LOW = tl.constexpr(reference.LN2_HIGH), tl.constexpr(reference.LN2_LOW)
_G0, _G1, _G2, _G3, _G4, _G5, _G6 = map(tl.constexpr, reference.LOGARITHM)
_FRACTION = tl.constexpr(2**52 - 1)
_SQRT_HALF_BITS = tl.constexpr(reference.SQRT_HALF_BITS)
_ONE_BITS = tl.constexpr(0x3FF0000000000000)
_ROUNDER_OF_64 = tl.constexpr(1.5 * 2.0**52)


@triton.jit
def to_float32(value: tl.tensor) -> tl.tensor:
    """Round float64 to the nearest float32 and widen it again; denormals as whole numbers."""
    whole = (value * 2.0**149 + _ROUNDER_OF_64) - _ROUNDER_OF_64
    is_tiny = (value > -(2.0**-126)) & (value < 2.0**-126)
    return tl.where(is_tiny, whole * 2.0**-149, value.to(tl.float32).to(tl.float64))


@triton.jit
def scale_of(temperature: tl.tensor) -> tl.tensor:
    """s of rule 4, float32, at a float64 temperature above 0."""
    quotient = _LOG2_E / temperature
    quotient = tl.where(quotient < 2.0**-126, 2.0**-126, quotient)
    return tl.where(quotient > 2.0**64, 2.0**64, quotient).to(tl.float32)


@triton.jit
def share_of(top_p: tl.tensor) -> tl.tensor:
    """P of rule 5, int64; -1, which is off, for 1."""
    share = (top_p * 2.0**31).to(tl.int64) - 1024
    return tl.where(top_p == 1.0, -1, tl.where(share < 0, 0, share))


@triton.jit
def ln(z: tl.tensor) -> tl.tensor:
    """Rule 7's natural logarithm of positive normal float64."""
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
def threshold_of(min_p: tl.tensor) -> tl.tensor:
    """Least y that min_p keeps, float32; -inf keeps all."""
    counts = min_p > 2.0**-60
    log = ln(tl.where(counts, min_p, 1.0))
    threshold = (log * _LOG2_E - 2.0**-19).to(tl.float32)
    return tl.where(counts, threshold, float("-inf"))
