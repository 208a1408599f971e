"""The rows that benches time on: recorded logits, cut to a vocabulary without losing their head."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastsample.demo import load_rows

HEAD = 2_000
"""How many of a row's largest logits a cut keeps; the rest is a random part of the others."""


def recorded() -> NDArray[np.float32]:
    """Rows of the file that FASTSAMPLE_LOGITS names, else the rows that ship with the package."""
    path = os.environ.get("FASTSAMPLE_LOGITS")
    if path:
        rows: NDArray[np.float32] = np.load(Path(path), allow_pickle=False)
        return rows
    return load_rows()


def cut(row: NDArray[np.float32], vocabulary: int, seed: int) -> NDArray[np.float32]:
    """Keep `vocabulary` tokens of a row, in ascending token, its `HEAD` largest logits among them.

    A row that is smaller than the vocabulary lends tokens below its head more than once.
    """
    rng = np.random.default_rng(seed)
    head = np.argpartition(row, -HEAD)[-HEAD:]
    tail = np.setdiff1d(np.arange(row.size), head)
    wanted = vocabulary - HEAD
    rest = rng.choice(tail, wanted, replace=wanted > tail.size)
    return row[np.sort(np.concatenate([head, rest]))]


def rows_of(vocabulary: int, count: int = 64) -> NDArray[np.float32]:
    """Make `count` different rows of a vocabulary: together too large for a second-level cache."""
    source = recorded()
    return np.stack([cut(source[i % len(source)], vocabulary, seed=i) for i in range(count)])
