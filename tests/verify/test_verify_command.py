"""`fastsample verify`: what it prints, its JSON and its exit status."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from typer.testing import CliRunner

from fastsample import RULE_VERSION, sample
from fastsample.cli import verify_page
from fastsample.cli.app import app
from fastsample.verification import cases
from fastsample.verification.calls import PublicApi
from fastsample.verification.cases import small_case
from fastsample.verification.comparison import Comparison, Report
from fastsample.verification.run import Verification
from tests.support.engines import native
from tests.support.fault_injection import other_token, raising

HONEST = PublicApi()
FAULTY = other_token(lambda _, options: options.get("n_threads") == 3)


def of_one_case(api: PublicApi) -> Any:
    """A `verify` of one case with these functions."""

    def verify(logits: Any, *, progress: Any, **options: Any) -> Report:
        run = Verification(1.0, options["seed"] or 0, quick=True, progress=progress, api=api)
        return run.report(run.fingerprint([small_case(5)]))

    return verify


def report_of(api: PublicApi, seed: int = 0) -> Report:
    report: Report = of_one_case(api)(None, progress=None, seed=seed)
    return report


def run(*arguments: Any, columns: int = 80) -> Any:
    environment = {"COLUMNS": str(columns)}
    return CliRunner().invoke(app, ["verify", *map(str, arguments)], env=environment)


def words(page: str) -> str:
    """A page without its line ends."""
    return " ".join(page.split())


def test_the_page_of_equal_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_page, "verify", of_one_case(HONEST))
    result = run("--seed", 3)
    assert (result.exit_code, result.stderr) == (0, "")
    page = result.stdout
    for line in report_of(HONEST, 3).invariants:
        results = f"{sum(map(len, line.groups))} equal" if line.cases else "unchecked"
        assert re.search(rf"^{line.invariant} +{line.cases} .* 0 .* {results}$", page, re.M)
    assert "{" not in page
    assert "  plain float32 softmax + cumsum (NumPy)  " in page
    assert re.search(rf"^  rule version +{RULE_VERSION}$", page, re.M)
    assert re.search(r"^  not covered +\d+ parts: --verbose lists them, and why$", page, re.M)
    assert "its own tests cover it" not in page
    assert max(map(len, page.splitlines())) <= 80
    assert len(page.splitlines()) < 100
    *_, verdict, counts, fingerprint = page.splitlines()
    assert re.fullmatch(r"All results are equal: 0 mismatches in [\d,]+ tokens compared", verdict)
    assert counts.endswith("--seed 3)")
    assert re.fullmatch(r"fingerprint( [0-9a-f]{4}){6}", fingerprint)


def test_a_narrow_terminal_cuts_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_page, "verify", of_one_case(HONEST))
    page = run(columns=50).stdout
    assert "…" not in page
    assert page.count("with and without log-probabilities ") == 2
    sections = page[page.index("Environment:") : page.index("All results")]
    assert max(map(len, sections.splitlines())) <= 50


def test_every_variant_is_listed_with_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_page, "verify", of_one_case(HONEST))
    output = run("--verbose").stdout
    assert re.search("^Not covered:\n", output, re.M)
    assert re.search("^  reduce_sum +its own tests cover it$", output, re.M)
    page = words(output)
    assert page.count("{reference, 1, 2, 3, 4, 5}") == 2
    for group in ("1, 2, 3, 8}", "in halves, backwards", "backwards, unaligned and read-only}"):
        assert group in page


def test_the_page_of_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_page, "verify", of_one_case(FAULTY))
    result = run("--seed", 3)
    assert result.exit_code == 1
    page = result.stdout
    assert re.search(r"^thread counts +1 .* 2 groups$", page, re.M)
    assert page.count("{reference, 1, 2, 8} {3}") == 2  # in exact and in fixed
    assert "First mismatch: thread counts (exact), 3 on " in page
    assert "  made by     from fastsample.verification.cases import small_case\n" in page
    assert "  row         small_case(5).rows[0]  # " in page
    assert re.search("^  expected    token [0-9]+$", page, re.M)
    assert re.search(r"thread counts \(fixed\), 3 on \S+ \S+ +token \d+, not \d+ ", words(page))
    assert "All results" not in page
    assert "reproduce it with --seed 3 " in page
    assert "fingerprint" not in page.replace("no fingerprint, as results differ", "")
    report = report_of(FAULTY, 3)
    mismatches = sum(line.mismatches for line in report.invariants)
    counts = f"2 of {len(report.invariants)} invariants broken: {mismatches:,} mismatches in "
    assert page.splitlines()[-2].startswith(counts)


def faulty_on(isa: str) -> PublicApi:
    return other_token(lambda _, options: options.get("isa") == isa)


@pytest.mark.skipif(native is None, reason="fastsample._native is not built")
def test_one_backend_that_is_wrong_everywhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    *_, before, last = ("", *native.isa_usable())
    monkeypatch.setattr(verify_page, "verify", of_one_case(faulty_on(last)))
    page = words(run().stdout)
    assert f"All mismatches are of native {last}." in page
    assert f"First mismatch: engines x instruction sets (exact), native {last}" in page
    assert re.search(r"repeated runs \(exact\), 1.* token ", page)
    others = [isa for isa in native.isa_usable() if isa != last]
    assert page.count("{") == (4 if others else 2)
    if before:
        assert f'draw with FASTSAMPLE_ISA={before}, or engine="reference".' in page


@pytest.mark.skipif(native is None, reason="fastsample._native is not built")
def test_the_backend_of_calls_that_name_none_is_known() -> None:
    isa = native.default_isa()
    report = report_of(HONEST)
    report.invariants[0].deviations |= {("all", f"native {isa}"): "1", ("all", "default"): "2"}
    assert verify_page.wrong_backend(report) == f"native {isa}"


@pytest.mark.skipif(native is None, reason="fastsample._native is not built")
@pytest.mark.parametrize("engine", ["numba", "torch"])
def test_another_engine_that_is_wrong_everywhere_is_named(engine: str) -> None:
    report = report_of(HONEST)
    report.invariants[0].deviations["all", engine] = "1"
    report.environment["backends"].append(engine)
    assert verify_page.wrong_backend(report) == engine
    assert verify_page.alternative(report, engine) == 'engine="native"'


def test_no_backend_is_named_where_several_are_wrong() -> None:
    report = report_of(FAULTY)
    common = verify_page.wrong_backend(report)
    assert (common is None) == (len(report.environment["backends"]) > 1)
    assert verify_page.alternative(report, common or "").endswith('engine="reference"')


def test_an_error_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ValueError("three is one too many")
    api = raising(error, lambda _, options: options.get("n_threads") == 3)
    monkeypatch.setattr(verify_page, "verify", of_one_case(api))
    page = run().stdout
    assert "  expected    a result\n" in page
    assert "  got         ValueError('three is one too many')\n" in page


def test_a_broken_line_is_red() -> None:
    lines = [line for line in verify_page.invariant_lines(report_of(FAULTY)) if "\x1b[31m" in line]
    assert len(lines) == 2
    assert all("thread counts" in line for line in lines)


def test_the_first_mismatch_can_be_reproduced() -> None:
    first = next(line.first for line in report_of(FAULTY).invariants if line.first)
    case = eval(first.case, vars(cases))
    options = {**case.row_settings(first.row), **first.parameters}
    drawn = sample(case.rows[first.row], **options)
    assert str(drawn.tokens) == first.expected != first.got


@pytest.mark.parametrize(("api", "status"), [(HONEST, 0), (FAULTY, 1)])
def test_json_is_all_that_is_printed(
    monkeypatch: pytest.MonkeyPatch, api: PublicApi, status: int
) -> None:
    monkeypatch.setattr(verify_page, "verify", of_one_case(api))
    result = run("--json")
    assert (result.exit_code, result.stderr) == (status, "")
    found = json.loads(result.stdout)
    assert found["ok"] == (status == 0)
    names = {"invariants", "baselines", "environment", "cases", "fingerprint", "tokens", "seed"}
    assert names <= found.keys()
    broken = [line for line in found["invariants"] if line["mismatches"]]
    assert len(broken) == (0 if status == 0 else 2)
    for line in broken:
        assert line["groups"][1] == ["3"]
        assert {"case", "row", "kind", "parameters", "expected", "got"} <= line["first"].keys()
        assert {"seed", "position", "stream"} <= line["first"]["parameters"].keys()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_progress_is_printed_on_terminals_only(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO
) -> None:
    monkeypatch.setattr(verify_page, "verify", of_one_case(HONEST))
    monkeypatch.setattr(sys, "stderr", stream)
    verify_page.verify_command(seed=1)
    printed = stream.getvalue()
    assert ("%, " in printed and "tokens compared" in printed) == stream.isatty()
    assert printed.strip("\r ").endswith("tokens compared") == stream.isatty()


def test_what_was_not_checked_says_so() -> None:
    assert verify_page.groups_of(Comparison("x", "exact"))[1] == "unchecked"


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
SHORT_COMMAND = (
    "from tests.verify import test_verify_command as here; "
    "from fastsample import __main__; from fastsample.cli import verify_page; "
    "verify_page.verify = here.of_one_case(here.HONEST); __main__.main()"
)


@pytest.mark.parametrize("arguments", [[], ["--json"]])
@pytest.mark.parametrize("output", ["closed pipe", "/dev/full"])
def test_a_report_that_cannot_be_printed(arguments: list[str], output: str) -> None:
    """That is no mismatch: the status must not be 1."""
    if output == "closed pipe":
        source, sink = os.pipe()
        os.close(source)
        why = "Broken pipe"
    elif os.path.exists(output):
        sink, why = os.open(output, os.O_WRONLY), "No space left on device"
    else:
        pytest.skip("needs Linux's /dev/full")
    try:
        done = subprocess.run(
            [sys.executable, "-c", SHORT_COMMAND, "verify", *arguments],
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
    """The status alone is left."""
    command = [sys.executable, "-c", SHORT_COMMAND, "verify", *arguments]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command],
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
def test_the_command_on_own_rows(tmp_path: Path, isa: str) -> None:
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
    assert found["fingerprint"].startswith("dde34d758299557f541dc93f")
    assert found["logits_fingerprint"]
    assert found["seed"] == 1
