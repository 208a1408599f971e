"""Sections 1 and 3 of the rule, as functions that kernels call: logits as ordinals.

An ordinal is an int32 in the order of the logits: equal where they are, with denormals and -0 as
+0, and every NaN above +inf. In a row that is not valid, whatever is computed is some number.
"""

from __future__ import annotations

import triton
import triton.language as tl

BLOCK = tl.constexpr(64)
"""Tokens in a block."""

MINUS_INF = tl.constexpr(-0x7F800001)
PLUS_INF = tl.constexpr(0x7F800000)
"""Ordinals of the infinities; that of NaN is above them."""

_MAGNITUDE = tl.constexpr(0x7FFFFFFF)
_LEAST_NORMAL = tl.constexpr(0x00800000)
_NAN = tl.constexpr(0x7FC00000)


@triton.jit
def ordinal_of(bits):
    """The ordinal of a float32 logit, from its bits in int32."""
    size = bits & _MAGNITUDE
    bits = tl.where(size < _LEAST_NORMAL, 0, bits)
    bits = tl.where(size > PLUS_INF, _NAN, bits)
    return bits ^ ((bits >> 31) & _MAGNITUDE)


@triton.jit
def logit_of(ordinal):
    """The logit of an ordinal, float32."""
    return (ordinal ^ ((ordinal >> 31) & _MAGNITUDE)).to(tl.float32, bitcast=True)


@triton.jit
def ordinals_at(row, step, tokens, vocabulary):
    """Ordinals of tokens of a row, that of -inf past the vocabulary.

    `row` points to the first logit, as `bits_of` returns them; `step` leads to the next.
    """
    inside = tokens < vocabulary
    values = tl.load(row + tokens.to(tl.int64) * step, mask=inside, other=0)
    if values.dtype == tl.float16:
        bits = values.to(tl.float32).to(tl.int32, bitcast=True)
    elif values.dtype == tl.int16:
        bits = values.to(tl.int32) << 16
    else:
        bits = values
    return tl.where(inside, ordinal_of(bits), MINUS_INF)
