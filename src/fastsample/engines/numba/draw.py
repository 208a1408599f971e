"""Section 6 in loops: random words by counter, and the token of the inverse method."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import compiled
from .mass import mass_of
from .ordinal import BLOCK, Bits, Cut, ordinal_of

# Integers of one kind throughout: Numba makes a float64 of int64 and uint64 together.
LOW = np.uint64(2**32 - 1)
_HALF = np.uint64(32)
_M0, _M1, _W0, _W1 = (np.uint64(word) for word in (0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85))


@compiled
def words(seed: Any, position: Any, stream: Any, last: Any) -> Any:
    """Philox4x32-10's four words in two uint64; `last` is the fourth word of the counter."""
    k0, k1 = seed & LOW, seed >> _HALF
    c0, c1, c2, c3 = position & LOW, position >> _HALF, stream & LOW, last & LOW
    for _ in range(10):
        a, b = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (b >> _HALF) ^ c1 ^ k0, b & LOW, (a >> _HALF) ^ c3 ^ k1, a & LOW
        k0, k1 = (k0 + _W0) & LOW, (k1 + _W1) & LOW
    return c0 | (c1 << _HALF), c2 | (c3 << _HALF)


@compiled
def mul_high(a: Any, b: Any) -> Any:
    """High 64 bits of the product of two uint64."""
    a0, a1, b0, b1 = a & LOW, a >> _HALF, b & LOW, b >> _HALF
    middle = a1 * b0 + ((a0 * b0) >> _HALF)
    other = a0 * b1 + (middle & LOW)
    return a1 * b1 + (middle >> _HALF) + (other >> _HALF)


@compiled
def _token_at(bits: Bits, block: int, r: int, cut: Cut, scaling: Any) -> Any:
    """Token of a block at which the block's running mass exceeds r; or the last."""
    logits = bits.view(np.float32)
    ordinal, last = cut
    end = min((block + 1) * BLOCK, len(bits))
    for token in range(block * BLOCK, end):
        if ordinal_of(bits[token]) >= (ordinal if token <= last else ordinal + 1):
            mass = mass_of(logits[token], scaling)
            if r < mass:
                return token
            r -= mass
    return end - 1


@compiled
def draw(
    bits: Bits,
    running: NDArray[np.int64],
    cut: Cut,
    scaling: Any,
    rng_position: Any,
    purpose: int,
    tokens: NDArray[np.int64],
) -> None:
    """Draw tokens at (seed, position, stream), and on the streams after it, by the inverse method.

    `running` is that of `running_mass` for the same cut and scaling.
    """
    seed, position, stream = rng_position
    total = np.uint64(running[-1])
    for n in range(len(tokens)):
        u, _ = words(seed, position, stream + np.uint64(n), np.uint64(purpose))
        r = np.int64(mul_high(u, total))
        block = np.searchsorted(running, r, side="right")
        before = running[block - 1] if block else np.int64(0)
        tokens[n] = _token_at(bits, block, r - before, cut, scaling)
