"""`verify` can fail: every invariant has planted faults, and each turns its line red."""

from __future__ import annotations

import pytest
from faults import other_logprob, other_token, planted

from fastsample.proof import Report
from fastsample.proof.answers import Doors
from fastsample.proof.cases import random_case
from fastsample.proof.child import can_fork
from fastsample.proof.flush import flushing
from fastsample.proof.invariants import INVARIANTS
from fastsample.proof.run import Proof, Wish

# A batch of float16, steps of a sequence in bfloat16, and a batch that only float32 holds.
CASES = [random_case(number) for number in (5, 21, 17)]
FAULTS = planted(CASES)


def found(doors: Doors) -> Report:
    """What comes of the cases behind these doors."""
    proof = Proof(Wish(1.0, 0, quick=True, doors=doors))
    for case in CASES:
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
    if (name == "flushed" and not flushed) or (name == "forked" and not can_fork()):
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
