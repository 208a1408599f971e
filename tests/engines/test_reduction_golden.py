"""Golden answers in the reduction "fixed": every engine must give them for ever."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from fastsample.engines import reference
from tests.engines.test_golden import PATH
from tests.support.engines import ANY_REDUCTION, Engine, make_outcome, sha256
from tests.support.golden_requests import FORMS, make_golden_job, sha256_of_told, told_of, values_of

FIXED = PATH.with_name(f"{PATH.stem}-fixed.json")


@cache
def jobs() -> list[dict[str, Any]]:
    return json.loads(FIXED.read_text())["jobs"]


def test_the_file_is_of_this_rule_version():
    assert json.loads(FIXED.read_text())["rule_version"] == reference.RULE_VERSION
    assert len(jobs()) >= 190


def test_rows_have_their_recorded_bits():
    for case in jobs():
        assert sha256(values_of(case["row"])) == case["row"]["sha256"], case["row"]


@pytest.fixture(params=[Engine("reference"), *ANY_REDUCTION], ids=lambda one: one.isa or one.name)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Every engine that has these reductions."""
    return request.param


def test_fixed_draws(engine: Engine):
    for case in jobs():
        out = engine.run(make_golden_job(case, "fixed"), make_outcome(1, draws=3))
        found = (int(out.status[0]), out.tokens[0].tolist(), int(out.kept_count[0]))
        assert found == (case["status"], case["tokens"], case["kept"]), case


def test_fixed_log_probabilities(engine: Engine):
    for case in jobs():
        wanted = make_outcome(1, forms=FORMS, top_count=told_of(case["vocabulary"]))
        out = engine.run(make_golden_job(case, "fixed"), wanted)
        assert [value.hex() for value in out.logprobs[:, 0].tolist()] == case["logprobs"], case
        assert sha256_of_told(out) == case["told_sha256"], case


def test_fixed_softmax_and_its_kin(engine: Engine):
    for case in jobs():
        for name, answer in (case["laws"] or {}).items():
            law = name.removesuffix("_sha256")
            out, _ = engine.law(law, make_golden_job(case, "fixed"))
            assert (float(out[0, 0]).hex() if law == name else sha256(out[0])) == answer, case


def test_the_edges_are_where_exact_parts_from_fixed():
    """The last cases are nuclei that integers would end elsewhere."""
    for case in jobs()[-8:]:
        exact = Engine("reference").run(make_golden_job(case), make_outcome(1))
        assert int(exact.kept_count[0]) != case["kept"], case
