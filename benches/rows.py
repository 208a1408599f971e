"""The rows that benches time on: recorded, generated or adversarial, in every dtype that is taken.

A set of rows of FASTSAMPLE_LOGITS holds 16, which come from the third-level cache, as a row does
that a model's last layer has just written. Other sets hold 64, which come from that cache or from
memory. No row comes from the second-level cache.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from generator import make_row
from numpy.typing import NDArray
from settings import VOCABULARIES, Setting

from fastsample.cli.files import demo_rows, read_rows

COUNT, FILE_COUNT = 64, 16
WARM_SECONDS, WARM_PASSES = 0.5, 8
"""How much new rows are read before anything is timed on them: both, at the least."""

HEAD = 2_000
"""How many of a row's largest logits a cut keeps; the rest is a random part of the others."""

SMOLLM2, GENERATOR, FILE = "SmolLM2", "generator", "recorded"


@dataclass(frozen=True)
class RowSet:
    """Rows by source and vocabulary; those of FILE are in the file of FASTSAMPLE_LOGITS."""

    source: str
    vocabulary: int

    @property
    def name(self) -> str:
        """The name in tables."""
        return f"{self.source}, V = {self.vocabulary:,}"

    @property
    def count(self) -> int:
        """How many rows the set has."""
        return FILE_COUNT if self.source == FILE else COUNT

    def goal(self, setting: Setting) -> float | None:
        """Return the goal of a setting on these rows: only recorded ones have goals."""
        return setting.goal(self.vocabulary) if self.source == FILE else None

    def rows(self) -> NDArray[np.float32]:
        """Make the rows: float32 of shape (count, vocabulary), each in memory of its own."""
        distinct = self.distinct()
        return np.stack([distinct[i % len(distinct)] for i in range(self.count)])

    def distinct(self) -> list[NDArray[np.float32]]:
        """Make the rows that differ: those of a source with fewer rows than the set come again."""
        if self.source == GENERATOR:
            return [make_row(self.vocabulary, i) for i in range(self.count)]
        recorded = _recorded(self.source)
        whole = recorded.shape[1] == self.vocabulary
        count = min(len(recorded), self.count) if whole else self.count
        return [cut(recorded[i % len(recorded)], self.vocabulary, seed=i) for i in range(count)]


@cache
def _recorded(source: str) -> NDArray[np.float32]:
    if source == SMOLLM2:
        return demo_rows()
    return np.array(read_rows(Path(os.environ["FASTSAMPLE_LOGITS"])))


def cut(row: NDArray[np.float32], vocabulary: int, seed: int) -> NDArray[np.float32]:
    """Keep `vocabulary` tokens of a row, ascending, its `HEAD` largest logits among them."""
    if vocabulary > row.size:
        raise ValueError(f"a row of {row.size} logits cannot be cut to {vocabulary}")
    rng = np.random.default_rng(seed)
    ranked = np.argpartition(row, -min(HEAD, vocabulary))
    head, tail = np.split(ranked, [-min(HEAD, vocabulary)])[::-1]
    rest = rng.choice(tail, vocabulary - head.size, replace=False)
    return row[np.sort(np.concatenate([head, rest]))]


def of_the_package() -> tuple[RowSet, ...]:
    """List the sets that anyone has: recorded rows, and generated ones as wide as goals are for."""
    return RowSet(SMOLLM2, 49_152), RowSet(GENERATOR, VOCABULARIES[0])


def of_the_file() -> tuple[RowSet, ...]:
    """List the sets that have goals: rows of the file that FASTSAMPLE_LOGITS names, cut to size.

    A file whose rows are too short for all of them is a set of its own size.
    """
    path = os.environ.get("FASTSAMPLE_LOGITS")
    if not path:
        return ()
    own = read_rows(Path(path)).shape[1]
    sizes = [size for size in VOCABULARIES if size <= own]
    return tuple(RowSet(FILE, size) for size in sizes or [own])


def compared() -> tuple[RowSet, ...]:
    """List the sets on which rivals are timed, the one that is best to read last."""
    small, generated = of_the_package()
    return small, *(of_the_file() or (generated,))[:1]


# ---------------------------------------------------------------- adversarial rows


def _clustered(row: NDArray[np.float32]) -> NDArray[np.float32]:
    """Move the largest tenth next to each other."""
    ranked = np.argsort(row)
    tenth = row.size // 10
    rest = np.sort(ranked[:-tenth])
    middle = rest.size // 2
    return row[np.concatenate([rest[:middle], ranked[-tenth:], rest[middle:]])]


def _two_values(row: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(row > np.median(row), np.float32(3), np.float32(0))


def _one_peak(row: NDArray[np.float32]) -> NDArray[np.float32]:
    peak = np.zeros_like(row)
    peak[np.argmax(row)] = 30
    return peak


def _masked(row: NDArray[np.float32]) -> NDArray[np.float32]:
    kept = np.random.default_rng(row.size).random(row.size) < 0.1
    return np.where(kept, row, np.float32(-np.inf))


def _normal(row: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.random.default_rng(abs(int(row[0] * 1e6))).standard_normal(row.size, np.float32)


ADVERSARIAL: dict[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    "sorted": np.sort,
    "reversed": lambda row: np.sort(row)[::-1],
    "clustered": _clustered,
    "all equal": np.zeros_like,
    "two values": _two_values,
    "one peak": _one_peak,
    "90 % masked": _masked,
    "random normal": _normal,
}
"""Shapes that a way to choose may not like, made of a row; each is harmless to the rule."""


# ---------------------------------------------------------------- rows as benches ask for them


@lru_cache(maxsize=3)
def rows_of(
    rows: RowSet, shape: str | None = None, seconds: float = WARM_SECONDS
) -> NDArray[np.float32]:
    """Make and warm the rows of a set, as they are or in an adversarial shape, or remember them."""
    made = rows.rows()
    if shape is not None:
        made = np.stack([ADVERSARIAL[shape](row) for row in made])
    warm(made, seconds)
    return made


def warm(rows: NDArray[Any], seconds: float) -> int:
    """Read rows again and again, for so long at least; return how many times.

    Memory that has just been allocated is slower to read: its pages are new.
    """
    bits, passes, start = rows.view(np.uint16), 0, time.perf_counter()
    while passes < WARM_PASSES or time.perf_counter() - start < seconds:
        for row in bits:
            np.max(row)
        passes += 1
    return passes


def as_dtype(rows: NDArray[np.float32], dtype: str, seconds: float = WARM_SECONDS) -> Any:
    """Round rows to float16, or to bfloat16 as ml_dtypes has it, and warm them."""
    if dtype == "bfloat16":
        from ml_dtypes import bfloat16 as dtype
    made = rows.astype(dtype)
    warm(made, seconds)
    return made
