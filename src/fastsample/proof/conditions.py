"""What a result holds for: versions, the processor, what was there to be asked and what was not."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import Any

import numpy as np

from fastsample.info import cpu_name, info

from .child import can_fork
from .flush import flushing
from .invariants import THREADS
from .memory import bfloat16_maker


def conditions(engines: list[tuple[str, str | None]], absent: dict[str, str]) -> dict[str, Any]:
    """Describe them.

    Parameters
    ----------
    engines : list of (engine, isa)
        Those that were asked.
    absent : dict
        Those that were not, and why.
    """
    facts = info()
    names = list(dict.fromkeys(name for name, _ in engines))
    not_covered = {**absent, "adjustments": "no case has a mask, a bias or penalties"}
    with flushing() as flushed:
        pass
    if not flushed:
        not_covered["flush-to-zero"] = "how to switch it on is not known for this system"
    maker = bfloat16_maker()
    if maker is None:
        not_covered["bfloat16"] = "neither ml_dtypes nor torch is installed"
    if not can_fork():
        not_covered["fork"] = "this system has none"
    return {
        "fastsample": facts["version"],
        "rule_version": facts["rule_version"],
        "python": platform.python_version(),
        "numpy": np.__version__,
        **({"numba": version("numba")} if "numba" in names else {}),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "processors": os.cpu_count(),
        "isa_compiled": list(facts["isa_compiled"]),
        "isa_usable": list(facts["isa_usable"]),
        "isa_default": facts["isa"],
        "engines": [*(name for name in names if name != "reference"), "reference"],
        "threads": list(THREADS),
        "dtypes": ["float32", "float16", *(["bfloat16"] if maker else [])],
        "not_covered": not_covered,
    }
