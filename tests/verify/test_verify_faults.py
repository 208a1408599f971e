"""`verify` can fail: every invariant has planted faults, and each turns its line red."""

from __future__ import annotations

import os
import signal

import pytest

from fastsample.verification import Report, run
from fastsample.verification.calls import Answer, Doors
from fastsample.verification.cases import Case, fixed_cases, random_case
from fastsample.verification.child import in_child, why_no_child
from fastsample.verification.flush import flushing
from fastsample.verification.invariants import INVARIANTS
from fastsample.verification.run import Proof, Wish
from tests.support.fault_injection import (
    RARE,
    lost_bits,
    other_logprob,
    other_token,
    planted,
    raising,
    three_blocks,
    too_few_draws,
)

# A batch of float16, steps of a sequence in bfloat16, and a batch that only float32 holds.
CASES = [random_case(number) for number in (5, 21, 17)]
FAULTS = planted(CASES)


FIXED = fixed_cases()


def found(doors: Doors, cases: list[Case] = CASES) -> Report:
    """What comes of the cases behind these doors."""
    proof = Proof(Wish(1.0, 0, quick=True, doors=doors))
    for case in cases:
        proof.hold(case)
    return proof.report("", None)


def red(report: Report) -> set[str]:
    return {line.invariant for line in report.invariants if not line.ok}


def test_the_cases_are_what_faults_need() -> None:
    assert any(case.is_sequence for case in CASES)
    assert any(case.dtype == "float16" for case in CASES)
    assert any(case.dtype == "bfloat16" for case in CASES)
    # Shards and rows with companions must not be taken for rows of another case.
    assert len({case.vocabulary for case in CASES}) == 3


def test_without_a_fault_nothing_is_red() -> None:
    report = found(Doors())
    assert (report.ok, red(report)) == (True, set())
    assert all(line.first is None and len(line.groups) == 1 for line in report.invariants)


def test_every_invariant_has_a_fault() -> None:
    names = {invariant.name for invariant in INVARIANTS} - {INVARIANTS[0].name}
    assert {name for name, _ in FAULTS.values()} == names


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_turns_its_line_red_and_no_other(name: str) -> None:
    invariant, doors = FAULTS[name]
    with flushing() as flushed:
        pass
    if (name == "flushed" and not flushed) or (name == "forked" and why_no_child()):
        pytest.skip("this system cannot do what the fault is about")
    report = found(doors)
    assert not report.ok
    assert red(report) == {invariant}
    line = next(line for line in report.invariants if not line.ok)
    assert line.mismatches > 0
    assert len(line.groups) >= 2
    assert line.first is not None and line.first.expected != line.first.got


def test_an_engine_s_fault_is_its_own() -> None:
    """Of one instruction set, or of the only engine: it stands in a group of its own."""
    way = Proof(Wish(1.0, 0, quick=True))._ways["exact"][-1]
    doors = other_logprob(lambda _, how: how["engine"] == way.engine and how["isa"] == way.isa)
    report = found(doors)
    line = report.invariants[0]
    assert line.invariant == "engines x instruction sets"
    assert not line.ok and line.groups[-1] == (way.label,)
    assert way.label not in line.groups[0]
    assert line.first is not None
    assert (line.first.part, line.first.way) == ("logprobs", way.label)


def test_the_default_door_s_fault_is_its_own() -> None:
    report = found(other_token(lambda _, how: how["engine"] is None))
    assert red(report) == {"engines x instruction sets", "one by one against batched"}
    assert report.invariants[0].groups[-1] == ("default",)


@pytest.mark.parametrize("name", RARE)
def test_a_fault_that_needs_a_rare_row_or_argument_is_found(name: str) -> None:
    """Among the fixed cases, which every run holds."""
    when = RARE[name]
    case = next(case for case in FIXED if when(case.rows, case.settings))
    report = found(other_token(when), [case])
    assert {line.reduction for line in report.invariants if not line.ok} == {"exact", "fixed"}
    assert "engines x instruction sets" in red(report)


def test_a_search_that_stops_early_in_a_long_row_is_found() -> None:
    long = next(case for case in FIXED if case.vocabulary > 100_000)
    report = found(three_blocks(), [long])
    assert {line.reduction for line in report.invariants if not line.ok} == {"fixed"}


def test_bits_that_a_draw_from_a_long_row_loses_are_found() -> None:
    """So few tokens move that it takes thousands of draws to see it."""
    proof = Proof(Wish(1.0, 0, quick=True, doors=lost_bits()))
    proof.hold_wide()
    report = proof.report("", None)
    broken = [line for line in report.invariants if not line.ok]
    if not any(way.engine == "native" for way in proof._ways["exact"]):
        pytest.skip("others than the native engine draw too slowly for so many draws")
    assert [(line.invariant, line.reduction) for line in broken] == [
        ("engines x instruction sets", "exact")
    ]
    assert 0 < broken[0].mismatches < broken[0].tokens / 50


def test_too_few_draws_are_a_mismatch() -> None:
    report = found(too_few_draws(), CASES[:1])
    line = report.invariants[0]
    assert not line.ok and line.first is not None
    rows, draws = len(CASES[0].rows), CASES[0].draws
    assert line.first.expected == f"shape [({rows}, {draws})]"
    assert line.first.got == f"shape [({rows}, {draws - 1})]"


def test_a_fault_of_one_mode_is_red_there_alone() -> None:
    report = found(other_token(lambda _, how: how["reduction"] == "fixed"))
    assert {line.reduction for line in report.invariants if not line.ok} == {"fixed"}


def test_fast_promises_nothing() -> None:
    report = found(other_token(lambda _, how: how["reduction"] == "fast"))
    assert report.ok
    shown = [one for one in report.shown if one.name.startswith("fast")]
    for one in shown:
        assert one.differ == one.draws > 0
        assert one.first is not None and one.first.reduction == "fast"


def test_the_grouping_says_which_runs_agree() -> None:
    report = found(FAULTS["fourth run"][1])
    line = next(line for line in report.invariants if not line.ok)
    assert sum(len(group) for group in line.groups) >= 6
    assert line.groups[0][0] == "reference"
    assert all(run[0] in "345" for group in line.groups[1:] for run in group)


def test_an_engine_that_raises_is_a_mismatch() -> None:
    def broken(logits: object, **how: object) -> object:
        if how.get("n_threads") == 2:
            raise RuntimeError("no second thread")
        return Doors().sample(logits, **how)

    report = found(Doors(sample=broken))
    assert red(report) == {"thread counts"}
    first = next(line.first for line in report.invariants if not line.ok)
    assert first is not None
    assert (first.part, first.expected) == ("error", "an answer")
    assert "no second thread" in first.got


def test_an_error_where_nothing_is_promised_is_shown() -> None:
    report = found(raising(MemoryError("no room"), lambda _, how: how["reduction"] == "fast"))
    assert report.ok
    for shown in report.shown:
        if shown.name.startswith("fast"):
            assert (shown.draws, shown.errors) == (0, len(CASES))
            assert shown.first is not None and shown.first.part == "error"
            assert "no room" in shown.first.got


def test_an_error_in_a_wide_draw_is_a_mismatch() -> None:
    proof = Proof(Wish(1.0, 0, quick=True, doors=raising(MemoryError("no room"), lambda *_: True)))
    proof.hold_wide()
    report = proof.report("", None)
    assert not report.ok
    assert red(report) == {"engines x instruction sets"}


def test_an_error_of_the_reference_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(case: Case, reduction: str) -> Answer:
        raise MemoryError("no room")

    monkeypatch.setattr(run, "seen_once", broken)
    report = found(Doors())
    assert not report.ok and red(report) == {"engines x instruction sets"}
    assert report.invariants[0].first is not None
    assert "no room" in report.invariants[0].first.got


def test_nothing_compared_proves_nothing() -> None:
    report = found(Doors(), [])
    assert not report.ok and not any(line.covered for line in report.invariants)
    assert report.conditions["not_covered"]["thread counts, exact"] == "nothing was compared"


def test_a_fork_that_is_refused_is_not_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError("no more")

    monkeypatch.setattr(os, "fork", refuse, raising=False)
    report = found(Doors(), CASES[:1])
    assert report.ok
    not_covered = report.conditions["not_covered"]
    assert not_covered["fork"] == "the system refuses it: no more"
    assert not_covered["fork, pickle, clone, exact"] == "nothing was compared"


@pytest.mark.skipif(not hasattr(signal, "SIGCHLD"), reason="this system has no children")
def test_children_that_nobody_waits_for_answer() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert in_child(lambda: 7) == 7
    finally:
        signal.signal(signal.SIGCHLD, before)
