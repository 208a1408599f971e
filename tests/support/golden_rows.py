"""Rows of the golden files: the kinds of `row_kinds`, from words of the rule's Philox.

A word is addressed by its block and token, so no library's generator takes part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from fastsample.engines import reference
from fastsample.verification.rows import RandomWords
from tests.support.row_kinds import HARD_TO_ADD, KINDS

T = TypeVar("T")

NAMES = {"peak": "peaked", "constant": "flat", "denormal": "denormal and 1"}
"""Kinds that have another name in the golden files."""

RECIPES = (
    *("bell", "bell x 16", "bell / 16", "bell x 2^120", "bell x 2^-130", "masked 1 in 2"),
    *("masked 1 in 10", "masked 1 in 1000", "two values", "two far values", "nine values"),
    *("ascending", "descending", "clustered", "peak", "long tail", "denormal", "any bits"),
    *("constant", "empty", "one nan", "one inf"),
)
HARD_RECIPES = ("plateau", "rounding", "faint", "seventy values")


class GoldenWords(RandomWords):
    """Words of 32 bits by their block; places and picks that follow from the seed and the size."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def words(self, size: int, block: int = 0) -> np.ndarray:
        counters = np.arange(-(-size // 4), dtype=np.uint64)
        zero = np.zeros_like(counters)
        four = reference.philox4x32((self._seed, block), (counters, zero, zero, zero))
        return np.stack(four, axis=1).reshape(-1)[:size].astype(np.uint64)

    def halves(self, size: int) -> np.ndarray:
        return self.words(size).astype(np.uint32)

    def bell_integers(self, size: int, bits: int = 16) -> np.ndarray:
        mask = np.uint64(2**bits - 1)
        total = sum((self.words(size, block) & mask).astype(np.int64) for block in range(4))
        return total - 2 * int(mask)

    def index(self, size: int, part: int = 0) -> int:
        return size // part if part else self._seed % size

    def pick(self, pool: Sequence[T]) -> T:
        return pool[len(pool) // 2]


def words(size: int, seed: int, block: int = 0) -> np.ndarray:
    """`size` random 32-bit words, as int64."""
    return GoldenWords(seed).words(size, block).astype(np.int64)


def heavy(count: int, size: int, seed: int) -> np.ndarray:
    """So many tokens at 0, and all others at -20: their mass is 2^11 of 2^40."""
    row = np.full(size, -20, dtype=np.float32)
    row[np.argsort(words(size, seed, 11), kind="stable")[:count]] = 0
    return row


def make_row(recipe: str, size: int, seed: int) -> np.ndarray:
    """One golden row: float32 of shape (size,). "heavy 40" has 40 heavy tokens."""
    name, _, count = recipe.partition(" ")
    if name == "heavy":
        return heavy(int(count), size, seed)
    kinds = {**KINDS, **HARD_TO_ADD}
    return kinds[NAMES.get(recipe, recipe)](GoldenWords(seed), size)
