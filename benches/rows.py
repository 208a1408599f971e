"""The rows that benches time on: recorded, generated or adversarial, in every dtype that is taken.

A set holds 64 rows, so that a row is read from the third-level cache or from memory, as after a
model's last layer, and never from the second-level cache.
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

from fastsample.cli.files import demo_rows, read_rows

COUNT = 64
WARM_SECONDS, WARM_PASSES = 0.5, 8
"""How much new rows are read before anything is timed on them: both, at the least."""

HEAD = 2_000
"""How many of a row's largest logits a cut keeps; the rest is a random part of the others."""

SMOLLM2, GENERATOR, FILE = "SmolLM2", "generator", "file"


@dataclass(frozen=True)
class RowSet:
    """Rows by their source and vocabulary; `file` is the one that FASTSAMPLE_LOGITS names."""

    source: str
    vocabulary: int

    @property
    def name(self) -> str:
        """The name in tables."""
        return f"{self.source}, V = {self.vocabulary:,}"

    def rows(self) -> NDArray[np.float32]:
        """Make the rows: float32 of shape (64, vocabulary), each in memory of its own."""
        distinct = self.distinct()
        return np.stack([distinct[i % len(distinct)] for i in range(COUNT)])

    def distinct(self) -> list[NDArray[np.float32]]:
        """Make the rows that differ: those of a source with fewer than 64 come again."""
        if self.source == GENERATOR:
            return [make_row(self.vocabulary, i) for i in range(COUNT)]
        recorded = _recorded(self.source)
        whole = recorded.shape[1] == self.vocabulary
        count = min(len(recorded), COUNT) if whole else COUNT
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


def published() -> tuple[RowSet, ...]:
    """List the sets of the first table, which anyone can repeat."""
    return RowSet(SMOLLM2, 49_152), RowSet(GENERATOR, 151_936)


def of_the_file() -> tuple[RowSet, ...]:
    """List the sets of the second table: the file's own vocabulary, and cuts of it."""
    path = os.environ.get("FASTSAMPLE_LOGITS")
    if not path:
        return ()
    own = read_rows(Path(path)).shape[1]
    return tuple(RowSet(FILE, v) for v in (own, 151_936, 32_000) if v <= own)


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
