"""The loop over cases: what it runs, lists and counts."""

from __future__ import annotations

import inspect

import pytest

from tests.support.case_loop import CaseLoop, each


def test_every_failure_is_listed_by_name() -> None:
    with pytest.raises(AssertionError, match="2 of 3 cases failed") as caught, CaseLoop() as cases:
        for name in ("one", "two", "three"):
            with cases.case(name):
                assert name == "two", "no"
    assert "one: test_case_loop.py:" in str(caught.value)
    assert "three: test_case_loop.py:" in str(caught.value)


def test_an_empty_loop_fails() -> None:
    with pytest.raises(AssertionError, match="no case"), CaseLoop():
        pass


def test_a_loop_of_skipped_cases_is_skipped() -> None:
    cases = CaseLoop()
    with pytest.raises(pytest.skip.Exception, match="not here"), cases, cases.case("one"):
        pytest.skip("not here")


def test_an_error_outside_the_cases_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), CaseLoop():
        1 / 0  # noqa: B018


def test_each_runs_the_product_of_its_values_with_fixtures() -> None:
    seen = []

    @each("a", [1, 2])
    @each(("b", "c"), [(3, "x"), (4, "y")])
    def check(fixture: str, a: int, b: int, c: str) -> None:
        seen.append((fixture, a, b, c))

    before = CaseLoop.total
    assert [*inspect.signature(check).parameters] == ["fixture"]
    check(fixture="f")
    assert seen == [("f", a, b, c) for a in (1, 2) for b, c in ((3, "x"), (4, "y"))]
    assert CaseLoop.total - before == 4


def test_each_names_a_failing_case_by_its_values() -> None:
    @each("size", [1, 300])
    def check(size: int) -> None:
        assert size < 9

    with pytest.raises(AssertionError, match="1 of 2 cases failed:\n\n300: "):
        check()
