"""What `verify` asks in a child beside: the torch engine, its faults, and a child that fails."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fastsample.engines import is_installed
from fastsample.verification import Report, child, run
from fastsample.verification import backends as ways
from fastsample.verification.calls import Doors
from fastsample.verification.cases import fixed_cases, random_case
from fastsample.verification.comparison import Book
from fastsample.verification.flush import flushing
from fastsample.verification.invariants import INVARIANTS
from fastsample.verification.run import Proof, Wish, prove
from tests.support.fault_injection import lost_bits, other_law, other_mass, other_token, planted

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not is_installed("torch"), reason="torch is not installed"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
]

TORCH = ways.Engines([], [("torch", None)], {})
# A batch of float16, steps of a sequence in bfloat16, and a batch that only float32 holds.
CASES = [random_case(number) for number in (5, 21, 17)]
FAULTS = {
    name: fault for name, fault in planted(CASES).items() if fault[0] != "thread counts"
}  # torch is asked for no threads
EXACT = [invariant.name for invariant in INVARIANTS if invariant.name != "thread counts"]


@pytest.fixture
def _one_thread() -> Iterator[None]:
    """What the child does, here: torch's threads would not survive the forks of these cases."""
    import torch

    before = torch.get_num_threads()
    ways.settle_in()
    yield
    torch.set_num_threads(before)


def of_torch(when: Callable[[Any, dict[str, Any]], bool] = lambda *_: True) -> Any:
    return lambda logits, how: how["engine"] == "torch" and when(logits, how)


def found(doors: Doors, cases: list[Any] = CASES, quick: bool = False) -> Report:
    """What the child's part comes to, here."""
    proof = Proof(Wish(1.0, 0, quick, doors=doors), TORCH, is_beside=True)
    for case in cases:
        proof.hold(case)
    return proof.report("", None)


def red(report: Report, mode: str = "exact") -> set[str]:
    lines = [line for line in report.invariants if line.reduction == mode]
    return {line.invariant for line in lines if line.mismatches}


def briefly(monkeypatch: pytest.MonkeyPatch, doors: Doors) -> Report:
    """A whole proof of one case and no random one, with its child; without what compiles first."""
    engines = {name: ways.ENGINES[name] for name in ("native", "torch")}
    monkeypatch.setattr(ways, "ENGINES", engines)
    monkeypatch.setattr(run, "fixed_cases", lambda: [CASES[1]])
    monkeypatch.setattr(run, "random_cases", lambda _: iter(()))
    monkeypatch.setattr(Proof, "hold_wide", lambda self: None)
    return prove(Wish(1.0, 0, doors=doors))


# ---------------------------------------------------------------- what it asks


@pytest.mark.usefixtures("_one_thread")
def test_a_quick_run_asks_torch_every_invariant() -> None:
    report = found(Doors(), fixed_cases(), quick=True)
    assert not red(report) | red(report, "fixed")
    cases = {line.invariant: line.cases for line in report.invariants if line.reduction == "exact"}
    assert cases.pop("thread counts") == 0
    assert cases.pop(EXACT[0]) == 13
    assert min(cases.values()) > 0
    assert "one case of 6" in ways.engines_here(quick=True).not_asked["torch"]
    assert "torch" not in ways.engines_here(quick=False).not_asked


def test_torch_is_asked_for_exact_alone() -> None:
    proof = Proof(Wish(1.0, 0), TORCH, is_beside=True)
    proof.hold_wide()
    tokens = {(line.reduction, line.tokens) for line in proof.report("", None).invariants}
    assert tokens == {("exact", run.WIDE_DRAWS), ("exact", 0), ("fixed", 0)}


def test_bits_that_a_draw_from_a_long_row_loses_are_found() -> None:
    proof = Proof(Wish(1.0, 0, doors=lost_bits()), TORCH, is_beside=True)
    proof.hold_wide()
    line = proof.report("", None).invariants[0]
    assert red(proof.report("", None)) == {EXACT[0]}
    assert 0 < line.mismatches < line.tokens / 50


def test_it_is_entered_beside_what_is_held_here(monkeypatch: pytest.MonkeyPatch) -> None:
    report = briefly(monkeypatch, Doors())
    assert report.ok
    assert report.conditions["engines"][-2:] == ["torch", "reference"]
    exact, fixed = report.invariants[0], report.invariants[len(INVARIANTS)]
    assert exact.invariant == fixed.invariant == EXACT[0]
    assert exact.cases == fixed.cases == 1
    assert exact.groups == ((*fixed.groups[0], "torch"),)


def test_books_are_added() -> None:
    mine, other = Book(2, 1, 1.5), Book(3, 2, 0.5)
    mine.compared["token"], other.compared["laws"] = 5, 7
    mine.deviations, other.deviations = {("a", "x"): ""}, {("a", "y"): "12"}
    mine.add(other)
    assert mine == Book(
        *(3, 3, 2.0),
        compared=mine.compared,
        deviations={("a", "x"): "", ("a", "y"): "12"},
    )
    assert mine.compared == {"token": 5, "laws": 7}


# ---------------------------------------------------------------- faults


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.nightly) for name in FAULTS])
def test_a_fault_turns_its_line_red_and_no_other(name: str) -> None:
    invariant, doors = FAULTS[name]
    with flushing() as flushed:
        pass
    if name == "flushed" and not flushed:
        pytest.skip("this system cannot do what the fault is about")
    report = found(doors)
    assert red(report) == {invariant}
    line = next(line for line in report.invariants if line.mismatches)
    assert len(line.groups) >= 2
    assert line.first is not None and line.first.way == "torch"


def test_torch_that_draws_otherwise_is_set_against_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And each line that draws is red, in exact: it is asked in all of them. Shards weigh."""
    report = briefly(monkeypatch, other_token(of_torch()))
    assert not report.ok
    assert red(report) == set(EXACT) - {"functions of whole rows", "vocabulary shards"}
    assert red(report, "fixed") == set()
    first = report.invariants[0]
    assert first.groups == (first.groups[0], ("torch",))
    assert "torch" not in first.groups[0]
    assert first.first is not None and (first.first.way, first.first.part) == ("torch", "token")


@pytest.mark.parametrize(
    ("doors", "invariants"),
    [
        (other_mass(of_torch()), {"vocabulary shards", "vocabulary permutations", EXACT[0]}),
        (other_law(of_torch()), {"functions of whole rows"}),
    ],
    ids=["masses", "laws"],
)
def test_torch_that_weighs_otherwise_is_found(
    monkeypatch: pytest.MonkeyPatch, doors: Doors, invariants: set[str]
) -> None:
    report = briefly(monkeypatch, doors)
    assert invariants <= red(report) and not red(report, "fixed")


# ---------------------------------------------------------------- a child that fails


def first_of(report: Report) -> Any:
    assert not report.ok and red(report) == {EXACT[0]}
    first = report.invariants[0].first
    assert first is not None and first.part == "error"
    return first


def test_a_child_that_ends_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "settle_in", lambda: os._exit(3))
    first = first_of(briefly(monkeypatch, Doors()))
    assert (first.way, first.variant) == ("torch", "beside")
    assert "a forked child ended" in first.got


def test_a_child_that_raises_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ImportError("libtorch is broken")

    monkeypatch.setattr(run, "settle_in", broken)
    assert "libtorch is broken" in first_of(briefly(monkeypatch, Doors())).got


def test_a_child_that_hangs_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "PATIENCE", 0.2)
    monkeypatch.setattr(run, "settle_in", lambda: time.sleep(60))
    monkeypatch.setattr(run, "INVARIANTS", INVARIANTS[:1])  # others fork, and would not wait either
    started = time.perf_counter()
    assert "said nothing" in first_of(briefly(monkeypatch, Doors())).got
    assert time.perf_counter() - started < 30


def test_a_slow_child_is_waited_for_while_it_says_that_it_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slowly(alive: Callable[[], Any]) -> str:
        for _ in range(8):
            time.sleep(0.25)
            alive()
        return "at last"

    monkeypatch.setattr(child, "PATIENCE", 1.5)
    with child.Child(slowly) as slow:
        assert slow.answer() == "at last"


ASKING = """
import os, time
from fastsample.verification.child import Child

def ask(alive):
    for _ in range(600):
        time.sleep(0.05)
        alive()

Child(ask)
os._exit(0)
"""


def test_a_child_ends_soon_after_who_asked_it() -> None:
    """Also where that one was killed: the child has the other's end of the pipe no longer."""
    done = subprocess.run([sys.executable, "-c", ASKING], capture_output=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_error_here_ends_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(share: float, tokens: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "settle_in", lambda: time.sleep(60))
    with pytest.raises(KeyboardInterrupt):
        prove(Wish(1.0, 0, quick=True, tell=interrupt))
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_without_a_fork_torch_is_not_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError("no more")

    monkeypatch.setattr(os, "fork", refuse)
    report = briefly(monkeypatch, Doors())
    assert report.ok and "torch" not in report.conditions["engines"]
    why = "it is asked in a forked child, and the system refuses it: no more"
    assert report.conditions["not_covered"]["torch"] == why


def test_an_engine_that_has_nothing_to_run_on_is_not_covered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(name: str) -> None:
        raise RuntimeError("engine 'torch' needs a device")

    monkeypatch.setattr(ways, "resolve", refuse)
    report = briefly(monkeypatch, Doors())
    assert report.ok and "torch" not in report.conditions["engines"]
    assert report.conditions["not_covered"]["torch"] == "engine 'torch' needs a device"


# ---------------------------------------------------------------- the process that asks

BRIEF = """
import sys
from tests.verify import test_verify_beside as here
{before}
class Patch:
    setattr = staticmethod(setattr)
report = here.briefly(Patch, here.Doors())
assert report.ok, report
assert "torch" in report.conditions["engines"]
{after}
"""


def in_a_process(before: str, after: str) -> None:
    path = os.pathsep.join(os.path.abspath(part) for part in sys.path if part)
    code = BRIEF.format(before=before, after=after)
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (0, "")


def test_torch_s_threads_are_left_as_they_were() -> None:
    """Also where they have been at work before, and would not survive a fork."""
    work = "torch.ones(2000, 2000).cumsum(1).sum()"
    in_a_process(
        f"import torch\ntorch.set_num_threads(2)\n{work}",
        f"assert torch.get_num_threads() == 2\n{work}",
    )


def test_the_process_itself_loads_no_torch() -> None:
    in_a_process("", "assert 'torch' not in sys.modules")
