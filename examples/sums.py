"""One array, many sums: who agrees with whom.

    python examples/sums.py

Each way to add a million float32 is asked, and the ways are grouped by their answer. torch is asked
where it is installed; threads beyond the processors need FASTSAMPLE_NUM_THREADS=8.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from itertools import product

import numpy as np

import fastsample

THREADS = (1, 2, 3, 8)


def ways_of(x: np.ndarray) -> dict[str, float]:
    """Every way's sum of the array."""
    ways = {"np.sum": float(np.sum(x)), "np.sum, reversed": float(np.sum(x[::-1]))}
    if find_spec("torch") is not None:
        import torch

        for threads in THREADS[:2]:
            torch.set_num_threads(threads)
            ways[f"torch.sum, {threads} threads"] = float(torch.from_numpy(x).sum())
    for reduction in ("fast", "fixed", "exact"):
        for isa, threads in product(fastsample.info()["isa_usable"], THREADS):
            name = f"{reduction}, {isa}, {threads} threads"
            ways[name] = fastsample.reduce_sum(x, reduction, isa=isa, n_threads=threads)
        ways[f"{reduction}, reversed"] = fastsample.reduce_sum(x[::-1], reduction)
    ways["math.fsum"] = math.fsum(x)
    return ways


def main() -> None:
    """Group the ways by their answer."""
    ways = ways_of(np.random.default_rng(0).standard_normal(1_000_003, dtype=np.float32))
    for answer in sorted(set(ways.values())):
        same = [name for name, one in ways.items() if one == answer]
        print(f"{answer!r}: {'; '.join(same)}")


if __name__ == "__main__":
    main()
