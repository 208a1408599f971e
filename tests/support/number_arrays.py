"""Arrays of numbers that sums are tried on, and how the sums are looked at."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

DTYPES = (np.float16, np.float32, np.float64)
# Around lanes, vectors, strides of vectors, blocks, and several blocks at once.
SIZES = (
    *(0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129),
    *(4095, 4096, 4097, 8191, 8192, 8193, 12_289, 16_384, 16_385, 20_481, 40_963),
)


def bits(number: float) -> bytes:
    """The bits of a sum."""
    assert type(number) is float
    return np.float64(number).tobytes()


def any_bits(rng: np.random.Generator, size: int, dtype: Any) -> np.ndarray:
    """Numbers of any exponent, denormals among them, with no infinity and no NaN."""
    whole = np.dtype(f"u{np.dtype(dtype).itemsize}")
    values = rng.integers(0, 2 ** (8 * whole.itemsize), size, dtype=whole).view(dtype)
    return np.where(np.isfinite(values), values, dtype(1))


def spread(rng: np.random.Generator, size: int, dtype: Any, exponents: int) -> np.ndarray:
    """Numbers over so many exponents."""
    scale = 2.0 ** rng.uniform(-exponents, 0, size)
    return (rng.standard_normal(size) * scale).astype(dtype)


def kinds(size: int, dtype: Any) -> Iterator[np.ndarray]:
    rng = np.random.default_rng([size, np.dtype(dtype).itemsize])
    yield any_bits(rng, size, dtype)
    for exponents in (0, 10, 20, 45, 90, 140):
        yield spread(rng, size, dtype, exponents)
    yield np.zeros(size, dtype)
    yield np.full(size, -np.finfo(dtype).max, dtype)
    yield np.full(size, np.finfo(dtype).smallest_subnormal, dtype)


def by_fractions(values: np.ndarray) -> float:
    total = sum((Fraction(float(value)) for value in values), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf
