"""Rows of logits from random words, by exact steps: the same bits on every machine.

A word becomes a logit as an integer of at most 24 bits times a power of two, or as the float32 with
those bits. Nothing is rounded, and of NumPy's generators only raw words are used, whose stream is
guaranteed. So a row that fails on one machine can be reproduced on another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
T = TypeVar("T")


class RandomWords:
    """Random 64-bit words from a seed, and exact choices by them.

    `block` and `part` have no effect: they address words and places in the golden files, whose rows
    are of the same kinds.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Philox(key=seed)

    def words(self, size: int, block: int = 0) -> Array:
        """Return the next words: uint64 of shape (size,)."""
        return np.asarray(self._generator.random_raw(size), dtype=np.uint64)

    def halves(self, size: int) -> Array:
        """Return words of 32 bits: uint32 of shape (size,)."""
        return np.asarray(self.words(size) >> np.uint64(32)).astype(np.uint32)

    def bell_integers(self, size: int, bits: int = 16) -> Array:
        """Return sums of four random integers of so many bits less their mean, in int64."""
        parts = self.words(size).view(np.uint16).reshape(size, 4)
        return np.asarray(parts.astype(np.int64).sum(axis=1) - 131070) >> (16 - bits)

    def below(self, end: int) -> int:
        """Return an integer in [0, end)."""
        return int(self._generator.random_raw()) % end

    def index(self, size: int, part: int = 0) -> int:
        """Return a place in a row."""
        return self.below(size)

    def pick(self, pool: Sequence[T]) -> T:
        """Return one of a pool."""
        return pool[self.below(len(pool))]

    def permutation(self, size: int) -> Array:
        """Return the integers below `size` in a random order."""
        return np.argsort(self.words(size), kind="stable").astype(np.int64)

    def one_in(self, count: int, size: int, block: int = 0) -> Array:
        """Return a mask that is True at about one of `count` places."""
        return np.asarray(self.words(size, block) % np.uint64(count) == 0)


def exact(integers: Array, exponent: int) -> Array:
    """Integers below 2**24 in magnitude, times 2**exponent."""
    return np.ldexp(integers.astype(np.float32), exponent)


def of_bits(bits: Array) -> Array:
    """The float32 with these bits."""
    return bits.astype(np.uint32).view(np.float32)


def bell(random: RandomWords, size: int, exponent: int = 0) -> Array:
    """Return logits of about -8 to 8, as a model's last layer does, times 2**exponent."""
    return np.ldexp(exact(random.bell_integers(size), -14), exponent)


def masked(random: RandomWords, size: int, one_in: int) -> Array:
    """Return a bell with all but one of `one_in` tokens banned, and never all of them."""
    row = bell(random, size)
    banned = ~random.one_in(one_in, size, 9)
    banned[random.index(size, 2)] = False
    row[banned] = -np.inf
    return row


def few_values(random: RandomWords, size: int, count: int, exponent: int) -> Array:
    """Return logits of so many values, 2**exponent apart: ties at every cut."""
    return exact(random.words(size) % np.uint64(count), exponent)


def with_value(row: Array, value: float, at: Any) -> Array:
    """Write a value into a row."""
    row[at] = value
    return row


def _clustered(random: RandomWords, size: int) -> Array:
    row = bell(random, size)
    start = random.index(size, 3)
    row[start : start + 40] += np.float32(16)
    return row


def _denormal(random: RandomWords, size: int) -> Array:
    row = with_value(
        of_bits(random.words(size) & np.uint64(0x807FFFFF)), -0.0, random.one_in(8, size)
    )
    return with_value(row, random.pick((0.0, 0.5, 2.0**-126)), random.one_in(16, size))


def _any_bits(random: RandomWords, size: int) -> Array:
    bits = random.halves(size)
    bits[(bits & 0x7F800000) == 0x7F800000] ^= np.uint32(0x40000000)  # neither inf nor NaN
    return of_bits(bits)


KINDS: dict[str, Callable[[RandomWords, int], Array]] = {
    "bell": bell,
    "bell x 4": lambda random, size: bell(random, size, 2),
    "bell / 16": lambda random, size: bell(random, size, -4),
    "bell x 2^120": lambda random, size: bell(random, size, 120),
    "two values": lambda random, size: few_values(random, size, 2, 0),
    "two far values": lambda random, size: few_values(random, size, 2, 6),
    "nine values": lambda random, size: few_values(random, size, 9, -1),
    "masked 1 in 2": lambda random, size: masked(random, size, 2),
    "masked 1 in 50": lambda random, size: masked(random, size, 50),
    "masked ties": lambda random, size: np.rint(masked(random, size, 3)),
    "flat": lambda random, size: np.full(
        size, random.pick((0.0, -0.0, -3.5, 1e-40, 3e38)), np.float32
    ),
    "peaked": lambda random, size: with_value(
        bell(random, size), random.pick((20.0, 60.0, 1e30)), random.index(size)
    ),
    # A steep start, and masses down to 0.
    "long tail": lambda random, size: exact(-(random.bell_integers(size, 10) ** 2), -16),
    # The largest logits next to each other.
    "clustered": _clustered,
    # All but the top token where masses vanish at temperature 1.
    "at mass zero": lambda random, size: with_value(
        exact(random.bell_integers(size) - (28 << 16) - (27 << 10), -16), 0, random.index(size)
    ),
    "denormal": _denormal,
    "any bits": _any_bits,
    "ascending": lambda random, size: np.sort(bell(random, size)),
    "descending": lambda random, size: np.sort(bell(random, size))[::-1].copy(),
}


def as_float16(rows: Array) -> Array | None:
    """Round float32 logits to values of float16; None where one is too large for it."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = rows.astype(np.float16).astype(np.float32)
    return None if np.any(np.isinf(rounded) != np.isinf(rows)) else rounded


def as_bfloat16(rows: Array) -> Array:
    """Truncate float32 logits to values of bfloat16."""
    return of_bits(rows.view(np.uint32) & np.uint32(0xFFFF0000))
