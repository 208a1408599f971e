"""Rows of the golden files, made from Philox words by exact steps: the same bits on any machine.

A word becomes a logit as an integer of at most 24 bits times a power of two, or as the float32 with
those bits. No random generator of a library and no rounding takes part.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastsample.engines import reference

Recipe = Callable[[int, int], np.ndarray]


def words(size: int, seed: int, block: int = 0) -> np.ndarray:
    """`size` random 32-bit words, as int64."""
    n_counters = -(-size // 4)
    counters = np.arange(n_counters, dtype=np.uint64)
    zero = np.zeros_like(counters)
    four = reference.philox4x32((seed, block), (counters, zero, zero, zero))
    return np.stack(four, axis=1).reshape(-1)[:size].astype(np.int64)


def exact(integers: np.ndarray, exponent: int) -> np.ndarray:
    """Integers below 2^24 in magnitude, times 2^exponent, as float32."""
    return np.ldexp(integers.astype(np.float32), exponent)


def of_bits(bits: np.ndarray) -> np.ndarray:
    return bits.astype(np.uint32).view(np.float32)


def bell(size: int, seed: int) -> np.ndarray:
    """Bell-shaped logits of about -8 to 8, as a model's head gives them."""
    total = sum((words(size, seed, block) & 0xFFFF) for block in range(4))
    return exact(total - 131070, -14)


def masked(one_in: int) -> Recipe:
    """Bell with all but one in `one_in` tokens at -inf; the token in the middle is never masked."""

    def make(size: int, seed: int) -> np.ndarray:
        row = bell(size, seed)
        banned = words(size, seed, 9) % one_in != 0
        banned[size // 2] = False
        row[banned] = -np.inf
        return row

    return make


def scaled(exponent: int) -> Recipe:
    """Bell times 2^exponent."""
    return lambda size, seed: np.ldexp(bell(size, seed), exponent)


def few_values(count: int, exponent: int) -> Recipe:
    """Only `count` distinct logits, 2^exponent apart: many ties."""
    return lambda size, seed: exact(words(size, seed) % count, exponent)


def ascending(size: int, seed: int) -> np.ndarray:
    return np.sort(bell(size, seed))


def descending(size: int, seed: int) -> np.ndarray:
    return ascending(size, seed)[::-1].copy()


def clustered(size: int, seed: int) -> np.ndarray:
    """The best logits side by side in the middle."""
    row = bell(size, seed)
    start = size // 3
    row[start : start + 40] += np.float32(16)
    return row


def peak(size: int, seed: int) -> np.ndarray:
    """One logit far above the others."""
    row = bell(size, seed)
    row[seed % size] = 60
    return row


def long_tail(size: int, seed: int) -> np.ndarray:
    """Minus the square of a bell: a steep head and masses down to 0."""
    total = sum((words(size, seed, block) & 0x3FF) for block in range(4)) - 2046
    return exact(-(total * total), -16)


def denormal(size: int, seed: int) -> np.ndarray:
    """Zeros of either sign and denormals among a few small normal logits."""
    bits = words(size, seed) & 0x807FFFFF
    row = of_bits(bits)
    row[words(size, seed, 5) % 8 == 0] = 1
    row[words(size, seed, 6) % 8 == 0] = -0.0
    return row


def any_bits(size: int, seed: int) -> np.ndarray:
    """Any finite float32."""
    bits = words(size, seed)
    bits[(bits & 0x7F800000) == 0x7F800000] ^= 0x40000000
    return of_bits(bits)


def constant(size: int, seed: int) -> np.ndarray:
    return np.full(size, -3.5, dtype=np.float32)


def empty(size: int, seed: int) -> np.ndarray:
    return np.full(size, -np.inf, dtype=np.float32)


def with_one(value: float) -> Recipe:
    """Bell with one logit replaced."""

    def make(size: int, seed: int) -> np.ndarray:
        row = bell(size, seed)
        row[seed % size] = value
        return row

    return make


RECIPES: dict[str, Recipe] = {
    "bell": bell,
    "bell x 16": scaled(4),
    "bell / 16": scaled(-4),
    "bell x 2^120": scaled(120),
    "bell x 2^-130": scaled(-130),
    "masked 1 in 2": masked(2),
    "masked 1 in 10": masked(10),
    "masked 1 in 1000": masked(1000),
    "two values": few_values(2, 0),
    "two far values": few_values(2, 6),
    "nine values": few_values(9, -1),
    "ascending": ascending,
    "descending": descending,
    "clustered": clustered,
    "peak": peak,
    "long tail": long_tail,
    "denormal": denormal,
    "any bits": any_bits,
    "constant": constant,
    "empty": empty,
    "one nan": with_one(np.nan),
    "one inf": with_one(np.inf),
}


# ---------------------------------------------------------------- rows that are hard to add up


def plateau(size: int, seed: int) -> np.ndarray:
    """Bell / 16, half of it 12 below: masses near 1, and near 2^-17."""
    row = exact(sum((words(size, seed, block) & 0xFFFF) for block in range(4)) - 131070, -18)
    row[words(size, seed, 7) % 2 == 0] -= np.float32(12)
    return row


def rounding(size: int, seed: int) -> np.ndarray:
    """Tokens at 0, and as many or more at -16 + 2^-19: with these, long float64 sums round."""
    row = np.full(size, -16 + 2.0**-19, dtype=np.float32)
    row[np.argsort(words(size, seed), kind="stable")[: min(2**14, size // 2)]] = 0
    return row


def faint(size: int, seed: int) -> np.ndarray:
    """One token at 0, and all others at 12 to 44 below: most of them have no integer mass."""
    row = exact(-(words(size, seed) & 0x1FFFFF), -16) - np.float32(12)
    row[seed % size] = 0
    return row


HARD_TO_ADD: dict[str, Recipe] = {
    "plateau": plateau,
    "rounding": rounding,
    "faint": faint,
    "seventy values": few_values(70, 0),
}


def make_row(recipe: str, size: int, seed: int) -> np.ndarray:
    """One golden row: float32 of shape (size,)."""
    return (RECIPES | HARD_TO_ADD)[recipe](size, seed)
