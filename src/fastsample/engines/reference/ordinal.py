"""Section 3 of the rule: the order of tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .rows import SIGN_BIT, bits_of, read


def order(row: NDArray[np.float32]) -> NDArray[np.int64]:
    """Order the tokens of a row: higher logit first, the lower token first where logits are equal.

    The row has no NaN; the result is int64, of the row's shape.

    Examples
    --------
    >>> order(np.array([1.0, 3.0, 3.0, 2.0], dtype=np.float32))
    array([1, 2, 3, 0])
    """
    bits = bits_of(read(row))
    # As unsigned integers these keys ascend where the logits descend; with the tokens all differ.
    keys = np.where(bits & SIGN_BIT, bits, ~(bits | SIGN_BIT)).astype(np.uint64) << np.uint64(32)
    keys |= np.arange(len(row), dtype=np.uint64)
    keys.sort()
    tokens: NDArray[np.int64] = (keys & np.uint64(2**32 - 1)).astype(np.int64)
    return tokens
