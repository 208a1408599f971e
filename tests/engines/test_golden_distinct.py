"""Golden file of draws without replacement: every engine that has them gives the answers."""

from __future__ import annotations

import pytest

from fastsample.engines import reference
from tests.support.engines import Engine
from tests.support.golden_checks import golden_file
from tests.support.golden_distinct import (
    DISTINCT,
    answer_of_distinct,
    check_distinct,
    distinct_cases,
)


def test_the_file_is_of_this_rule_version() -> None:
    assert golden_file(DISTINCT)["rule_version"] == reference.RULE_VERSION
    assert DISTINCT.stat().st_size < 200_000


def test_cases_reach_what_the_rule_distinguishes() -> None:
    drawn = [case for case in distinct_cases() if case["arrived"] is not None]
    assert len(drawn) >= 120
    by_inverse = [case for case in drawn if case["arrived"] < case["drawn"]]
    assert len(by_inverse) >= 20
    assert sum(case["drawn"] < case["n"] for case in drawn) >= 20
    assert {case["status"] for case in distinct_cases()} == {0, 1, 2}
    assert {case["n"] for case in drawn} >= {2, 5, 10, 300}


@pytest.mark.parametrize("part", range(4))
def test_the_reference_gives_every_token(part: int) -> None:
    for case in distinct_cases()[part::4]:
        answer = answer_of_distinct(case)
        assert answer == {name: case[name] for name in answer}, case


@pytest.mark.smoke
def test_tokens(engine: Engine) -> None:
    if engine.name == "reference":
        pytest.skip("the reference has its own test")
    if not engine.has_distinct:
        pytest.skip("the engine draws with replacement alone")
    check_distinct(engine)
