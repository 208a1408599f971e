"""What a result holds for: versions, processor, engines; and what was not checked, and why."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from typing import Any

import numpy as np

from fastsample.api.info import info
from fastsample.engines import ENGINES

from .backends import THREADS, Engine
from .flush import flushing
from .worker import why_no_fork

NEVER_COVERED = {
    "reduce_sum": "its own tests cover it",
    "top_p, filter_logits, candidates": "they are made from kept sets",
    "tensors, `out`, `valid_vocab`": "rows are NumPy arrays, and all columns are tokens",
    "devices other than the CPU": "NumPy arrays are in the CPU's memory",
    "bit masks, biases per row": "masks are bool, and one bias holds for all rows",
    "adjusted rows in a Sampler": "a Sampler gets no mask, bias or penalties",
    "adjusted rows in shards, permutations": "these have the rows as they are",
    "other stages in shards": "the merge has the four first filters, in their default order",
    "raw, tempered log-probabilities": "of rows above 16,384 logits; functions of rows cover them",
    "masses above 16,384 logits": "compared once for each backend, and in shards and in one "
    "permutation for the first one",
}


def describe_environment(engines: Iterable[Engine], not_covered: dict[str, str]) -> dict[str, Any]:
    """Describe it: `fastsample.info()` and more, for the engines that were checked."""
    names, not_covered = {name for name, _ in engines}, not_covered | NEVER_COVERED
    checked = [record for record in ENGINES.values() if record.name in names]
    for record in checked:
        if not record.has_threads:
            not_covered[f"threads of {record.name}"] = "`n_threads` does not apply to it"
        if not record.survives_fork:
            not_covered[f"fork of {record.name}"] = "a forked process cannot use a GPU in use"
        if record.reductions == ("exact",):
            not_covered[f"fixed, fast of {record.name}"] = "it has exact alone"
    with flushing() as flushed:
        if not flushed:
            not_covered["flush-to-zero"] = "not known how to switch it on for this system"
    if reason := why_no_fork():
        not_covered["fork"] = reason
    return {
        **info(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "engines": [*(one.name for one in checked if one.name != "reference"), "reference"],
        "threads": [*THREADS] if any(one.has_threads for one in checked) else [1],
        "dtypes": ["float32", "float16", "bfloat16"],
        "not_covered": not_covered,
    }
