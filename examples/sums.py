"""Sum one array in many ways, and group the ways by their result.

    python examples/sums.py

The array holds a million float32 numbers. torch is included if it is installed; more threads than
processors need FASTSAMPLE_NUM_THREADS=8.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from itertools import product

import numpy as np

import fastsample

THREADS = (1, 2, 3, 8)


def sums_of(x: np.ndarray) -> dict[str, float]:
    """Sum the array with every method."""
    sums = {"np.sum": float(np.sum(x)), "np.sum, reversed": float(np.sum(x[::-1]))}
    if find_spec("torch") is not None:
        import torch

        for threads in THREADS[:2]:
            torch.set_num_threads(threads)
            sums[f"torch.sum, {threads} threads"] = float(torch.from_numpy(x).sum())
    for reduction in ("fast", "fixed", "exact"):
        for isa, threads in product(fastsample.info()["isa_usable"], THREADS):
            name = f"{reduction}, {isa}, {threads} threads"
            sums[name] = fastsample.reduce_sum(x, reduction, isa=isa, n_threads=threads)
        sums[f"{reduction}, reversed"] = fastsample.reduce_sum(x[::-1], reduction)
    sums["math.fsum"] = math.fsum(x)
    return sums


def main() -> None:
    """Print each distinct sum and the methods that give it."""
    sums = sums_of(np.random.default_rng(0).standard_normal(1_000_003, dtype=np.float32))
    for result in sorted(set(sums.values())):
        methods = [name for name, value in sums.items() if value == result]
        print(f"{result!r}: {'; '.join(methods)}")


if __name__ == "__main__":
    main()
