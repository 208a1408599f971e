"""Products of 64-bit integers, as functions that kernels call."""

from __future__ import annotations

import triton
import triton.language as tl

_31_BITS = tl.constexpr(2**31 - 1)


@triton.jit
def nucleus_target(share, total):
    """max(1, ceil(P * W / 2**31)), for P up to 2**31 and W up to 2**62, below 2**63 throughout."""
    target = share * (total >> 31) + ((share * (total & _31_BITS) + _31_BITS) >> 31)
    return tl.maximum(target, 1)


@triton.jit
def mul_high(u, total):
    """floor(U * W / 2**64), int64, for U in uint64 and W up to 2**62."""
    return tl.umulhi(u, total.to(tl.uint64)).to(tl.int64)
