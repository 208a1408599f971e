"""`fastsample verify`: what it prints, its JSON and its status."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from rich.console import Console
from typer.testing import CliRunner

from fastsample import sample
from fastsample.cli import verify_page as proof_page
from fastsample.cli.app import app
from fastsample.verification import Report
from fastsample.verification.calls import Doors
from fastsample.verification.cases import random_case, row_of
from fastsample.verification.run import Proof, Wish
from tests.support.engines import native
from tests.support.fault_injection import other_token

HONEST = Doors()
FAULTY = other_token(lambda _, how: how.get("n_threads") == 3)


def briefly(doors: Doors) -> Any:
    """A `verify` of one case, behind given doors."""

    def verify(logits: Any, *, progress: Any, **how: Any) -> Report:
        proof = Proof(Wish(1.0, how["seed"] or 0, quick=True, tell=progress, doors=doors))
        return proof.report(proof.fingerprint([random_case(5)]), None)

    return verify


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["verify", *map(str, arguments)], env={"COLUMNS": "80"})


def words(page: str) -> str:
    """A page without its line ends."""
    return " ".join(page.split())


def test_a_proof_that_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof_page, "verify", briefly(HONEST))
    result = run("--seed", 3)
    assert (result.exit_code, result.stderr) == (0, "")
    page = result.stdout
    for line in briefly(HONEST)(None, progress=None, seed=3).invariants:
        ways = f"{sum(map(len, line.groups))} equal" if line.cases else "untried"
        assert re.search(rf"^{line.invariant} +{line.cases} .* 0 .* {ways}$", page, re.M)
    assert page.count("{reference, 1, 2, 3, 4, 5}") == page.count("{") == 2
    assert "  plain float32 softmax + cumsum (NumPy)  " in page
    assert re.search("^  rule version +1$", page, re.M)
    assert max(map(len, page.splitlines())) <= 80
    assert len(page.splitlines()) < 80
    *_, verdict, counts, fingerprint = page.splitlines()
    assert re.fullmatch(r"It holds: 0 mismatches in [\d,]+ tokens compared", verdict)
    assert counts.endswith("--seed 3)")
    assert re.fullmatch(r"fingerprint( [0-9a-f]{4}){6}", fingerprint)


def test_a_narrow_terminal_cuts_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof_page, "verify", briefly(HONEST))
    page = CliRunner().invoke(app, ["verify"], env={"COLUMNS": "50"}).stdout
    assert "…" not in page
    assert page.count("with and without log-probabilities ") == 2


def test_every_way_is_named_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof_page, "verify", briefly(HONEST))
    page = words(run("--ways").stdout)
    for group in ("1, 2, 3, 8}", "in halves, backwards", "backwards, unaligned and read-only}"):
        assert group in page


def test_a_proof_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof_page, "verify", briefly(FAULTY))
    result = run("--seed", 3)
    assert result.exit_code == 1
    page = result.stdout
    assert re.search(r"^thread counts +1 .* 2 groups$", page, re.M)
    assert page.count("{reference, 1, 2, 8} {3}") == 2  # in exact and in fixed
    assert "First mismatch: thread counts (exact), 3 on " in page
    assert "  made by     from fastsample.verification.cases import random_case\n" in page
    assert "  row         random_case(5).rows[0]  # " in page
    assert re.search("^  expected    token [0-9]+$", page, re.M)
    assert (
        len(re.findall(r"^  thread counts \(fixed\), 3 on .*: token \d+, not \d+$", page, re.M))
        == 1
    )
    assert "It was tried on:" in page and "It holds" not in page
    assert "see it again with --seed 3 " in page
    assert "fingerprint" not in page.replace("no fingerprint, since answers differ", "")
    report = briefly(FAULTY)(None, progress=None, seed=3)
    mismatches = sum(line.mismatches for line in report.invariants)
    said = f"2 of {len(report.invariants)} invariants broken: {mismatches:,} mismatches in "
    assert page.splitlines()[-2].startswith(said)


def faulty_on(isa: str) -> Doors:
    return other_token(lambda _, how: how.get("isa") == isa)


@pytest.mark.skipif(native is None, reason="fastsample._native is not built")
def test_one_way_that_is_wrong_everywhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    *_, before, last = ("", *native.isa_usable())
    monkeypatch.setattr(proof_page, "verify", briefly(faulty_on(last)))
    page = words(run().stdout)
    assert f"All mismatches are of native {last}." in page
    assert f"First mismatch: engines x instruction sets (exact), native {last} " in page
    assert "repeated runs (exact), 1: token " in page
    others = [way for way in native.isa_usable() if way != last]
    assert page.count("{") == (4 if others else 2)
    if before:
        assert f'draw with FASTSAMPLE_ISA={before}, or engine="reference".' in page


@pytest.mark.skipif(native is None, reason="fastsample._native is not built")
def test_the_way_that_is_asked_for_by_no_name_is_known() -> None:
    isa = native.default_isa()
    report = briefly(faulty_on(isa))(None, progress=None, seed=0)
    first, *rest = report.invariants
    groups = (("reference",), (f"native {isa}", "default"))
    report = replace(report, invariants=(replace(first, groups=groups), *rest))
    assert proof_page.common_way(report) == f"native {isa}"


@pytest.mark.skipif(native is None, reason="fastsample._native is not built")
@pytest.mark.parametrize("engine", ["numba", "torch"])
def test_another_engine_that_is_wrong_everywhere_is_named(engine: str) -> None:
    report = briefly(HONEST)(None, progress=None, seed=0)
    first, *rest = report.invariants
    report = replace(report, invariants=(replace(first, groups=(*first.groups, (engine,))), *rest))
    assert proof_page.common_way(report) == engine
    assert proof_page.instead(report) == 'engine="native"'


def test_no_way_is_named_where_several_are_wrong() -> None:
    report = briefly(FAULTY)(None, progress=None, seed=0)
    several = len(proof_page.ways_of(report)) > 1
    assert (proof_page.common_way(report) is None) == several
    assert proof_page.instead(report).endswith('engine="reference"')


def test_an_error_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def door(logits: Any, **how: Any) -> Any:
        if how.get("n_threads") == 3:
            raise ValueError("three is one too many")
        return sample(logits, **how)

    monkeypatch.setattr(proof_page, "verify", briefly(Doors(sample=door)))
    page = run().stdout
    assert "  expected    an answer\n" in page
    assert "  got         ValueError('three is one too many')\n" in page


def test_a_broken_line_is_red() -> None:
    report = briefly(FAULTY)(None, progress=None, seed=0)
    table = proof_page.lines_of(report)
    names = list(table.columns[0].cells)
    red = [at for at, row in enumerate(table.rows) if "red" in str(row.style)]
    assert [names[at] for at in red] == ["thread counts"] * 2


def test_the_first_mismatch_can_be_made_again() -> None:
    report = briefly(FAULTY)(None, progress=None, seed=0)
    first = next(line.first for line in report.invariants if line.first)
    case = eval(first.case, {"random_case": random_case})
    place = {"seed": first.seed, "position": first.position, "stream": first.stream}
    how = {**row_of(case.settings, first.row), **first.parameters, **place}
    drawn = HONEST.sample(case.rows[first.row], **how)
    assert str(drawn.tokens) == first.expected != first.got


@pytest.mark.parametrize(("doors", "status"), [(HONEST, 0), (FAULTY, 1)])
def test_json_is_all_that_is_printed(
    monkeypatch: pytest.MonkeyPatch, doors: Doors, status: int
) -> None:
    monkeypatch.setattr(proof_page, "verify", briefly(doors))
    result = run("--json")
    assert (result.exit_code, result.stderr) == (status, "")
    found = json.loads(result.stdout)
    assert found["ok"] == (status == 0)
    assert {"invariants", "shown", "conditions", "fingerprint", "tokens", "seed"} <= found.keys()
    broken = [line for line in found["invariants"] if line["mismatches"]]
    assert len(broken) == (0 if status == 0 else 2)
    for line in broken:
        assert line["groups"][1] == ["3"]
        assert {"seed", "position", "stream", "expected", "got", "kind"} <= line["first"].keys()


def test_a_bar_is_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with proof_page.bar() as progress:
        assert progress is None
    terminal = Console(stderr=True, force_terminal=True, file=io.StringIO())
    monkeypatch.setattr(proof_page, "Console", lambda **_: terminal)
    with proof_page.bar() as progress:
        assert progress is not None
        progress(0.5, 1000)


def test_what_was_not_tried_says_so() -> None:
    report = briefly(HONEST)(None, progress=None, seed=0)
    empty = report.invariants[0].__class__(
        "x", "exact", 0, 0, 0, 0, 0, 0.0, (("reference",),), None
    )
    assert proof_page.grouping(empty) == "not covered"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--minutes", "0"], "`minutes` must be above 0"),
        (["--quick", "--minutes", "1"], "must be left out with `quick`"),
        (["absent.npy"], "cannot open or write absent.npy"),
    ],
)
def test_refusals(arguments: list[str], part: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert part in result.stderr


PATH = os.pathsep.join(os.path.abspath(part) for part in sys.path if part)
BRIEF_COMMAND = (
    "from tests.verify import test_verify_command as here; "
    "from fastsample import __main__; from fastsample.cli import verify_page as proof_page; "
    "proof_page.verify = here.briefly(here.HONEST); __main__.main()"
)


@pytest.mark.parametrize("arguments", [[], ["--json"]])
@pytest.mark.parametrize("taker", ["nobody", "/dev/full"])
def test_a_report_that_cannot_be_printed(arguments: list[str], taker: str) -> None:
    """That is no mismatch: the status must not be 1."""
    if taker == "nobody":
        source, sink = os.pipe()
        os.close(source)
        why = "Broken pipe"
    elif os.path.exists(taker):
        sink, why = os.open(taker, os.O_WRONLY), "No space left on device"
    else:
        pytest.skip("needs Linux's /dev/full")
    try:
        done = subprocess.run(
            [sys.executable, "-c", BRIEF_COMMAND, "verify", *arguments],
            stdout=sink,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": PATH},
        )
    finally:
        os.close(sink)
    assert done.stderr == f"fastsample: cannot open or write standard output: {why}\n"
    assert done.returncode == 2


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_standard_output_that_is_closed(arguments: list[str]) -> None:
    """The status is left to tell."""
    done = subprocess.run(
        [
            "sh",
            "-c",
            'exec "$@" >&-',
            "sh",
            sys.executable,
            "-c",
            BRIEF_COMMAND,
            "verify",
            *arguments,
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": PATH},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help(option: str) -> None:
    result = run(option)
    assert result.exit_code == 0
    text = words(result.stdout.replace("│", " "))
    for part in (
        "a token depends on row, parameters, seed, position and stream alone",
        "Take about 5 seconds",
        "Run for this many minutes",
    ):
        assert part in text


@pytest.mark.parametrize("isa", ["", "baseline"])
def test_the_whole_command_on_own_rows(tmp_path: Path, isa: str) -> None:
    """In a process of its own; the fingerprint is that of any instruction set."""
    rows = np.random.default_rng(1).standard_normal((3, 500)).astype(np.float16)
    np.save(tmp_path / "rows.npy", rows)
    command = ["verify", "rows.npy", "--quick", "--json", "--seed", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "fastsample", *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": PATH, "FASTSAMPLE_ISA": isa},
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["fingerprint"].startswith("ad859f00c25127174ffb1985")
    assert found["logits_fingerprint"]
    assert found["seed"] == 1
