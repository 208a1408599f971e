"""Golden answers of the rule, on record: reference and native must give them for ever."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_rows import make_row
from support import Engine, filters_of, make_plan, sha256

from fastsample import reference

PATH = Path(__file__).parent / "golden" / f"rule-{reference.RULE_VERSION}.json"


@cache
def cases() -> list[dict[str, Any]]:
    return json.loads(PATH.read_text())["cases"]


@cache
def row_of(number: int) -> np.ndarray:
    recipe = cases()[number]["row"]
    row = make_row(recipe["recipe"], recipe["size"], recipe["seed"])
    row.flags.writeable = False
    return row


def test_the_file_is_of_this_rule_version():
    assert json.loads(PATH.read_text())["rule_version"] == reference.RULE_VERSION
    assert len(cases()) >= 300


def test_rows_have_their_recorded_bits():
    for number, case in enumerate(cases()):
        assert sha256(row_of(number)) == case["row"]["sha256"], case["row"]


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
