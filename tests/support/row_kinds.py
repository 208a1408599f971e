"""Kinds of rows that only tests need, next to those of `fastsample.verification.rows`.

Bad rows, rows at the ends of float32, and rows that are hard to add up: each from random words by
exact steps. The golden files, the random tests and `fastsample.verify` share all kinds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastsample.verification.rows import KINDS as SHARED
from fastsample.verification.rows import (
    RandomWords,
    bell,
    exact,
    few_values,
    masked,
    of_bits,
    with_value,
)

Kind = Callable[[RandomWords, int], np.ndarray]
MAX = float(np.finfo(np.float32).max)


def denormal_and_1(random: RandomWords, size: int) -> np.ndarray:
    """Denormals and zeros of both signs, and 1 at one of eight tokens."""
    row = of_bits(random.words(size) & np.uint64(0x807FFFFF))
    row[random.one_in(8, size, 5)] = 1
    row[random.one_in(8, size, 6)] = -0.0
    return row


def smallest_normal(random: RandomWords, size: int) -> np.ndarray:
    """Logits around the smallest normal float32, of both signs."""
    bits = random.words(size)
    return of_bits(0x00700000 + bits % np.uint64(0x00A00000) | (bits >> np.uint64(63)) << 31)


def largest(random: RandomWords, size: int) -> np.ndarray:
    pool = np.array([MAX, -MAX, MAX / 2, -1, 0, -np.inf], dtype=np.float32)
    return pool[random.words(size) % np.uint64(len(pool))]


def quantised(random: RandomWords, size: int, exponent: int) -> np.ndarray:
    """A bell of multiples of 2**exponent."""
    return np.ldexp(np.rint(bell(random, size, 1 - exponent)), exponent)


def near_mass_zero(random: RandomWords, size: int) -> np.ndarray:
    """A top token, and the others around the logit at which masses vanish, close or closer."""
    spread = random.bell_integers(size) >> random.pick((0, 5, 10, 14))
    row = exact(spread - (28 << 19) - (27 << 13), -19)
    return with_value(row, 0, random.index(size))


def half_integers(random: RandomWords, size: int) -> np.ndarray:
    """Logits whose y, at the temperature of scale 1, is a half integer or next to one."""
    row = exact(-(random.words(size) % np.uint64(90)).astype(np.int64), -1)
    side = np.where(random.one_in(2, size), np.inf, -np.inf).astype(np.float32)
    return np.where(random.one_in(3, size), np.nextafter(row, side), row)


def invalid(random: RandomWords, size: int) -> np.ndarray:
    """One NaN or +inf, in a row with more or fewer banned tokens."""
    row = masked(random, size, random.pick((1, 2, size)))
    bad = (0x7F800000, 0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001)
    row.view(np.uint32)[random.index(size)] = random.pick(bad)
    return row


def bell_with(value: float) -> Kind:
    """A bell with one logit replaced."""
    return lambda random, size: with_value(bell(random, size), value, random.index(size))


EXTREME: dict[str, Kind] = {
    "bell x 16": lambda random, size: bell(random, size, 4),
    "bell x 2^-130": lambda random, size: bell(random, size, -130),
    "masked 1 in 10": lambda random, size: masked(random, size, 10),
    "masked 1 in 1000": lambda random, size: masked(random, size, 1000),
    "quantised 1": lambda random, size: quantised(random, size, 0),
    "quantised 1/16": lambda random, size: quantised(random, size, -4),
    "denormal and 1": denormal_and_1,
    "smallest normal": smallest_normal,
    "largest": largest,
    "near mass zero": near_mass_zero,
    "half integers": half_integers,
}

BAD: dict[str, Kind] = {
    "empty": lambda random, size: np.full(size, -np.inf, np.float32),
    "one nan": bell_with(np.nan),
    "one inf": bell_with(np.inf),
    "invalid": invalid,
}

# ---------------------------------------------------------------- rows that are hard to add up


def plateau(random: RandomWords, size: int) -> np.ndarray:
    """Bell / 16, half of it 12 below: masses near 1, and near 2^-17.

    Where many are kept, each addition of the running sum over such a nucleus rounds.
    """
    row = bell(random, size, -4)
    row[random.one_in(2, size, 7)] -= np.float32(12)
    return row


def rounding(random: RandomWords, size: int) -> np.ndarray:
    """Tokens at 0, and as many or more at -16 + 2^-19: with these, long float64 sums round.

    At scale 1 each of the latter weighs 2^-16 + 11 * 2^-39: it is added halfway between two
    float64, and rounded down.
    """
    row = np.full(size, -16 + 2.0**-19, dtype=np.float32)
    return with_value(row, 0, random.permutation(size)[: min(2**14, size // 2)])


def faint(random: RandomWords, size: int) -> np.ndarray:
    """One token at 0, and all others at 12 to 44 below: most of them have no integer mass."""
    row = exact(-(random.words(size) & np.uint64(0x1FFFFF)).astype(np.int64), -16) - np.float32(12)
    return with_value(row, 0, random.index(size))


HARD_TO_ADD: dict[str, Kind] = {
    "plateau": plateau,
    "rounding": rounding,
    "faint": faint,
    "seventy values": lambda random, size: few_values(random, size, 70, 0),
    "nearly flat": lambda random, size: bell(random, size, -15),
}

KINDS: dict[str, Kind] = {**SHARED, **EXTREME, **BAD}
"""All kinds but `HARD_TO_ADD`."""
