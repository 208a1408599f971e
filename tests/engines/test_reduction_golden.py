"""Golden file of the reduction "fixed": every engine that has it gives the recorded answers."""

from __future__ import annotations

import pytest

from tests.support import golden_checks
from tests.support.engines import REDUCTION_ENGINES, Engine, make_output, sha256
from tests.support.golden_checks import FIXED, golden_file, requests
from tests.support.golden_requests import make_golden_request, values_of


def test_the_file_is_that_of_rule_1():
    assert golden_file(FIXED)["rule_version"] == 1
    assert len(requests(FIXED)) >= 190


def test_rows_have_their_recorded_bits():
    for case in requests(FIXED):
        assert sha256(values_of(case["row"])) == case["row"]["sha256"], case["row"]


@pytest.fixture(params=[Engine("reference"), *REDUCTION_ENGINES], ids=str)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Every engine that has these reductions."""
    return request.param


def test_fixed_draws(engine: Engine):
    golden_checks.check_fixed_draws(engine)


def test_fixed_logprobs(engine: Engine):
    golden_checks.check_fixed_logprobs(engine)


def test_fixed_softmax(engine: Engine):
    golden_checks.check_fixed_softmax(engine)


def test_exact_and_fixed_differ_in_the_last_cases():
    """Their nuclei end elsewhere by integer masses."""
    for case in requests(FIXED)[-8:]:
        exact = Engine("reference").run(make_golden_request(case), make_output(1))
        assert int(exact.kept_count[0]) != case["kept"], case
