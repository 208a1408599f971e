"""The golden files of rule 1: their cases, and the checks that an engine gives their answers.

Rule 1 draws by the inverse method. Tests run the checks on every engine; emulated processors and
builds with a planted fault run them too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fastsample.engines import reference
from tests.support.engines import Engine, make_output, make_plan, make_request, sha256
from tests.support.golden_requests import (
    MODES,
    make_golden_request,
    sha256_of_logprobs,
    top_count_of,
)
from tests.support.golden_rows import make_row

EXACT = Path(__file__).parents[1] / "golden" / "rule-1.json"
FIXED = EXACT.with_name(f"{EXACT.stem}-fixed.json")
FILTERS = EXACT.with_name(f"{EXACT.stem}-filters.json")


@cache
def golden_file(path: Path) -> dict[str, Any]:
    """A golden file: "rule_version", and lists of cases."""
    return json.loads(path.read_text())


def cases() -> list[dict[str, Any]]:
    """Cases of a row, filters and a draw."""
    return golden_file(EXACT)["cases"]


def requests(path: Path = EXACT) -> list[dict[str, Any]]:
    """Cases of everything else that a request can have."""
    return golden_file(path)["jobs"]


@cache
def row_of(number: int) -> np.ndarray:
    """The row of a case."""
    recipe = cases()[number]["row"]
    row = make_row(recipe["recipe"], recipe["size"], recipe["seed"])
    row.flags.writeable = False
    return row


def batches(engine: Engine) -> Iterator[tuple[list[dict[str, Any]], np.ndarray]]:
    """Cases and their rows: one row a batch, or all rows of one length where a call is slow."""
    numbers_of: dict[int, list[int]] = {}
    for number in range(len(cases())):
        size = len(row_of(number))
        numbers_of.setdefault(size if engine.name == "torch" else -number, []).append(number)
    for numbers in numbers_of.values():
        yield [cases()[n] for n in numbers], np.stack([row_of(n) for n in numbers])


def plan_of(batch: list[dict[str, Any]]) -> np.ndarray:
    """The settings of some cases."""
    return np.concatenate([make_plan(1, **case["settings"]) for case in batch])


def check_tokens(engine: Engine) -> None:
    for batch, rows in batches(engine):
        tokens, status = engine.sample(rows, plan_of(batch))
        for case, *found in zip(batch, tokens.tolist(), status.tolist(), strict=True):
            assert found == [case["token"], case["status"]], case


def check_kept_sets(engine: Engine) -> None:
    for batch, rows in batches(engine):
        kept = engine.kept_sets(make_request(rows, plan_of(batch)))
        for b, case in enumerate(batch):
            part = slice(kept.offsets[b], kept.offsets[b + 1])
            by_token = np.argsort(kept.tokens[part])
            tokens, masses = kept.tokens[part][by_token], kept.masses[part][by_token]
            assert kept.status[b] == case["status"], case
            if case["status"] == reference.OK:
                found = (len(tokens), int(masses.sum()), sha256(tokens, masses))
                assert found == (case["kept"], case["total"], case["kept_sha256"]), case


# ---------------------------------------------------------------- requests


def check_request_draws(engine: Engine, path: Path = EXACT, reduction: str = "exact") -> None:
    for case in requests(path):
        out = engine.run(make_golden_request(case, reduction), make_output(1, draws=3))
        found = (int(out.status[0]), out.tokens[0].tolist(), int(out.kept_count[0]))
        assert found == (case["status"], case["tokens"], case["kept"]), case


def check_request_kept_sets(engine: Engine, path: Path = EXACT) -> None:
    for case in requests(path):
        kept = engine.kept_sets(make_golden_request(case))
        assert sha256(kept.tokens, kept.masses, kept.logits) == case["kept_sha256"], case


def check_request_logprobs(engine: Engine, path: Path = EXACT) -> None:
    for case in requests(path):
        out = engine.run(make_golden_request(case), make_output(1, modes=MODES, top_count=5))
        found = {
            "logprobs": [value.hex() for value in out.logprobs.logprobs[:, 0, 0].tolist()],
            "ranks": out.logprobs.ranks[:, 0, 0].tolist(),
            "top_tokens": out.logprobs.top_tokens[:, 0].tolist(),
            "top_logprobs": [
                [x.hex() for x in form] for form in out.logprobs.top_logprobs[:, 0].tolist()
            ],
        }
        assert found == {name: case[name] for name in found}, case


def check_request_softmax(engine: Engine, path: Path = EXACT, reduction: str = "exact") -> None:
    """softmax, log_softmax and logsumexp."""
    for case in requests(path):
        for name, answer in (case["softmax"] or {}).items():
            function = name.removesuffix("_sha256")
            out, _ = engine.softmax(function, make_golden_request(case, reduction))
            assert (float(out[0, 0]).hex() if function == name else sha256(out[0])) == answer, case


def check_fixed_draws(engine: Engine) -> None:
    check_request_draws(engine, FIXED, "fixed")


def check_fixed_logprobs(engine: Engine) -> None:
    for case in requests(FIXED):
        wanted = make_output(1, modes=MODES, top_count=top_count_of(case["vocabulary"]))
        out = engine.run(make_golden_request(case, "fixed"), wanted)
        assert [value.hex() for value in out.logprobs.logprobs[:, 0, 0].tolist()] == case[
            "logprobs"
        ], case
        assert sha256_of_logprobs(out) == case["logprobs_sha256"], case


def check_fixed_softmax(engine: Engine) -> None:
    check_request_softmax(engine, FIXED, "fixed")
