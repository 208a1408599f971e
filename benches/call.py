"""Calls for which the kernels have almost nothing to do, for every type of logits.

Nothing is timed here: `python benches/publish.py --only call` does it, and compare_builds.py.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastsample

SETTINGS: dict[str, Any] = {"temperature": 0.8, "top_k": 4, "top_p": 0.95, "min_p": 0.05}


def sampling(logits: Any, **params: Any) -> Callable[[], object]:
    """Call one sampler repeatedly."""
    sampler = fastsample.Sampler(**{**SETTINGS, **params}, stream="row", seed=1, n_threads=1)
    return lambda: sampler(logits)


def drawing(logits: Any) -> Callable[[], object]:
    """Call `sample` at increasing positions."""
    position = count()
    return lambda: fastsample.sample(
        logits, **SETTINGS, seed=1, position=next(position), n_threads=1
    )


def forms_of(rows: NDArray[np.float32]) -> dict[str, Callable[[], object]]:
    """Name each call; those of torch only where it is installed."""
    row, half = rows[0].copy(), rows[0].astype(np.float16)
    forms = {
        "sampler(row)": sampling(row),
        "sampler(row), greedy": sampling(row, temperature=0.0),
        "sampler(row), T .8 alone": sampling(row, top_k=0, top_p=1.0, min_p=0.0),
        "sampler(row), measured": sampling(row, measure=True),
        "sampler(row), float16": sampling(half),
        **{f"sampler({n} rows)": sampling(rows[:n].copy()) for n in (1, 4, 32)},
        "sample(row)": drawing(row),
    }
    try:
        import torch
    except ModuleNotFoundError:
        return forms
    tensor = torch.from_numpy(rows)
    return {
        **forms,
        "sampler(torch row)": sampling(tensor[0]),
        "sampler(torch row), bfloat16": sampling(tensor[0].bfloat16()),
        "sampler(32 torch rows)": sampling(tensor[:32]),
        "sample(torch row)": drawing(tensor[0]),
    }
