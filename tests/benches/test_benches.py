"""The benches' own parts: rows, interleaved timing, and the refusal on a busy machine.

Timings are read here, never judged.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pytest_benchmark")
pytest.importorskip("matplotlib")
pytest.importorskip("typer")

import generator
import machine
import rivals
import rows
import settings
import tables
from interleave import Interleaved

from tests.support.bench_figures import make_figure

ROOT = Path(__file__).resolve().parents[2]

# ---------------------------------------------------------------- rows


def test_a_cut_keeps_the_head_and_the_order() -> None:
    row = np.random.default_rng(1).permutation(9_000).astype(np.float32)
    cut = rows.cut(row, 4_000, seed=3)
    assert len(set(cut)) == 4_000
    assert set(range(7_000, 9_000)) <= set(cut)
    places = {value: place for place, value in enumerate(row)}
    assert (np.diff([places[value] for value in cut]) > 0).all()
    assert np.array_equal(cut, rows.cut(row, 4_000, seed=3))


def test_a_cut_to_all_is_the_row() -> None:
    row = np.random.default_rng(1).standard_normal(3_000).astype(np.float32)
    assert np.array_equal(rows.cut(row, 3_000, seed=0), row)


def test_a_cut_cannot_add_tokens() -> None:
    with pytest.raises(ValueError, match="a row of 3 logits cannot be cut to 4"):
        rows.cut(np.zeros(3, np.float32), 4, seed=0)


def test_generated_rows_are_the_documented_ones() -> None:
    """Not to the last bit: NumPy asks the C library for a logarithm now and then."""
    first, second = (generator.make_row(5_000, i) for i in range(2))
    assert first.dtype == np.float32
    assert np.allclose(first[:3], [-8.7011, 5.61613, 9.89116], rtol=1e-5)
    assert np.allclose(second[:3], [0.203996, -6.49525, -6.16336], rtol=1e-5)
    assert (first.argmax(), second.argmax()) == (2_225, 2_881)
    assert np.allclose([first.max(), second.max()], [34.1034, 32.6915], rtol=1e-5)


def test_generated_rows_run_from_certain_to_flat() -> None:
    found = rows.RowSet(rows.GENERATOR, 151_936).distinct()
    shares = [np.exp(row - row.max(), dtype=np.float64) for row in found]
    first = [1 / share.sum() for share in shares]
    assert min(first) < 0.1 and max(first) > 0.9


@pytest.mark.parametrize("source", [rows.SMOLLM2, rows.GENERATOR])
def test_a_set_has_64_rows_in_memory_of_their_own(source: str) -> None:
    made = rows.RowSet(source, 2_100).rows()
    assert made.shape == (64, 2_100)
    assert made.flags.owndata and made.flags.c_contiguous
    assert len(np.unique(made, axis=0)) == 64


def test_sets_of_the_file_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FASTSAMPLE_LOGITS", raising=False)
    assert rows.of_the_file() == ()
    np.save(tmp_path / "rows.npy", np.zeros((2, 40_000), np.float32))
    monkeypatch.setenv("FASTSAMPLE_LOGITS", str(tmp_path / "rows.npy"))
    assert [found.vocabulary for found in rows.of_the_file()] == [32_000]
    assert rows.compared() == (rows.RowSet(rows.SMOLLM2, 49_152), *rows.of_the_file())
    assert rows.of_the_file()[0].rows().shape == (16, 32_000)
    np.save(tmp_path / "rows.npy", np.zeros((2, 900), np.float32))
    assert [found.vocabulary for found in rows.of_the_file()] == [900]


@pytest.mark.parametrize("shape", rows.ADVERSARIAL)
def test_adversarial_rows_can_be_drawn_from(shape: str) -> None:
    row = generator.make_row(3_000, 0)
    made = rows.ADVERSARIAL[shape](row)
    assert made.dtype == np.float32 and made.shape == row.shape
    assert not np.isnan(made).any() and np.isfinite(made).any()
    assert np.array_equal(made, rows.ADVERSARIAL[shape](row), equal_nan=True)
    assert not np.array_equal(made, row)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_new_rows_are_warmed(monkeypatch: pytest.MonkeyPatch, dtype: type) -> None:
    read: list[int] = []
    monkeypatch.setattr(rows.np, "max", lambda row: read.append(row.nbytes))
    made = np.zeros((3, 50), dtype)
    assert rows.warm(made, seconds=0) == rows.WARM_PASSES
    assert sum(read) == rows.WARM_PASSES * made.nbytes
    assert rows.warm(made, seconds=0.05) > rows.WARM_PASSES


def test_every_kind_of_rows_is_warmed(monkeypatch: pytest.MonkeyPatch) -> None:
    warmed: list[Any] = []
    monkeypatch.setattr(rows, "warm", lambda made, seconds: warmed.append(made))
    rows.rows_of.cache_clear()
    made = rows.RowSet(rows.GENERATOR, 500)
    found = [rows.rows_of(made), rows.rows_of(made, "sorted")]
    found.append(rows.as_dtype(found[0], "float16"))
    assert [id(array) for array in warmed] == [id(array) for array in found]
    rows.rows_of.cache_clear()


def test_the_clustered_tenth_is_in_one_place() -> None:
    made = rows.ADVERSARIAL["clustered"](generator.make_row(3_000, 0))
    largest = np.flatnonzero(made >= np.sort(made)[-300])
    assert np.ptp(largest) == 299


def test_the_table_of_goals() -> None:
    wide, widest, small = (
        [setting.goal(size) for setting in settings.SETTINGS] for size in settings.VOCABULARIES
    )
    assert wide == [0.72, 0.8, 0.9, 0.92, 0.92, 0.97, 0.97, 1.15, 0.9]
    assert widest == [0.8, 0.88, 0.92, 0.92, 0.92, 0.97, 0.97, 1.15, 0.9]
    assert small == [0.75, 0.9, 1.1, 1.1, 1.1, 1.2, 1.2, 1.5, 1.1]
    assert settings.with_logprobs(settings.by_name("greedy")).goals == (2.82, 2.9, 3.05)
    assert settings.on_avx2(settings.by_name("T .8")).goals == (1.2, 1.2, 1.43)
    aims = [settings.exact_limit(name) for name in ("T .8", "softmax", "usual chain", "greedy")]
    assert (*aims, settings.FIXED_LIMIT) == (1.6, 1.6, 1.03, None, 1.03)
    edges = settings.edges(151_936)
    assert [edge.params.get("top_k") for edge in edges] == [1_188, 75_968, None, None]


def test_only_recorded_rows_of_the_sizes_with_goals_have_one() -> None:
    greedy = settings.by_name("greedy")
    sets = [rows.RowSet(rows.FILE, 262_144), rows.RowSet(rows.FILE, 900), *rows.of_the_package()]
    assert [found.goal(greedy) for found in sets] == [0.8, None, None, None]


# ---------------------------------------------------------------- interleaved timing


def fake_benchmark(call_rounds: list[int]) -> Any:
    """Stands for pytest-benchmark's fixture: it runs rounds, and keeps their numbers as times."""

    def pedantic(target: Any, setup: Any, rounds: int) -> None:
        for _ in range(rounds):
            arguments, options = setup()
            target(*arguments, **options)
        call_rounds.append(rounds)

    data = [1.0, 2.0, 9.0]
    return SimpleNamespace(
        enabled=True, pedantic=pedantic, stats=SimpleNamespace(stats=SimpleNamespace(data=data))
    )


def test_a_call_and_its_partner_alternate_on_different_rows() -> None:
    seen: list[tuple[str, int]] = []
    items = np.arange(4)
    interleaved = Interleaved(
        lambda item: seen.append(("call", int(item))),
        items,
        lambda item: seen.append(("partner", int(item))),
        items + 10,
    )
    rounds: list[int] = []
    outcome = interleaved.run(fake_benchmark(rounds), tokens=2)
    seen = seen[-2 * rounds[0] :]
    assert [who for who, _ in seen] == ["partner", "call"] * rounds[0]
    assert seen[:8] == [
        *(("partner", 12), ("call", 0), ("partner", 13), ("call", 1)),
        *(("partner", 10), ("call", 2), ("partner", 11), ("call", 3)),
    ]
    assert rounds[0] % 4 == 0 and len(interleaved.partner_seconds) == rounds[0]
    assert outcome is not None
    assert (outcome.call.median, outcome.call.mean) == (1.0, 2.0)
    assert outcome.call.p99 == pytest.approx(np.percentile([1.0, 2.0, 9.0], 99) / 2)
    assert 0 < outcome.partner.median <= outcome.partner.p99


# ---------------------------------------------------------------- the machine


@pytest.mark.parametrize(
    ("vendor", "family", "model", "expected"),
    [
        ("AuthenticAMD", 25, 17, True),
        ("AuthenticAMD", 25, 97, True),
        ("AuthenticAMD", 25, 33, False),
        ("AuthenticAMD", 26, 17, False),
        ("GenuineIntel", 25, 17, False),
    ],
)
def test_which_processors_are_zen_4(vendor: str, family: int, model: int, expected: bool) -> None:
    cpu = {"vendor_id_raw": vendor, "family": family, "model": model}
    assert machine.is_zen4(cpu) == expected and not machine.is_zen4({})


# ---------------------------------------------------------------- the refusal


def test_no_wait_on_an_idle_machine() -> None:
    assert machine.settled_load(0, load=lambda: 0.5, sleep=pytest.fail) == 0.5


def test_wait_on_a_busy_machine(capsys: Any) -> None:
    loads, printed = iter([2.0, 0.7, 0.4]), []

    def wait(seconds: float) -> None:
        printed.append(capsys.readouterr().err)

    assert machine.settled_load(60, lambda: next(loads), wait) == 0.4
    assert printed == [
        "the load average of the last minute is 2.00: waiting until it is at most 0.5, for 60 "
        "seconds at most\n",
        "",
    ]


def test_no_wait_at_a_load_that_is_too_high() -> None:
    with pytest.raises(
        machine.BusyError, match=r"is 2\.01, .* \(.* make bench NOISY=1, or --noisy\)"
    ):
        machine.settled_load(60, lambda: 2.01, pytest.fail)


def test_a_machine_that_stays_busy_is_an_error() -> None:
    pauses: list[float] = []
    with pytest.raises(machine.BusyError, match=r"is 0\.51, above 0\.5: nothing is published"):
        machine.settled_load(20, lambda: 0.51, pauses.append)
    assert sum(pauses) == 20


def run_benches(tmp_path: Path, load: float, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Two benches for publication on a machine whose load average is what the test says."""
    plugin = f"import fastsample.cli.interleave as s\ns.load_average = lambda: {load}\n"
    (tmp_path / "loaded.py").write_text(plugin)
    path = os.pathsep.join([str(tmp_path), *(os.path.abspath(part) for part in sys.path if part)])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "loaded", "benches", "--patience=0"]
    command += ["--benchmark-only", f"--benchmark-json={tmp_path / 'out.json'}", *arguments]
    command += ["-k", "SmolLM2 and greedy and not torch"]
    # Under pytest-xdist benches are not timed; these are none of its tests.
    kept = {name: text for name, text in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**kept, "PYTHONPATH": path}
    )


def test_nothing_is_published_from_a_busy_machine(tmp_path: Path) -> None:
    done = run_benches(tmp_path, 0.51)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "the load average of the last minute is 0.51, above 0.5" in done.stderr


@pytest.mark.parametrize(("load", "flags"), [(0.2, ()), (7.0, ("--noisy",)), (0.2, ("--noisy",))])
def test_published_figures_have_every_field(
    tmp_path: Path, load: float, flags: tuple[str, ...]
) -> None:
    done = run_benches(tmp_path, load, *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    report = tables.read_report(tmp_path / "out.json")
    assert report.noisy == bool(flags)
    assert [figure["contender"] for figure in report.figures] == [rivals.OURS, rivals.NUMPY]
    for figure in report.figures:
        assert figure.keys() >= make_figure().keys()
        assert figure["load_average"] == load and figure["noisy"] == bool(flags)
        assert figure["bytes_per_second"] == pytest.approx(49_152 * 4 / figure["us"] * 1e6)
        assert {"python", "fastsample", "numpy"} <= figure["versions"].keys()
        assert figure["cpu"] and figure["isa"]
    document = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert document["benchmarks"][0]["group"].startswith("settings | greedy | SmolLM2 | 49152")
