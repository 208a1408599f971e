"""Random rows and settings for races: what moves the level, fills the head or empties the tail."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastsample.engines.contract import SampleRequest
from fastsample.params.ops import DrawMethod
from fastsample.params.table import STAGES
from tests.support.engines import make_plan, make_request
from tests.support.random_rows import Rng, pick, random_draws

SIZES = (
    *(1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513),
    *(1000, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097),
)
"""Around lanes, blocks and powers of two."""

TEMPERATURES = (0.2, 0.5, 0.8, 1.0, 1.0, 1.5, 2.0, 5.0)
SETTINGS: dict[str, tuple[float, tuple[Any, ...]]] = {
    "top_p": (0.4, (0.05, 0.3, 0.4999, 0.5, 0.6, 0.9, 0.95, 0.999)),
    "top_k": (0.3, (1, 5, 50, 127, 128, 129, 200, 1000)),
    "min_p": (0.3, (1e-4, 0.05, 0.3, 0.9)),
    "epsilon_cutoff": (0.1, (1e-3, 0.01)),
    "top_n_sigma": (0.1, (1.0, 2.0)),
    "typical_p": (0.05, (0.5, 0.9)),
    "min_keep": (0.2, (2, 10, 300, 3000)),
}
"""How often a setting is on, and its values."""


def normal(rng: Rng, size: int) -> np.ndarray:
    return rng.standard_normal(size) * rng.choice([0.1, 1, 3, 10])


def constant(rng: Rng, size: int) -> np.ndarray:
    return np.full(size, rng.normal())


def tied(rng: Rng, size: int) -> np.ndarray:
    return np.round(rng.standard_normal(size) * 3)


def two_valued(rng: Rng, size: int) -> np.ndarray:
    """Two logits, a whole number of octaves apart at temperature 1: masses at the borders."""
    octaves = np.log(2) * rng.integers(1, 16)
    return np.where(rng.random(size) < rng.choice([0.01, 0.5, 0.99]), 0.0, -octaves)


def equal_heavy(rng: Rng, size: int) -> np.ndarray:
    row = np.full(size, -30.0)
    row[rng.choice(size, min(size, int(rng.integers(1, 60))), replace=False)] = 0
    return row


def peaked(rng: Rng, size: int) -> np.ndarray:
    row = rng.standard_normal(size) * 2
    row[rng.integers(size)] += rng.uniform(0, 20)
    return row


def masked(rng: Rng, size: int) -> np.ndarray:
    row = rng.standard_normal(size) * 2
    row[rng.random(size) < 0.9] = -np.inf
    row[rng.integers(size)] = 1
    return row


def heavy_in_every_block(rng: Rng, size: int) -> np.ndarray:
    row = rng.standard_normal(size) * 0.3
    row[rng.integers(min(size, 128)) :: 128] += 5
    return row


def near_the_top(rng: Rng, size: int) -> np.ndarray:
    """Masses between 2^39 and 2^40, where they are not monotone."""
    return rng.uniform(-0.01, 0, size) ** rng.choice([1, 3])


KINDS = (
    normal,
    constant,
    tied,
    two_valued,
    equal_heavy,
    peaked,
    masked,
    heavy_in_every_block,
    near_the_top,
)


def in_random_dtype(rng: Rng, rows: np.ndarray) -> np.ndarray:
    kind = rng.integers(3)
    if kind == 0:
        return rows
    return rows.astype(np.float16) if kind == 1 else (rows.view(np.uint32) >> 16).astype(np.uint16)


def random_settings(rng: Rng) -> dict[str, Any]:
    settings = {name: pick(rng, pool) for name, (p, pool) in SETTINGS.items() if rng.random() < p}
    if rng.random() < 0.2:
        settings["stages"] = tuple(rng.permutation(STAGES).tolist())
    return {"temperature": pick(rng, TEMPERATURES), **settings}


def random_race(rng: Rng, size: int, n_rows: int) -> SampleRequest:
    """A batch of rows with the same settings, each with a place of its own."""
    rows = np.stack([pick(rng, KINDS)(rng, size) for _ in range(n_rows)]).astype(np.float32)
    draws = random_draws(rng, n_rows)
    draws["stream"] = np.minimum(draws["stream"], 2**32 - 64)
    plan = make_plan(n_rows, **random_settings(rng), **draws, draw=DrawMethod.RACE)
    return make_request(in_random_dtype(rng, rows), plan)
