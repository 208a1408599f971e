"""`fastsample verify`: what it prints, its JSON and its status."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from faults import other_token
from rich.console import Console
from typer.testing import CliRunner

from fastsample import proof_page
from fastsample.cli import app
from fastsample.proof import Report
from fastsample.proof.answers import Doors
from fastsample.proof.cases import random_case, row_of
from fastsample.proof.run import Proof, Wish

HONEST = Doors()
FAULTY = other_token(lambda _, how: how.get("n_threads") == 3)


def briefly(doors: Doors) -> Any:
    """A `verify` of one case, behind given doors."""

    def verify(logits: Any, *, progress: Any, **how: Any) -> Report:
        proof = Proof(Wish(1.0, how["seed"] or 0, quick=True, tell=progress, doors=doors))
        return proof.report(proof.fingerprint([random_case(5)]), None)

    return verify


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["verify", *map(str, arguments)], env={"COLUMNS": "160"})


def test_a_proof_that_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof_page, "verify", briefly(HONEST))
    result = run("--seed", 3)
    assert (result.exit_code, result.stderr) == (0, "")
    page = result.stdout
    for line in briefly(HONEST)(None, progress=None, seed=3).invariants:
        assert f"{line.reduction}  {line.invariant}" in page
    assert "{reference, 1, 2, 3, 4, 5}" in page
    assert "plain float32 softmax + cumsum (NumPy): " in page
    assert "rule version:    1" in page
    assert "0 mismatches in " in page and "--seed 3" in page
    assert "fingerprint " in page


def test_a_proof_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof_page, "verify", briefly(FAULTY))
    result = run()
    assert result.exit_code == 1
    assert "{reference, 1, 2, 8} {3}" in result.stdout
    assert "thread counts, exact: the first of 3 on " in result.stdout
    assert "of fastsample.proof.cases.random_case(5) (" in result.stdout
    assert "expected token: " in result.stdout
    assert "2 broken in " in result.stdout  # in exact and in fixed


def test_a_broken_line_is_red() -> None:
    report = briefly(FAULTY)(None, progress=None, seed=0)
    styles = proof_page.lines_of(report).rows
    red = [
        line.invariant
        for line, row in zip(report.invariants, styles, strict=True)
        if "red" in str(row.style)
    ]
    assert red == ["thread counts"] * 2


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


@pytest.mark.parametrize("isa", ["", "baseline"])
def test_the_whole_command_on_own_rows(tmp_path: Path, isa: str) -> None:
    """In a process of its own; the fingerprint is that of any instruction set."""
    rows = np.random.default_rng(1).standard_normal((3, 500)).astype(np.float16)
    np.save(tmp_path / "rows.npy", rows)
    path = os.pathsep.join(os.path.abspath(part) for part in sys.path if part)
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("FASTSAMPLE_ISA", None)
    if isa:
        environment["FASTSAMPLE_ISA"] = isa
    command = ["verify", "rows.npy", "--quick", "--json", "--seed", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "fastsample", *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["fingerprint"].startswith("ad859f00c25127174ffb1985")
    assert found["logits_fingerprint"]
    assert found["seed"] == 1
