"""The golden files: their cases, and the checks that an engine gives the recorded answers.

Tests run the checks on every engine; emulated processors and builds with a planted fault run them
too.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fastsample.engines import reference
from tests.support.engines import Engine, filters_of, make_output, make_plan, sha256
from tests.support.golden_requests import FORMS, make_golden_request, sha256_of_told, told_of
from tests.support.golden_rows import make_row

EXACT = Path(__file__).parents[1] / "golden" / f"rule-{reference.RULE_VERSION}.json"
FIXED = EXACT.with_name(f"{EXACT.stem}-fixed.json")


@cache
def golden_file(path: Path) -> dict[str, Any]:
    """A golden file: "rule_version", and lists of cases."""
    return json.loads(path.read_text())


def cases() -> list[dict[str, Any]]:
    """Cases of a row, filters and a draw."""
    return golden_file(EXACT)["cases"]


def requests(path: Path = EXACT) -> list[dict[str, Any]]:
    """Cases of everything else that an engine can be asked for."""
    return golden_file(path)["jobs"]


@cache
def row_of(number: int) -> np.ndarray:
    """The row of a case."""
    recipe = cases()[number]["row"]
    row = make_row(recipe["recipe"], recipe["size"], recipe["seed"])
    row.flags.writeable = False
    return row


def check_tokens(engine: Engine) -> None:
    for number, case in enumerate(cases()):
        tokens, status = engine.sample(row_of(number)[np.newaxis], make_plan(1, **case["settings"]))
        assert (int(tokens[0]), int(status[0])) == (case["token"], case["status"]), case


def check_kept_sets(engine: Engine) -> None:
    for number, case in enumerate(cases()):
        if case["status"] == reference.OK:
            filters = filters_of(case["settings"])
            tokens, masses = engine.kept_set(row_of(number), **filters)
            found = (len(tokens), int(masses.sum()), sha256(tokens, masses))
            assert found == (case["kept"], case["total"], case["kept_sha256"]), case


# ---------------------------------------------------------------- requests


def check_request_draws(engine: Engine, path: Path = EXACT, reduction: str = "exact") -> None:
    for case in requests(path):
        out = engine.run(make_golden_request(case, reduction), make_output(1, draws=3))
        found = (int(out.status[0]), out.tokens[0].tolist(), int(out.kept_count[0]))
        assert found == (case["status"], case["tokens"], case["kept"]), case


def check_request_kept_sets(engine: Engine) -> None:
    for case in requests():
        kept = engine.kept_sets(make_golden_request(case))
        assert sha256(kept.tokens, kept.masses, kept.logits) == case["kept_sha256"], case


def check_request_logprobs(engine: Engine) -> None:
    for case in requests():
        out = engine.run(make_golden_request(case), make_output(1, forms=FORMS, top_count=5))
        found = {
            "logprobs": [value.hex() for value in out.logprobs[:, 0].tolist()],
            "ranks": out.ranks[:, 0].tolist(),
            "top_tokens": out.top_tokens[:, 0].tolist(),
            "top_logprobs": [[x.hex() for x in form] for form in out.top_logprobs[:, 0].tolist()],
        }
        assert found == {name: case[name] for name in found}, case


def check_request_softmax(engine: Engine, path: Path = EXACT, reduction: str = "exact") -> None:
    """softmax, log_softmax and logsumexp."""
    for case in requests(path):
        for name, answer in (case["laws"] or {}).items():
            function = name.removesuffix("_sha256")
            out, _ = engine.law(function, make_golden_request(case, reduction))
            assert (float(out[0, 0]).hex() if function == name else sha256(out[0])) == answer, case


def check_fixed_draws(engine: Engine) -> None:
    check_request_draws(engine, FIXED, "fixed")


def check_fixed_logprobs(engine: Engine) -> None:
    for case in requests(FIXED):
        wanted = make_output(1, forms=FORMS, top_count=told_of(case["vocabulary"]))
        out = engine.run(make_golden_request(case, "fixed"), wanted)
        assert [value.hex() for value in out.logprobs[:, 0].tolist()] == case["logprobs"], case
        assert sha256_of_told(out) == case["told_sha256"], case


def check_fixed_softmax(engine: Engine) -> None:
    check_request_softmax(engine, FIXED, "fixed")
