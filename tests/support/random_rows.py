"""Random rows and random settings, extreme on purpose, for oracle tests of every engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastsample.engines import reference
from fastsample.params.table import STAGE_PARAMETERS, STAGES
from fastsample.params.validation import Parameter
from fastsample.verification.rows import RandomWords
from tests.support import row_kinds
from tests.support.engines import SHARED_STAGES

Rng = np.random.Generator
Recipe = Callable[[Rng, int], np.ndarray]


def normal(rng: Rng, size: int, spread: float) -> np.ndarray:
    """Normal logits, which have all bits of a float32."""
    return (rng.standard_normal(size) * spread).astype(np.float32)


def normal_of(spread: float) -> Recipe:
    return lambda rng, size: normal(rng, size, spread)


def by_words(kind: row_kinds.Kind) -> Recipe:
    """A kind of rows from the words of a random seed."""
    return lambda rng, size: kind(RandomWords(int(rng.integers(2**63))), size)


KINDS: dict[str, Recipe] = {
    **{f"normal {spread}": normal_of(spread) for spread in (0.1, 1, 3, 10, 30)},
    "normal 2^-62": normal_of(2.0**-62),
    **{name: by_words(kind) for name, kind in row_kinds.KINDS.items()},
}
HARD = {**KINDS, **{name: by_words(kind) for name, kind in row_kinds.HARD_TO_ADD.items()}}
"""All kinds, those that are hard to add up among them."""

# ---------------------------------------------------------------- settings

SCALE_ONE = float(np.float32(reference.LOG2_E))
TEMPERATURES = (
    *(0.0, 1e-50, 1e-45, 1e-38, 1e-20, 1e-5, 0.01, 0.1, 0.2, 0.5, 0.7, 0.8, 0.9),
    *(1.0, SCALE_ONE, 1.3, 2.0, 10.0, 1e3, 1e6, 1e20, 3e38),
)
NUMBERS = (
    *(0.0, 1e-40, 1e-30, 2.0**-60, 2.0**-59.9, 1e-12, 1e-9, 1e-6, 2.0**-21, 1e-3, 0.01, 0.05),
    *(
        0.1,
        0.5,
        0.8,
        0.9,
        0.95,
        0.99,
        0.999,
        0.999999,
        1 - 2.0**-24,
        1.0,
        1.5,
        2.0,
        3.0,
        100.0,
        3e38,
    ),
)
# Numbers of lanes or tokens in one block, at which an engine may take another path.
BLOCKS = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


def pick(rng: Rng, pool: Any) -> Any:
    return pool[rng.integers(len(pool))]


def random_top_k(rng: Rng, size: int) -> int:
    around = -(-size // pick(rng, BLOCKS)) + int(rng.integers(-1, 2))
    some = int(rng.integers(1, size + 1))
    pool = (1, 2, 3, 20, 40, 50, 64, 100, 256, size - 1, size, size + 1, 2**40, around, some, some)
    return max(0, pick(rng, pool))


def random_number(rng: Rng, parameter: Parameter) -> float:
    """A number in the range of a filter: at an edge, anywhere, or small."""
    if rng.random() < 0.4:
        return pick(rng, [one for one in NUMBERS if one <= parameter.high])
    return float(rng.random() ** pick(rng, (1, 1, 4))) * pick(rng, (1, min(3, parameter.high)))


def random_value(rng: Rng, parameter: Parameter, size: int) -> Any:
    """A value of a stage parameter."""
    if parameter.name == "temperature":
        return pick(rng, TEMPERATURES) if rng.random() < 0.6 else float(rng.uniform(0.05, 3))
    if parameter.name == "top_k":
        return random_top_k(rng, size)
    return random_number(rng, parameter)


def random_filters(rng: Rng, size: int) -> dict[str, Any]:
    """A value of every stage parameter, most of them off; the usual chain now and then."""
    off = {one.name: one.default for one in STAGE_PARAMETERS}
    if rng.random() < 0.1:
        return {**off, "temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05}
    return {
        one.name: random_value(rng, one, size)
        if one.name == "temperature" or (one.name in SHARED_STAGES and rng.random() < 0.4)
        else one.default
        for one in STAGE_PARAMETERS
    }


def filters_per_row(rng: Rng, n_rows: int, size: int) -> dict[str, list[Any]]:
    """Random filters of rows, each setting a list with a value per row."""
    each = [random_filters(rng, size) for _ in range(n_rows)]
    return {name: [one[name] for one in each] for name in STAGES}


def random_draws(rng: Rng, n_draws: int) -> dict[str, np.ndarray]:
    """Seeds, positions and streams: any bits for one half of them, small ones for the other."""
    small = rng.random(n_draws) < 0.5
    wide = rng.integers(0, 2**64, (2, n_draws), dtype=np.uint64)
    stream = rng.integers(0, 2**32, n_draws, dtype=np.uint32)
    seed, position = np.where(small, wide % np.uint64(1000), wide)
    return {"seed": seed, "position": position, "stream": np.where(small, stream % 8, stream)}
