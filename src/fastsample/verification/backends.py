"""The engines of this machine: which are checked and why others are not; and the environment."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastsample.api.info import info
from fastsample.engines import ENGINES, is_installed, resolve

from .calls import Backend
from .flush import flushing
from .worker import why_no_fork

THREADS = (1, 2, 3, 8)
FULL_EVERY, FULL_FROM = 6, 1
"""In a quick run the worker checks all invariants in one case of so many, as a call of torch takes
milliseconds; from the second case on, so that a sequence is among them."""
NEVER_COVERED = {
    "reduce_sum": "its own tests cover it",
    "top_p, filter_logits, candidates": "they are made from kept sets",
    "tensors, `out`, `valid_vocab`": "rows are NumPy arrays, and all columns are tokens",
    "devices other than the CPU": "NumPy arrays are in the CPU's memory",
    "bit masks, biases per row": "masks are bool, and one bias holds for all rows",
    "adjusted rows in a Sampler": "a Sampler gets no mask, bias or penalties",
    "adjusted rows in shards, permutations": "these have the rows as they are",
    "races in shards, permutations": "a token's clock belongs to its number in the vocabulary",
    "other stages in shards": "the merge has the four first filters, in their default order",
    "raw, tempered log-probabilities": "of rows above 16,384 logits; functions of rows cover them",
    "masses above 16,384 logits": "compared once for each backend, and in shards and in one "
    "permutation for the first one",
}
Engine = tuple[str, "str | None"]
"""Its name, and an instruction set."""


def find_engines(quick: bool) -> tuple[list[Engine], dict[str, str]]:
    """Return what is checked, the default instruction set first; and what is not, and why."""
    engines: list[Engine] = []
    not_covered = {}
    for name, record in ENGINES.items():
        if why := why_not(name, quick):
            not_covered[name] = why
        elif name != "reference":
            isas = resolve(name).isas[::-1] if record.has_isas else ()
            engines += [(name, isa) for isa in isas or (None,)]
            if quick and record.takes_tensors:
                not_covered[name] = (
                    "a quick run gives it no random cases, few large rows, and all invariants in "
                    f"one case of {FULL_EVERY}, else the first"
                )
    return engines, not_covered


def why_not(name: str, quick: bool) -> str:
    """Return why an engine is not checked; empty where it is."""
    if not is_installed(name):
        return refusal(name)
    if name == "numba" and quick and is_installed("native"):
        return "left out of a quick run, as it compiles for seconds"
    if name == "triton":
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            return "this process has its GPU in use, which a forked process cannot use"
        if os.environ.get("TRITON_INTERPRET") == "1":
            return "left out where it is interpreted, as that takes minutes"
    return ""


def refusal(name: str) -> str:
    """Load an engine; return why it cannot be used, empty where it can."""
    try:
        resolve(name)
    except RuntimeError as error:
        return str(error)
    return ""


def describe_environment(
    backends: Sequence[Backend], not_covered: dict[str, str]
) -> dict[str, Any]:
    """Describe what a result holds for: `fastsample.info()`, the backends, what is not covered."""
    not_covered = not_covered | NEVER_COVERED
    for record in {backend.engine: backend.record for backend in backends}.values():
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
    has_threads = any(backend.record.has_threads for backend in backends)
    return {
        **info(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "backends": [backend.label for backend in backends],
        "threads": [*THREADS] if has_threads else [1],
        "dtypes": ["float32", "float16", "bfloat16"],
        "not_covered": not_covered,
    }
