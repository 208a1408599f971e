"""Cases from public bug reports and test files of samplers, as arguments of the public functions.

`cases/cases.json` restates their facts: rows, parameters, and what a sampler must answer. `source`
names where the fault was seen. A case with `left_out` says why it does not apply here.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.engines import Engine

PATH = Path(__file__).parents[1] / "cases" / "cases.json"
ALL: list[dict[str, Any]] = json.loads(PATH.read_text())
BY_ID: dict[str, dict[str, Any]] = {case["id"]: case for case in ALL}


def of_type(kind: str) -> list[str]:
    """Ids of the cases of one type that apply."""
    return [case["id"] for case in ALL if case["type"] == kind and "left_out" not in case]


@cache
def array_of(expression: str) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.asarray(eval(expression, {"np": np}))


def logits_of(case: dict[str, Any]) -> np.ndarray:
    """A case's row: float32 of shape (V,)."""
    given = case["logits"]
    values = array_of(given) if isinstance(given, str) else [float(x) for x in given]
    return np.asarray(values, dtype=np.float32)


def arguments_of(case: dict[str, Any], size: int) -> dict[str, Any]:
    """A case's parameters as keywords of `fastsample.kept_set`."""
    arguments = {name: case[name] for name in ("prompt", "output") if name in case}
    if "stages" in case:
        # A stage that no filter needs may be missing upstream.
        arguments["stages"] = tuple(case["stages"])
    for name, value in case.get("params", {}).items():
        if name == "bias":
            arguments["bias"] = {int(token): float(x) for token, x in value.items()}
        elif name == "allowed":
            arguments["mask"] = np.isin(np.arange(size), value)
        elif name == "banned":
            arguments["bias"] = dict.fromkeys(value, -np.inf)
        else:
            arguments[name] = float(value) if isinstance(value, str) else value
    return arguments


def tokens_of(expected: dict[str, Any]) -> list[int] | None:
    """The kept tokens that a case expects, ascending; None where it has none."""
    if "kept_range" in expected:
        return [*range(*expected["kept_range"])]
    kept = expected.get("kept")
    return array_of(kept).tolist() if isinstance(kept, str) else kept


def how(engine: Engine) -> dict[str, Any]:
    """Keywords that choose an engine."""
    return {"engine": engine.name, "isa": engine.isa}
