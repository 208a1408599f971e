"""Section 6 of the rule: random numbers by counter, and the token that they draw."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .reductions import REDUCTIONS

_WORD = 0xFFFFFFFF


def philox4x32(
    key: tuple[int, int], counter: tuple[int, int, int, int]
) -> tuple[int, int, int, int]:
    """Philox4x32-10: four pseudo-random 32-bit words for a key and a counter of 32-bit words.

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


def uniform(seed: int, position: int, stream: int, purpose: int = 0) -> int:
    """U of the rule: 64 random bits as an integer, for one draw.

    `seed` and `position` are in [0, 2**64), `stream` and `purpose` in [0, 2**32). Purpose 0 is the
    draw of the token.

    Examples
    --------
    >>> uniform(0, 0, 0) == 0xE169C58D6627E8D5
    True
    """
    key = (seed & _WORD, seed >> 32)
    words = philox4x32(key, (position & _WORD, position >> 32, stream, purpose))
    return words[0] + (words[1] << 32)


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
