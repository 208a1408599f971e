"""What a result holds for: versions, the processor, what was there to be asked and what was not."""

from __future__ import annotations

import os
import platform
from typing import Any

import numpy as np

from fastsample.api.info import cpu_name, info
from fastsample.engines import TENSOR_ENGINES

from .backends import Engines
from .child import why_no_child
from .flush import flushing
from .invariants import THREADED, THREADS, UNFORKED

NEVER = {
    "reduce_sum": "not asked; its own tests hold it",
    "top_p, filter_logits, candidates": "not asked; they are written from kept sets",
    "tensors, `out`, `valid_vocab`": "rows are NumPy arrays, and all their columns are tokens",
    "other devices than the CPU": "NumPy arrays lie on the CPU",
    "masks of bits, biases of each row": "masks are bool, and one bias holds for all rows",
    "adjusted rows in a Sampler": "a Sampler is asked without mask, bias and penalties",
    "adjusted rows in shards and other orders": "shards and orders are of rows as they came",
    "other stages in shards": "what merges them has the usual order of stages",
    "raw and tempered laws of rows above 16,384 logits": "functions of whole rows alone hold them",
    "masses of rows above 16,384 logits": "held once for each way, in shards and in another order "
    "by the default one, and in nothing else",
}
"""What no run covers, and why."""
OF_ONE_THREAD = {"torch": "it is asked in a child with one thread"}


def conditions(
    engines: Engines,
    largest: int,
    empty: list[str],
) -> dict[str, Any]:
    """Describe them.

    Parameters
    ----------
    engines : Engines
        Those that were asked, and those that were not, and why.
    largest : int
        The largest vocabulary that there was.
    empty : list of str
        Lines on which nothing was compared.
    """
    facts = info()
    names = list(dict.fromkeys(name for name, _ in (*engines.here, *engines.beside)))
    not_covered = {**engines.not_asked, **dict.fromkeys(empty, "nothing was compared"), **NEVER}
    not_covered[f"vocabularies above {largest:,}"] = "the largest that was tried"
    for name in names:
        if name not in THREADED:
            not_covered[f"threads of {name}"] = OF_ONE_THREAD.get(name, "it has none")
        if name in UNFORKED:
            not_covered[f"fork of {name}"] = "a forked child cannot use a GPU that is in use"
        if name in TENSOR_ENGINES:
            not_covered[f"fixed and fast of {name}"] = "it refuses them"
    with flushing() as flushed:
        pass
    if not flushed:
        not_covered["flush-to-zero"] = "how to switch it on is not known for this system"
    if reason := why_no_child():
        not_covered["fork"] = reason
    return {
        "fastsample": facts["version"],
        "rule_version": facts["rule_version"],
        "python": platform.python_version(),
        "numpy": np.__version__,
        **({"numba": facts["numba"]} if "numba" in names else {}),
        **({"torch": f"{facts['torch']} on the CPU"} if "torch" in names else {}),
        **({"triton": f"{facts['triton']} on a GPU"} if "triton" in names else {}),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "processors": os.cpu_count(),
        "isa_compiled": list(facts["isa_compiled"]),
        "isa_usable": list(facts["isa_usable"]),
        "isa_default": facts["isa"],
        "engines": [*(name for name in names if name != "reference"), "reference"],
        "threads": list(THREADS) if set(names) & set(THREADED) else [1],
        "dtypes": ["float32", "float16", "bfloat16"],
        "not_covered": not_covered,
    }
