"""The worker of `verify`: torch in a forked process, its faults, and a worker that fails."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fastsample.engines import is_installed
from fastsample.verification import backends, cases, run, worker
from fastsample.verification.backends import find_engines
from fastsample.verification.calls import PublicApi
from fastsample.verification.cases import fixed_cases, flat_case, small_case
from fastsample.verification.comparison import Comparison, Report
from fastsample.verification.flush import flushing
from fastsample.verification.invariants import FLAT_DRAWS, INVARIANTS
from fastsample.verification.run import Verification
from tests.support.fault_injection import (
    always,
    lost_bits,
    other_mass,
    other_softmax,
    other_token,
    planted,
)

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not is_installed("torch"), reason="torch is not installed"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
]

# A batch of float16, steps of a sequence in bfloat16, and a batch that only float32 holds.
CASES = [small_case(number) for number in (5, 21, 17)]
FAULTS = {
    name: fault for name, fault in planted(CASES).items() if fault[0] != "thread counts"
}  # torch is checked with one thread
EXACT = [invariant.name for invariant in INVARIANTS if invariant.name != "thread counts"]


@pytest.fixture
def _one_thread() -> Iterator[None]:
    """What the worker does, here: torch's threads would not survive the forks of these cases."""
    import torch

    before = torch.get_num_threads()
    run.use_one_thread()
    yield
    torch.set_num_threads(before)


def of_torch(when: Callable[[Any, dict[str, Any]], bool] = always) -> Any:
    return lambda logits, options: options["engine"] == "torch" and when(logits, options)


def part_of_worker(api: PublicApi = PublicApi(), quick: bool = False) -> Verification:  # noqa: B008
    """The worker's part of a run, in this process."""
    return Verification(quick=quick, api=api, engines=[("torch", None)], is_worker=True)


def found(verification: Verification, some_cases: list[Any] = CASES) -> Report:
    for case in some_cases:
        verification.check(case)
    return verification.report()


def broken(report: Report, mode: str = "exact") -> set[str]:
    lines = [line for line in report.invariants if line.reduction == mode]
    return {line.invariant for line in lines if line.mismatches}


def short_run(monkeypatch: pytest.MonkeyPatch, api: PublicApi = PublicApi()) -> Report:  # noqa: B008
    """A run with its worker of one case and no random one; without what compiles first."""
    engines = {name: backends.ENGINES[name] for name in ("native", "reference", "torch")}
    monkeypatch.setattr(backends, "ENGINES", engines)
    monkeypatch.setattr(cases, "fixed_cases", lambda: [CASES[1]])
    monkeypatch.setattr(cases, "flat_case", lambda _: CASES[1])
    monkeypatch.setattr(Verification, "random_cases", lambda self: iter(()))
    return Verification(1.0, api=api).run()


# ---------------------------------------------------------------- what it checks


@pytest.mark.usefixtures("_one_thread")
def test_a_quick_run_checks_every_invariant_of_torch() -> None:
    report = found(part_of_worker(quick=True), fixed_cases())
    assert not broken(report) | broken(report, "fixed")
    counts = {line.invariant: line.cases for line in report.invariants if line.reduction == "exact"}
    assert counts.pop("thread counts") == 0
    assert counts.pop(EXACT[0]) == 19
    assert min(counts.values()) > 0
    assert "one case of 6" in find_engines(quick=True)[1]["torch"]
    assert "torch" not in find_engines(quick=False)[1]


def test_torch_is_checked_in_exact_alone() -> None:
    verification = part_of_worker()
    verification.check(flat_case(FLAT_DRAWS), "flat")
    tokens = {(line.reduction, line.tokens) for line in verification.report().invariants}
    assert tokens == {("exact", FLAT_DRAWS), ("exact", 0), ("fixed", 0)}


def test_bits_that_a_draw_from_a_long_row_loses_are_found() -> None:
    verification = part_of_worker(lost_bits())
    verification.check(flat_case(FLAT_DRAWS), "flat")
    report = verification.report()
    assert broken(report) == {EXACT[0]}
    assert 0 < report.invariants[0].mismatches < report.invariants[0].tokens / 50


def test_its_comparisons_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    report = short_run(monkeypatch)
    assert report.ok
    assert report.environment["backends"][-1] == "torch"
    exact, fixed = report.invariants[0], report.invariants[len(INVARIANTS)]
    assert exact.invariant == fixed.invariant == EXACT[0]
    assert exact.groups == [[*fixed.groups[0], "torch"]]


def test_comparisons_are_added() -> None:
    one = Comparison("x", "exact", cases=2, tokens=5, mismatches=1, seconds=1.5)
    other = Comparison("x", "exact", cases=3, function_values=7, mismatches=2, seconds=0.5)
    one.deviations, other.deviations = {("a", "x"): ""}, {("a", "y"): "12"}
    one.add(other)
    expected = Comparison("x", "exact", cases=3, tokens=5, function_values=7, mismatches=3)
    expected.seconds, expected.deviations = 2.0, {("a", "x"): "", ("a", "y"): "12"}
    assert one == expected


# ---------------------------------------------------------------- faults


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.nightly) for name in FAULTS])
def test_a_fault_breaks_its_line_and_no_other(name: str) -> None:
    invariant, api = FAULTS[name]
    with flushing() as flushed:
        pass
    if name == "flushed" and not flushed:
        pytest.skip("this system cannot do what the fault is about")
    report = found(part_of_worker(api))
    assert broken(report) == {invariant}
    line = next(line for line in report.invariants if line.mismatches)
    assert len(line.groups) >= 2
    assert line.first is not None and line.first.backend == "torch"


def test_torch_that_draws_otherwise_differs_from_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In each line of exact that draws; shards are merged here."""
    report = short_run(monkeypatch, other_token(of_torch()))
    assert not report.ok
    assert broken(report) == set(EXACT) - {"functions of whole rows", "vocabulary shards"}
    assert broken(report, "fixed") == set()
    first = report.invariants[0]
    assert first.groups == [first.groups[0], ["torch"]]
    assert "torch" not in first.groups[0]
    assert first.first is not None
    assert (first.first.backend, first.first.part) == ("torch", "token")


@pytest.mark.parametrize(
    ("api", "invariants"),
    [
        (other_mass(of_torch()), {"vocabulary shards", "vocabulary permutations", EXACT[0]}),
        (other_softmax(of_torch()), {"functions of whole rows"}),
    ],
    ids=["masses", "softmax"],
)
def test_torch_with_other_masses_is_found(
    monkeypatch: pytest.MonkeyPatch, api: PublicApi, invariants: set[str]
) -> None:
    report = short_run(monkeypatch, api)
    assert invariants <= broken(report) and not broken(report, "fixed")


# ---------------------------------------------------------------- a worker that fails


def first_of(report: Report) -> Any:
    assert not report.ok and broken(report) == {EXACT[0]}
    first = report.invariants[0].first
    assert first is not None and first.part == "error"
    return first


def test_a_worker_that_ends_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "use_one_thread", lambda: os._exit(3))
    first = first_of(short_run(monkeypatch))
    assert (first.backend, first.variant) == ("torch", "error worker")
    assert "a forked process ended" in first.got


def test_a_worker_that_raises_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ImportError("libtorch is broken")

    monkeypatch.setattr(run, "use_one_thread", fail)
    assert "libtorch is broken" in first_of(short_run(monkeypatch)).got


def test_a_worker_that_hangs_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "WORKER_PATIENCE", 0.2)
    monkeypatch.setattr(run, "use_one_thread", lambda: time.sleep(60))
    started = time.perf_counter()
    assert "sent no result" in first_of(short_run(monkeypatch)).got
    assert time.perf_counter() - started < 30


KILLED = """
import os, time
from fastsample.verification import backends, cases, run
from fastsample.verification.run import Verification

def sleep(self, *_):
    for _ in range(600):
        time.sleep(0.05)
        self.progress(0.0, 0)

run.use_one_thread, backends.refusal = (lambda: None), (lambda name: "")
run.Verification.check_fixed = lambda self: sleep(self) if self.is_worker else os._exit(0)
Verification(1.0, engines=[("torch", None)]).run()
"""


def test_a_worker_ends_soon_after_its_parent() -> None:
    """Also where that one was killed."""
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_error_in_the_parent_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(share: float, tokens: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "use_one_thread", lambda: time.sleep(60))
    with pytest.raises(KeyboardInterrupt):
        Verification(1.0, quick=True, progress=interrupt).run()
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_without_a_fork_torch_is_not_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError("no more")

    monkeypatch.setattr(os, "fork", refuse)
    report = short_run(monkeypatch)
    assert report.ok and "torch" not in report.environment["backends"]
    why = "it is checked in a forked process, and the system cannot fork: no more"
    assert report.environment["not_covered"]["torch"] == why


def test_an_engine_that_has_nothing_to_run_on_is_not_covered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backends, "refusal", lambda name: f"engine {name!r} needs a device")
    report = short_run(monkeypatch)
    assert report.ok and "torch" not in report.environment["backends"]
    assert report.environment["not_covered"]["torch"] == "engine 'torch' needs a device"


def test_a_system_without_fork_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(method: str) -> None:
        raise ValueError(f"cannot find context for {method!r}")

    monkeypatch.setattr(worker.multiprocessing, "get_context", fail)
    assert worker.why_no_fork() == "the system cannot fork: cannot find context for 'fork'"


# ---------------------------------------------------------------- the parent process

SHORT = """
import sys
from tests.verify import test_verify_worker as here
{before}
class Patch:
    setattr = staticmethod(setattr)
report = here.short_run(Patch)
assert report.ok, report
assert "torch" in report.environment["backends"]
{after}
"""


def in_a_process(before: str, after: str) -> None:
    path = os.pathsep.join(os.path.abspath(part) for part in sys.path if part)
    code = SHORT.format(before=before, after=after)
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (0, "")


def test_torch_s_threads_are_left_as_they_were() -> None:
    """Also where they have computed before, and would not survive a fork."""
    work = "torch.ones(2000, 2000).cumsum(1).sum()"
    in_a_process(
        f"import torch\ntorch.set_num_threads(2)\n{work}",
        f"assert torch.get_num_threads() == 2\n{work}",
    )


def test_the_parent_loads_no_torch() -> None:
    in_a_process("", "assert 'torch' not in sys.modules")
