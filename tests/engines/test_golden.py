"""Golden answers of the rule, on record: every engine must give them for ever."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastsample.engines import reference
from tests.support.engines import Engine, filters_of, make_outcome, make_plan, sha256
from tests.support.golden_requests import FORMS, make_golden_job, values_of
from tests.support.golden_rows import make_row

PATH = Path(__file__).parents[1] / "golden" / f"rule-{reference.RULE_VERSION}.json"


@cache
def cases() -> list[dict[str, Any]]:
    return json.loads(PATH.read_text())["cases"]


@cache
def jobs() -> list[dict[str, Any]]:
    return json.loads(PATH.read_text())["jobs"]


@cache
def row_of(number: int) -> np.ndarray:
    recipe = cases()[number]["row"]
    row = make_row(recipe["recipe"], recipe["size"], recipe["seed"])
    row.flags.writeable = False
    return row


def test_the_file_is_of_this_rule_version():
    assert json.loads(PATH.read_text())["rule_version"] == reference.RULE_VERSION
    assert len(cases()) >= 300
    assert len(jobs()) >= 90


def test_rows_have_their_recorded_bits():
    for number, case in enumerate(cases()):
        assert sha256(row_of(number)) == case["row"]["sha256"], case["row"]
    for case in jobs():
        assert sha256(values_of(case["row"])) == case["row"]["sha256"], case["row"]


def test_tokens(engine: Engine):
    for number, case in enumerate(cases()):
        tokens, status = engine.sample(row_of(number)[np.newaxis], make_plan(1, **case["settings"]))
        assert (int(tokens[0]), int(status[0])) == (case["token"], case["status"]), case


def test_kept_sets_and_masses(engine: Engine):
    for number, case in enumerate(cases()):
        if case["status"] == reference.OK:
            filters = filters_of(case["settings"])
            tokens, masses = engine.kept_set(row_of(number), **filters)
            found = (len(tokens), int(masses.sum()), sha256(tokens, masses))
            assert found == (case["kept"], case["total"], case["kept_sha256"]), case


@pytest.mark.parametrize("status", [0, 1, 2])
def test_every_status_is_covered(status):
    assert any(case["status"] == status for case in cases())


# ---------------------------------------------------------------- jobs


def test_draws_of_jobs(engine: Engine):
    for case in jobs():
        out = engine.run(make_golden_job(case), make_outcome(1, draws=3))
        found = (int(out.status[0]), out.tokens[0].tolist(), int(out.kept_count[0]))
        assert found == (case["status"], case["tokens"], case["kept"]), case


def test_kept_sets_of_jobs(engine: Engine):
    for case in jobs():
        kept = engine.kept_sets(make_golden_job(case))
        assert sha256(kept.tokens, kept.masses, kept.logits) == case["kept_sha256"], case


def test_log_probabilities_of_jobs(engine: Engine):
    for case in jobs():
        out = engine.run(make_golden_job(case), make_outcome(1, forms=FORMS, top_count=5))
        found = {
            "logprobs": [value.hex() for value in out.logprobs[:, 0].tolist()],
            "ranks": out.ranks[:, 0].tolist(),
            "top_tokens": out.top_tokens[:, 0].tolist(),
            "top_logprobs": [[x.hex() for x in form] for form in out.top_logprobs[:, 0].tolist()],
        }
        assert found == {name: case[name] for name in found}, case


def test_softmax_and_its_kin_of_jobs(engine: Engine):
    for case in jobs():
        if case["laws"] is None:
            continue
        for name, answer in case["laws"].items():
            law = name.removesuffix("_sha256")
            out, _ = engine.law(law, make_golden_job(case))
            assert (float(out[0, 0]).hex() if law == name else sha256(out[0])) == answer, case
