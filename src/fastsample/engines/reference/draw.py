"""Section 6 of the rule: random words by counter, and the token of the inverse method."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .reductions import REDUCTIONS

_WORD = 0xFFFFFFFF

INVERSE, CLOCK, ARRIVAL, AFTER_RACE = 0, 1, 2, 3
"""Purposes of words: the inverse method, a token's clock, an arrival, a race without a winner."""


def philox4x32(key: tuple[int, int], counter: tuple[Any, Any, Any, Any]) -> tuple[Any, ...]:
    """Philox4x32-10: four pseudo-random 32-bit words for a key and a counter of 32-bit words.

    Words of the counter may be uint64 arrays that broadcast; the result is then arrays.

    Examples
    --------
    >>> [f"{word:08x}" for word in philox4x32((0, 0), (0, 0, 0, 0))]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & _WORD, (a >> 32) ^ c3 ^ k1, a & _WORD
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return c0, c1, c2, c3


def words(
    seed: int, position: int, stream: int, purpose: int, index: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Random words of many indices: w0 + 2^32 w1 and w2 + 2^32 w3, uint64 of the index's shape.

    Examples
    --------
    >>> low, _ = words(0, 0, 0, 0, np.arange(2, dtype=np.uint64))
    >>> low.tolist() == [uniform(0, 0, 0), uniform(0, 0, 0, 256)]
    True
    """
    fixed = (np.uint64(word) for word in (position & _WORD, position >> 32, stream))
    c0, c1, c2 = (np.full_like(index, word) for word in fixed)
    last = index * np.uint64(256) + np.uint64(purpose)
    w0, w1, w2, w3 = philox4x32((seed & _WORD, seed >> 32), (c0, c1, c2, last))
    return w0 + (w1 << np.uint64(32)), w2 + (w3 << np.uint64(32))


def uniform(seed: int, position: int, stream: int, purpose: int = 0) -> int:
    """U of the rule: 64 random bits as an integer, for one draw.

    `seed` and `position` are in [0, 2**64), `stream` and `purpose` in [0, 2**32); the purpose is
    the fourth word of the counter.

    Examples
    --------
    >>> uniform(0, 0, 0) == 0xE169C58D6627E8D5
    True
    """
    key = (seed & _WORD, seed >> 32)
    w0, w1, *_ = philox4x32(key, (position & _WORD, position >> 32, stream, purpose))
    return int(w0 + (w1 << 32))


def draw(tokens: NDArray[np.int64], mass: NDArray[Any], u: int, reduction: str = "exact") -> int:
    """Token at which the running mass, by ascending token, first exceeds floor(u * W / 2**64).

    So in exact; in the other modes as section 8 says. `tokens` is the kept set, ascending, and
    `mass` its masses; `u` is a `uniform`.

    Examples
    --------
    >>> tokens, mass = np.array([3, 5]), np.array([2**40, 2**40], dtype=np.uint64)
    >>> draw(tokens, mass, 2**63 - 1), draw(tokens, mass, 2**63)
    (3, 5)
    """
    return REDUCTIONS[reduction].draw(tokens, mass, u)
