"""Searches for cuts: the last ordinal that reaches a threshold, and the n-th token of one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import compiled
from .mass import exponent2
from .ordinal import BLOCK, LOWEST, Bits, count_from, logit_of, ordinal_of, read_ordinal


@compiled
def lowest_ordinal(y: Any, highest: int, scaling: Any) -> Any:
    """Lowest ordinal whose y reaches a threshold below 0; y rises with the ordinal."""
    low, high = np.int64(LOWEST), np.int64(highest)
    while low < high:
        middle = low + (high - low) // 2
        if exponent2(logit_of(read_ordinal(np.int32(middle))), scaling) >= y:
            high = middle
        else:
            low = middle + 1
    return np.int64(read_ordinal(np.int32(low)))


@compiled
def nth_of_ordinal(bits: Bits, block_max: NDArray[np.int32], ordinal: int, n: int) -> Any:
    """Return the n-th token that has an ordinal; the row's last where there are fewer."""
    for b in range(len(block_max)):
        if block_max[b] < ordinal:
            continue
        first, end = b * BLOCK, min((b + 1) * BLOCK, len(bits))
        block = bits[first:end]
        here = count_from(block, ordinal) - count_from(block, ordinal + 1)
        if here < n:
            n -= here
            continue
        for i in range(len(block)):
            n -= ordinal_of(block[i]) == ordinal
            if n == 0:
                return first + i
    return len(bits) - 1
