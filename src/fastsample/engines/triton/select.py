"""Section 5 of the rule, as functions that kernels call: ops, and the threshold of an op."""

from __future__ import annotations

import triton
import triton.language as tl

from fastsample.params.ops import Op

from .mass import log2_of

OP_SCALE = tl.constexpr(int(Op.SCALE))
OP_COUNT = tl.constexpr(int(Op.COUNT))
OP_MASS = tl.constexpr(int(Op.MASS))
OP_THRESHOLD = tl.constexpr(int(Op.THRESHOLD))
OP_THRESHOLD_OF_TOTAL = tl.constexpr(int(Op.THRESHOLD_OF_TOTAL))
_BELOW_ZERO = tl.constexpr(-(2.0**-36))


@triton.jit
def threshold(number, total, op: tl.constexpr):
    """The least y that is kept, float32; -inf keeps all.

    `number` has the bits of ln(v) * LOG2_E - 2^-19; `total` is W.
    """
    least = number.to(tl.float64, bitcast=True)
    if op != OP_THRESHOLD:
        log_total = log2_of(total.to(tl.float64)) - 40.0
        least = least + log_total if op == OP_THRESHOLD_OF_TOTAL else least - log_total
    return tl.minimum(least.to(tl.float32), _BELOW_ZERO)
