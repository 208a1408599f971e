"""Rows that are made from random words by exact steps: the same bits on every machine.

A word becomes a logit as an integer of at most 24 bits times a power of two, or as the float32 with
those bits. No rounding takes part, and of NumPy's generators only raw words, whose stream NumPy
promises to keep. So a case that fails on one machine can be made again on another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class Dice:
    """Random words from a seed, and exact choices by them.

    Examples
    --------
    >>> Dice(7).pick((1, 2, 3)) == Dice(7).pick((1, 2, 3))
    True
    """

    def __init__(self, seed: int) -> None:
        self._words = np.random.Philox(key=seed)

    def words(self, size: int) -> NDArray[np.uint64]:
        """So many random 64-bit words."""
        return np.asarray(self._words.random_raw(size), dtype=np.uint64)

    def below(self, end: int) -> int:
        """An integer in [0, end)."""
        return int(self._words.random_raw()) % end

    def pick(self, pool: Sequence[T]) -> T:
        """One of a pool."""
        return pool[self.below(len(pool))]

    def permutation(self, size: int) -> NDArray[np.int64]:
        """The integers below `size` in a random order."""
        return np.argsort(self.words(size), kind="stable").astype(np.int64)


Recipe = Callable[[Dice, int], NDArray[np.float32]]


def _exact(integers: NDArray[Any], exponent: int) -> NDArray[np.float32]:
    """Integers below 2**24 in magnitude, times 2**exponent."""
    return np.ldexp(integers.astype(np.float32), exponent)


def _of_bits(bits: NDArray[Any]) -> NDArray[np.float32]:
    """The float32 with these bits."""
    return np.asarray(bits.astype(np.uint32).view(np.float32))


def _integers(dice: Dice, size: int) -> NDArray[np.int64]:
    """Bell-shaped integers of 18 bits: each the sum of a word's four parts."""
    parts = dice.words(size).view(np.uint16).reshape(size, 4)
    total = parts.astype(np.int64).sum(axis=1)
    return np.asarray(total - 131070, dtype=np.int64)


def bell(dice: Dice, size: int) -> NDArray[np.float32]:
    """Logits of about -8 to 8, as a model's head gives them."""
    return _exact(_integers(dice, size), -14)


def _scaled(exponent: int) -> Recipe:
    return lambda dice, size: np.ldexp(bell(dice, size), exponent)


def _few(count: int, exponent: int) -> Recipe:
    """Only so many distinct logits, 2**exponent apart: ties at every cut."""
    return lambda dice, size: _exact(dice.words(size) % np.uint64(count), exponent)


def _masked(one_in: int) -> Recipe:
    def make(dice: Dice, size: int) -> NDArray[np.float32]:
        row = bell(dice, size)
        banned = dice.words(size) % np.uint64(one_in) != 0
        banned[dice.below(size)] = False
        row[banned] = -np.inf
        return row

    return make


def _masked_ties(dice: Dice, size: int) -> NDArray[np.float32]:
    row = _masked(3)(dice, size)
    return np.asarray(np.rint(row), dtype=np.float32)


def _flat(dice: Dice, size: int) -> NDArray[np.float32]:
    return np.full(size, dice.pick((0.0, -0.0, -3.5, 1e-40, 3e38)), dtype=np.float32)


def _peaked(dice: Dice, size: int) -> NDArray[np.float32]:
    row = bell(dice, size)
    row[dice.below(size)] = dice.pick((20.0, 60.0, 1e30))
    return row


def _long_tail(dice: Dice, size: int) -> NDArray[np.float32]:
    """A steep head, and masses down to 0."""
    halves = _integers(dice, size) >> 6
    return _exact(-(halves * halves), -16)


def _clustered(dice: Dice, size: int) -> NDArray[np.float32]:
    """The best logits side by side."""
    row = bell(dice, size)
    start = dice.below(size)
    row[start : start + 40] += np.float32(16)
    return row


def _at_mass_zero(dice: Dice, size: int) -> NDArray[np.float32]:
    """A top token, and the others where masses vanish at temperature 1."""
    row = _exact(_integers(dice, size) - (28 << 16) - (27 << 10), -16)
    row[dice.below(size)] = 0
    return row


def _denormal(dice: Dice, size: int) -> NDArray[np.float32]:
    """Denormals and zeros of both signs, with a normal logit or two among them."""
    row = _of_bits(dice.words(size) & np.uint64(0x807FFFFF))
    row[dice.words(size) % np.uint64(8) == 0] = -0.0
    row[dice.words(size) % np.uint64(16) == 0] = dice.pick((0.0, 0.5, 2.0**-126))
    return row


def _any_bits(dice: Dice, size: int) -> NDArray[np.float32]:
    """Any finite float32."""
    bits = (dice.words(size) >> np.uint64(32)).astype(np.uint32)
    bits[(bits & 0x7F800000) == 0x7F800000] ^= np.uint32(0x40000000)
    return _of_bits(bits)


def _ascending(dice: Dice, size: int) -> NDArray[np.float32]:
    return np.sort(bell(dice, size))


def _descending(dice: Dice, size: int) -> NDArray[np.float32]:
    return np.ascontiguousarray(_ascending(dice, size)[::-1])


KINDS: dict[str, Recipe] = {
    "bell": bell,
    "bell x 4": _scaled(2),
    "bell / 16": _scaled(-4),
    "bell x 2^120": _scaled(120),
    "two values": _few(2, 0),
    "two far values": _few(2, 6),
    "nine values": _few(9, -1),
    "masked 1 in 2": _masked(2),
    "masked 1 in 50": _masked(50),
    "masked ties": _masked_ties,
    "flat": _flat,
    "peaked": _peaked,
    "long tail": _long_tail,
    "clustered": _clustered,
    "at mass zero": _at_mass_zero,
    "denormal": _denormal,
    "any bits": _any_bits,
    "ascending": _ascending,
    "descending": _descending,
}


def as_float16(row: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """The row rounded to values that float16 holds; None where one is too large for it."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = row.astype(np.float16).astype(np.float32)
    return None if np.any(np.isinf(rounded) != np.isinf(row)) else rounded


def as_bfloat16(row: NDArray[np.float32]) -> NDArray[np.float32]:
    """The row cut to values that bfloat16 holds."""
    return _of_bits(row.view(np.uint32) & np.uint32(0xFFFF0000))
