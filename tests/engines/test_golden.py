"""Golden files: every engine gives the recorded answers of the rule."""

from __future__ import annotations

import pytest

from tests.support import golden_checks
from tests.support.engines import Engine, sha256
from tests.support.golden_checks import EXACT, FILTERS, cases, golden_file, requests, row_of
from tests.support.golden_requests import values_of

pytestmark = pytest.mark.smoke


def test_the_files_are_those_of_rule_1():
    assert golden_file(EXACT)["rule_version"] == 1
    assert len(cases()) >= 300
    assert len(requests()) >= 90
    assert golden_file(FILTERS)["rule_version"] == 1
    assert len(requests(FILTERS)) >= 110


def test_rows_have_their_recorded_bits():
    for number, case in enumerate(cases()):
        assert sha256(row_of(number)) == case["row"]["sha256"], case["row"]
    for case in [*requests(), *requests(FILTERS)]:
        assert sha256(values_of(case["row"])) == case["row"]["sha256"], case["row"]


def test_tokens(engine: Engine):
    golden_checks.check_tokens(engine)


def test_kept_sets_and_masses(engine: Engine):
    golden_checks.check_kept_sets(engine)


@pytest.mark.parametrize("status", [0, 1, 2])
def test_every_status_is_covered(status):
    assert any(case["status"] == status for case in cases())


def test_draws_of_requests(engine: Engine):
    golden_checks.check_request_draws(engine)


def test_kept_sets_of_requests(engine: Engine):
    golden_checks.check_request_kept_sets(engine)


def test_logprobs_of_requests(engine: Engine):
    golden_checks.check_request_logprobs(engine)


def test_later_filters(engine: Engine):
    golden_checks.check_request_draws(engine, FILTERS)
    golden_checks.check_request_kept_sets(engine, FILTERS)
    golden_checks.check_request_logprobs(engine, FILTERS)


def test_softmax_of_requests(engine: Engine):
    golden_checks.check_request_softmax(engine)
