"""`verify` finds faults: every invariant has planted ones, and each breaks its line alone."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from fastsample.verification import run
from fastsample.verification.calls import Check, PublicApi
from fastsample.verification.cases import Case, fixed_cases, flat_case, small_case
from fastsample.verification.comparison import Comparison, Report
from fastsample.verification.flush import flushing
from fastsample.verification.invariants import FLAT_DRAWS, INVARIANTS
from fastsample.verification.run import Verification
from fastsample.verification.worker import run_forked, why_no_fork
from tests.support.fault_injection import (
    RARE,
    always,
    lost_bits,
    other_logprob,
    other_token,
    planted,
    raising,
    three_blocks,
    too_few_draws,
)

# A batch of float16, steps of a sequence in bfloat16, and a batch that only float32 holds.
CASES = [small_case(number) for number in (5, 21, 17)]
FAULTS = planted(CASES)
FIXED = fixed_cases()


def found(api: PublicApi, cases: list[Case] = CASES) -> Report:
    """The report on some cases with these functions."""
    verification = Verification(quick=True, api=api)
    for case in cases:
        verification.check(case)
    return verification.report()


def found_flat(api: PublicApi) -> Report:
    """The report on many draws from a flat distribution."""
    verification = Verification(quick=True, api=api)
    verification.check(flat_case(FLAT_DRAWS), "flat")
    return verification.report()


def broken(report: Report) -> set[str]:
    return {line.invariant for line in report.invariants if not line.ok}


def test_the_cases_are_what_faults_need() -> None:
    assert any(case.is_sequence for case in CASES)
    assert {case.dtype for case in CASES} == {"float32", "float16", "bfloat16"}
    # Shards and rows with companions must not be taken for rows of another case.
    assert len({case.vocabulary for case in CASES}) == 3


def test_without_a_fault_nothing_is_broken() -> None:
    report = found(PublicApi())
    assert (report.ok, broken(report)) == (True, set())
    assert all(line.first is None and len(line.groups) == 1 for line in report.invariants)


def test_every_invariant_has_a_fault() -> None:
    names = {invariant.name for invariant in INVARIANTS} - {INVARIANTS[0].name}
    assert {name for name, _ in FAULTS.values()} == names


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_breaks_its_line_and_no_other(name: str) -> None:
    invariant, api = FAULTS[name]
    with flushing() as flushed:
        pass
    if (name == "flushed" and not flushed) or ("fork" in name and why_no_fork()):
        pytest.skip("this system cannot do what the fault is about")
    report = found(api)
    assert not report.ok
    assert broken(report) == {invariant}
    line = next(line for line in report.invariants if not line.ok)
    assert line.mismatches > 0
    assert len(line.groups) >= 2
    assert line.first is not None and line.first.expected != line.first.got


def test_a_fault_of_one_backend_is_in_a_group_of_its_own() -> None:
    """Of one instruction set, or of the only engine."""
    backend = Verification(quick=True).backends("exact")[-1]
    choice = (backend.engine, backend.isa)
    report = found(other_logprob(lambda _, options: (options["engine"], options["isa"]) == choice))
    line = report.invariants[0]
    assert line.invariant == "engines x instruction sets"
    assert not line.ok and line.groups[-1] == [backend.label]
    assert backend.label not in line.groups[0]
    assert line.first is not None
    assert (line.first.part, line.first.backend) == ("logprob", backend.label)


def test_a_fault_without_replacement_is_found() -> None:
    repeats = other_token(lambda _, options: options.get("replacement") is False)
    report = found(repeats, [FIXED[-1]])
    assert broken(report) == {"engines x instruction sets"}
    line = next(line for line in report.invariants if not line.ok)
    assert line.first is not None and line.first.part == "distinct"


def test_a_fault_of_calls_that_name_no_engine_is_found() -> None:
    report = found(other_token(lambda _, options: options["engine"] is None))
    assert broken(report) == {"engines x instruction sets", "one by one against batched"}
    assert report.invariants[0].groups[-1] == ["default"]


@pytest.mark.parametrize("name", RARE)
def test_a_fault_that_needs_a_rare_row_or_argument_is_found(name: str) -> None:
    """Among the fixed cases, which every run checks."""
    when = RARE[name]
    case = next(case for case in FIXED if when(case.rows, case.settings))
    report = found(other_token(when), [case])
    assert {line.reduction for line in report.invariants if not line.ok} == {"exact", "fixed"}
    assert "engines x instruction sets" in broken(report)


def test_a_search_that_stops_early_in_a_long_row_is_found() -> None:
    long = next(case for case in FIXED if case.vocabulary > 100_000)
    report = found(three_blocks(), [long])
    assert {line.reduction for line in report.invariants if not line.ok} == {"fixed"}


def test_bits_that_a_draw_from_a_long_row_loses_are_found() -> None:
    """So few tokens change that it takes thousands of draws to see it."""
    if not any(one.engine == "native" for one in Verification(quick=True).backends("exact")):
        pytest.skip("others than the native engine draw too slowly for so many draws")
    lines = [line for line in found_flat(lost_bits()).invariants if not line.ok]
    assert [(line.invariant, line.reduction) for line in lines] == [
        ("engines x instruction sets", "exact")
    ]
    assert 0 < lines[0].mismatches < lines[0].tokens / 50


def test_too_few_draws_are_a_mismatch() -> None:
    line = found(too_few_draws(), CASES[:1]).invariants[0]
    assert not line.ok and line.first is not None
    rows, draws = len(CASES[0].rows), CASES[0].draws
    assert line.first.expected == f"int64 of shape ({rows}, {draws})"
    assert line.first.got == f"int64 of shape ({rows}, {draws - 1})"


def test_a_fault_of_one_mode_is_broken_there_alone() -> None:
    report = found(other_token(lambda _, options: options["reduction"] == "fixed"))
    assert {line.reduction for line in report.invariants if not line.ok} == {"fixed"}


def test_fast_guarantees_nothing() -> None:
    report = found(other_token(lambda _, options: options["reduction"] == "fast"))
    assert report.ok
    lines = [line for line in report.baselines if line.reduction == "fast"]
    assert lines
    for line in lines:
        assert line.mismatches == line.tokens > 0
        assert line.first is not None and line.first.parameters["reduction"] == "fast"


def test_groups_show_which_runs_agree() -> None:
    report = found(FAULTS["fourth run"][1])
    line = next(line for line in report.invariants if not line.ok)
    assert sum(len(group) for group in line.groups) >= 6
    assert line.groups[0][0] == "reference"
    assert all(run[0] in "345" for group in line.groups[1:] for run in group)


def test_an_engine_that_raises_is_a_mismatch() -> None:
    error = RuntimeError("no second thread")
    report = found(raising(error, lambda _, options: options.get("n_threads") == 2))
    assert broken(report) == {"thread counts"}
    first = next(line.first for line in report.invariants if not line.ok)
    assert first is not None
    assert (first.part, first.expected) == ("error", "a result")
    assert "no second thread" in first.got


def test_an_error_of_fast_is_counted() -> None:
    error = MemoryError("too large")
    report = found(raising(error, lambda _, options: options["reduction"] == "fast"))
    assert report.ok
    for line in report.baselines:
        if line.reduction == "fast":
            assert (line.tokens, line.errors) == (0, len(CASES))
            assert line.first is not None and line.first.part == "error"
            assert "too large" in line.first.got


def test_an_error_in_draws_from_a_flat_distribution_is_a_mismatch() -> None:
    report = found_flat(raising(MemoryError("too large"), always))
    assert not report.ok
    assert broken(report) == {"engines x instruction sets"}


def test_an_error_of_the_reference_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(case: Case, reduction: str) -> None:
        raise MemoryError("too large")

    monkeypatch.setattr(run, "expected_results", fail)
    report = found(PublicApi())
    assert not report.ok and broken(report) == {"engines x instruction sets"}
    assert report.invariants[0].first is not None
    assert "too large" in report.invariants[0].first.got


def test_nothing_compared_is_not_ok() -> None:
    report = found(PublicApi(), [])
    assert not report.ok and not any(line.covered for line in report.invariants)
    assert report.environment["not_covered"]["thread counts, exact"] == "nothing was compared"


def test_a_fork_that_is_refused_is_not_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError("no more")

    monkeypatch.setattr(os, "fork", refuse, raising=False)
    report = found(PublicApi(), CASES[:1])
    assert report.ok
    not_covered = report.environment["not_covered"]
    assert not_covered["fork"] == "the system cannot fork: no more"
    assert not_covered["fork, pickle, clone, exact"] == "nothing was compared"


@pytest.mark.skipif(not hasattr(signal, "SIGCHLD"), reason="this system has no children")
def test_forked_processes_that_nobody_waits_for_return_results() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert run_forked(lambda: 7) == 7
    finally:
        signal.signal(signal.SIGCHLD, before)


# ---------------------------------------------------------------- how results are compared


def compared(expected: dict[str, np.ndarray], got: dict[str, np.ndarray]) -> Comparison:
    comparison = Comparison("x", "exact")
    comparison.run(CASES[0], [Check("native", expected, "all", got)])
    return comparison


@pytest.mark.parametrize(
    ("expected", "got", "count"),
    [
        (np.array([0.0, 1.0, 2.0]), np.array([-0.0, 1.0, 3.0]), 2),
        (np.array([np.nan, 1.0]), np.array([np.nan, 1.0]), 0),
        (np.arange(3), np.arange(5), 5),
        (np.arange(3), np.arange(3, dtype=np.int32), 3),
    ],
)
def test_differences_are_counted_by_bits(expected: np.ndarray, got: np.ndarray, count: int) -> None:
    assert compared({"logsumexp": expected}, {"logsumexp": got}).mismatches == count


def test_the_first_mismatch_names_its_row_and_draw() -> None:
    rows = len(CASES[0].rows)
    tokens = np.zeros((rows, 4), np.int64)
    others = tokens.copy()
    others[2, 1], others[3, 3] = 9, 8
    first = compared({"token": tokens}, {"token": others}).first
    assert first is not None
    assert (first.part, first.row, first.expected, first.got) == ("token", 2, "0", "9")
    assert first.parameters["stream"] == int(CASES[0].settings["stream"][2]) + 1
    kept = {"kept_size": np.array([2, 3]), "masses": np.arange(5, dtype=np.uint64)}
    first = compared(kept, kept | {"masses": np.array([0, 1, 2, 9, 4], np.uint64)}).first
    assert first is not None and (first.part, first.row, first.got) == ("masses", 1, "9")


def test_tokens_that_are_no_draw_are_not_counted() -> None:
    tokens = np.array([[1, -1], [2, 3]])
    assert compared({"token": tokens}, {"token": tokens}).tokens == 3
