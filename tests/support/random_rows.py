"""Random rows and random settings, extreme on purpose, for oracle tests of every engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastsample.engines import reference
from fastsample.params.table import STAGE_PARAMETERS, STAGES
from fastsample.params.validation import Parameter
from tests.support.engines import SHARED_STAGES

Rng = np.random.Generator
MAX = float(np.finfo(np.float32).max)


def normal(rng: Rng, size: int, spread: float) -> np.ndarray:
    return (rng.standard_normal(size) * spread).astype(np.float32)


def normal_of(spread: float) -> Callable[[Rng, int], np.ndarray]:
    return lambda rng, size: normal(rng, size, spread)


def ties_of(count: int, step: float) -> Callable[[Rng, int], np.ndarray]:
    return lambda rng, size: (rng.integers(0, count, size) * step).astype(np.float32)


def quantised_of(step: float) -> Callable[[Rng, int], np.ndarray]:
    return lambda rng, size: (np.rint(normal(rng, size, 4) / step) * step).astype(np.float32)


def masked_of(share: float) -> Callable[[Rng, int], np.ndarray]:
    def make(rng: Rng, size: int) -> np.ndarray:
        row = normal(rng, size, 3)
        row[rng.random(size) < share] = -np.inf
        row[rng.integers(size)] = rng.normal()
        return row

    return make


def masked_ties(rng: Rng, size: int) -> np.ndarray:
    row = masked_of(0.7)(rng, size)
    return np.where(np.isinf(row), row, np.rint(row)).astype(np.float32)


def ascending(rng: Rng, size: int) -> np.ndarray:
    return np.sort(normal(rng, size, 4))


def descending(rng: Rng, size: int) -> np.ndarray:
    return ascending(rng, size)[::-1].copy()


def clustered(rng: Rng, size: int) -> np.ndarray:
    row = normal(rng, size, 2)
    start = rng.integers(size)
    row[start : start + rng.integers(1, 200)] += np.float32(9)
    return row


def denormal(rng: Rng, size: int) -> np.ndarray:
    """Denormals, zeros of both signs and, in some rows, a normal logit."""
    bits = rng.integers(0, 2**32, size, dtype=np.uint32) & np.uint32(0x807FFFFF)
    row = bits.view(np.float32)
    row[rng.random(size) < 0.2] = -0.0
    if rng.random() < 0.5:
        row[rng.integers(size)] = rng.normal()
    return row


def smallest_normal(rng: Rng, size: int) -> np.ndarray:
    bits = rng.integers(0x00700000, 0x01100000, size, dtype=np.uint32)
    bits |= rng.integers(0, 2, size, dtype=np.uint32) << np.uint32(31)
    return bits.view(np.float32)


def largest(rng: Rng, size: int) -> np.ndarray:
    return rng.choice(np.array([MAX, -MAX, MAX / 2, -1, 0, -np.inf], dtype=np.float32), size)


def any_bits(rng: Rng, size: int) -> np.ndarray:
    bits = rng.integers(0, 2**32, size, dtype=np.uint32)
    bits[(bits & 0x7F800000) == 0x7F800000] ^= np.uint32(0x40000000)
    return bits.view(np.float32)


def constant(rng: Rng, size: int) -> np.ndarray:
    return np.full(size, rng.choice([0.0, -0.0, -7.25, 3e38, 1e-40]), dtype=np.float32)


def peak(rng: Rng, size: int) -> np.ndarray:
    row = normal(rng, size, 1)
    row[rng.integers(size)] = rng.choice([20.0, 30.0, 1e30])
    return row


def near_mass_zero(rng: Rng, size: int) -> np.ndarray:
    """A top token, and the others around the y at which masses vanish."""
    y = -41 + rng.normal(0, rng.choice([1e-5, 0.01, 1, 3]), size)
    row = (y / reference.LOG2_E).astype(np.float32)
    row[rng.integers(size)] = 0
    return row


def half_integers(rng: Rng, size: int) -> np.ndarray:
    """Logits whose y, at the temperature of scale 1, is a half integer or next to one."""
    row = (-rng.integers(0, 90, size) / 2).astype(np.float32)
    side = np.float32(np.inf) * rng.choice(np.array([-1, 1], dtype=np.float32), size)
    return np.where(rng.random(size) < 0.7, row, np.nextafter(row, side)).astype(np.float32)


def long_tail(rng: Rng, size: int) -> np.ndarray:
    return (-(rng.exponential(3, size) ** 1.5)).astype(np.float32)


def empty(rng: Rng, size: int) -> np.ndarray:
    return np.full(size, -np.inf, dtype=np.float32)


def invalid(rng: Rng, size: int) -> np.ndarray:
    row = masked_of(rng.choice([0.0, 0.5, 1.0]))(rng, size)
    bad = np.array([0x7F800000, 0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001], dtype=np.uint32)
    row.view(np.uint32)[rng.integers(size)] = rng.choice(bad)
    return row


KINDS: dict[str, Callable[[Rng, int], np.ndarray]] = {
    **{f"normal {spread}": normal_of(spread) for spread in (0.1, 1, 3, 10, 30)},
    "normal 2^-62": normal_of(2.0**-62),
    "two values": ties_of(2, 0.5),
    "five values": ties_of(5, 1.0),
    "two far values": ties_of(2, 60.0),
    "quantised 1": quantised_of(1.0),
    "quantised 1/16": quantised_of(0.0625),
    **{f"masked {share}": masked_of(share) for share in (0.5, 0.9, 0.99)},
    "masked ties": masked_ties,
    "ascending": ascending,
    "descending": descending,
    "clustered": clustered,
    "denormal": denormal,
    "smallest normal": smallest_normal,
    "largest": largest,
    "any bits": any_bits,
    "constant": constant,
    "peak": peak,
    "near mass zero": near_mass_zero,
    "half integers": half_integers,
    "long tail": long_tail,
    "empty": empty,
    "invalid": invalid,
}

# ---------------------------------------------------------------- rows that are hard to add up

LN2 = 0.6931471805599453


def plateau(rng: Rng, size: int) -> np.ndarray:
    """Half of the tokens near the top, the others around 2^-17 of it.

    Where many are kept, each addition of the running sum over such a nucleus rounds.
    """
    row = rng.normal(0, 0.1, size)
    row[rng.random(size) < 0.5] -= 17 * LN2
    return row.astype(np.float32)


def far_below(rng: Rng, size: int) -> np.ndarray:
    """A top token, and all others between 2^-17 and 2^-63 of it: masses of 0 in exact mode."""
    row = -LN2 * rng.uniform(17, 63, size)
    row[rng.integers(size)] = 0
    return row.astype(np.float32)


def steps(rng: Rng, size: int) -> np.ndarray:
    """The same few tokens at every power of two down to the floor, in any order."""
    return (rng.permutation(size) % 70 * -LN2).astype(np.float32)


def nearly_flat(rng: Rng, size: int) -> np.ndarray:
    return rng.normal(0, 2.0**-12, size).astype(np.float32)


HARD = {
    **KINDS,
    "plateau": plateau,
    "far below": far_below,
    "steps": steps,
    "nearly flat": nearly_flat,
}

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
