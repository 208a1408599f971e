"""Section 6 of the rule, as a function that kernels call: the random number of a draw."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def uniform(seed, position, stream):
    """U in uint64, for int64 tensors of one shape that hold seed and position as bits."""
    low, high = position.to(tl.uint32), (position >> 32).to(tl.uint32)
    word, next_word, _, _ = tl.philox(seed, low, high, stream.to(tl.uint32), low * 0)
    return word.to(tl.uint64) | (next_word.to(tl.uint64) << 32)
