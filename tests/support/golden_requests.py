"""Jobs of the golden files: one row each, rebuilt from what a case records."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.engines import SampleOutput, SampleRequest, csr, make_plan, make_request, sha256
from tests.support.golden_rows import make_row, words

MODES = ("raw", "tempered", "processed")


def values_of(recipe: dict[str, Any]) -> np.ndarray:
    """A golden row, given or in one of the dtypes: rounded to float16, or cut to bfloat16."""
    if "logits" in recipe:
        return np.array([float.fromhex(x) for x in recipe["logits"]], dtype=np.float32)
    row = make_row(recipe["recipe"], recipe["size"], recipe["seed"])
    if recipe["dtype"] == "float16":
        with np.errstate(over="ignore", under="ignore"):
            return row.astype(np.float16)
    if recipe["dtype"] == "bfloat16":
        return (row.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return row


def mask_of(recipe: dict[str, Any], seed: int) -> np.ndarray:
    """Allows all but one token in `bans_one_in`, of the first `columns`, as bools or as bits."""
    allowed = words(recipe["columns"], seed, 21) % recipe["bans_one_in"] != 0
    if not recipe["bits"]:
        return allowed[np.newaxis]
    padded = np.zeros(-(-len(allowed) // 32) * 32, dtype=bool)
    padded[: len(allowed)] = allowed
    packed = np.packbits(padded, bitorder="little").view("<u4").astype(np.uint32)
    return packed[np.newaxis]


def make_golden_request(case: dict[str, Any], reduction: str = "exact") -> SampleRequest:
    """The request of one case, of one row."""
    lists: dict[str, Any] = {}
    if case["mask"]:
        lists["mask"] = mask_of(case["mask"], case["row"]["seed"])
    if case["bias"]:
        tokens, values = zip(*case["bias"], strict=True)
        lists["bias"] = csr([tokens], [np.float32([float(value) for value in values])])
    for name in ("prompt", "output"):
        if case[name] is not None:
            lists[name] = csr([case[name]])
    plan = make_plan(1, **case["settings"])
    values = values_of(case["row"])[np.newaxis]
    return make_request(values, plan, case["vocabulary"], reduction, **lists)


def top_count_of(vocabulary: int) -> int:
    """The number of top tokens of a golden request in fixed."""
    return min(vocabulary, 300)


def sha256_of_logprobs(out: SampleOutput) -> str:
    """Hash of an output's log-probabilities, ranks and top tokens."""
    return sha256(*out.logprobs[1:])
