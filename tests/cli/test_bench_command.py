"""`fastsample bench`: what it prints, writes and refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from typer.testing import CliRunner

from fastsample import Latency, Sampler, info
from fastsample.cli import bench as bench_module
from fastsample.cli import interleave
from fastsample.cli.app import app
from fastsample.cli.interleave import Sweep

ROWS = np.random.default_rng(2).standard_normal((5, 600)).astype(np.float32) * 3


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.npy"
    np.save(path, ROWS)
    return path


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_module, "load_average", lambda: 0.1)
    monkeypatch.setattr(bench_module, "COLD_CALLS", 2)
    monkeypatch.setattr(bench_module, "Sweep", partial(Sweep, megabytes=1))


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["bench", *map(str, arguments)], env={"COLUMNS": "100"})


def refusal(*arguments: Any) -> str:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    return str(line)


def test_it_prints_percentiles_of_all_three(file: Path) -> None:
    result = run(file, "--temperature", 0.8, "--top-k", 50, "--repeat", 2)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "temperature 0.8, top_k 50, draw race\n" in result.stdout
    assert "5 row(s) of 600 logits" in result.stdout
    assert (
        "time(s) after a warm-up pass; fastsample, np.max and np.argmax interleaved, then the NumPy"
        in " ".join(result.stdout.split())
    )
    assert re.search(
        r"^us, hot +mean .* max +p50 x np.max +cold p50 +cold p99 *$", result.stdout, re.M
    )
    for name in ("fastsample", "np.argmax", "NumPy baseline", "np.max"):
        (line,) = re.findall(rf"^{name} +(\d.*)$", result.stdout, re.MULTILINE)
        mean, p50, p90, p99, most, in_max, cold_p50, cold_p99 = map(float, line.split())
        assert 0 < p50 <= p90 <= p99 <= most and 0 < mean <= most
        assert in_max > 0 and 0 < cold_p50 <= cold_p99
    assert in_max == 1


@pytest.mark.parametrize(("option", "other"), [("--hot", "cold"), ("--cold", "hot")])
def test_one_state_alone(file: Path, tmp_path: Path, option: str, other: str) -> None:
    state, path = option.strip("-"), tmp_path / "figures.json"
    result = run(file, "--repeat", 1, option, "--json", path)
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.search(rf"^us, {state} +mean .* p50 x np.max *$", result.stdout, re.MULTILINE)
    assert f"\n{state}: 5 row(s) of 600 logits" in result.stdout
    assert f"distribution of {state} times" in result.stdout and f"{other}:" not in result.stdout
    assert json.loads(path.read_text(encoding="utf-8"))["nanoseconds"].keys() == {state}


def test_cold_calls_follow_a_sweep_and_a_round_that_is_not_counted(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    class Watched(Sweep):
        def __call__(self) -> np.ndarray:
            seen.append("sweep")
            return super().__call__()

    def draw(row: np.ndarray) -> None:
        assert any(np.array_equal(row, one) for one in ROWS)
        seen.append("draw")

    monkeypatch.setattr(bench_module, "Sweep", partial(Watched, megabytes=1))
    monkeypatch.setattr(bench_module, "Sampler", lambda *_, **__: draw)
    run(file, "--cold", "--no-baseline")
    assert [one for one in seen if one == "sweep"] == ["sweep"] * 3 * (1 + 2)
    places = [i for i, one in enumerate(seen) if one == "draw"]
    assert len(places) == 1 + 2 and all(seen[i - 1] == "sweep" for i in places)


@pytest.mark.parametrize("reduction", ["exact", "fixed", "fast"])
def test_a_reduction_is_drawn_in_and_named(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reduction: str
) -> None:
    made = []

    def sampler(*arguments: Any, **how: Any) -> Sampler:
        made.append(how["reduction"])
        return Sampler(*arguments, **how)

    monkeypatch.setattr(bench_module, "Sampler", sampler)
    path = tmp_path / "figures.json"
    result = run(file, "--repeat", 1, "--reduction", reduction, "--json", path)
    assert (result.exit_code, made) == (0, [reduction])
    assert json.loads(path.read_text(encoding="utf-8"))["reduction"] == reduction
    assert (f", reduction {reduction}\n" in result.stdout) == (reduction != "exact")


def test_it_prints_a_histogram(file: Path) -> None:
    result = run(file, "--repeat", 2)
    assert re.search(r"from us +fastsample +np.max +NumPy baseline", result.stdout)
    bars = [line for line in result.stdout.splitlines() if "█" in line or "#" in line]
    assert bars
    assert all(float(line.split()[0]) > 0 for line in bars)


def test_json_holds_every_figure(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    filters = ("--temperature", 0.7, "--top-k", 9, "--top-p", 0.9, "--min-p", 0.1)
    assert run(file, *filters, "--repeat", 3, "--json", path).exit_code == 0
    found = json.loads(path.read_text(encoding="utf-8"))
    on = {"temperature": 0.7, "top_k": 9, "top_p": 0.9, "min_p": 0.1}
    assert {name: found["parameters"][name] for name in on} == on
    facts = ("file", "rows", "vocabulary", "dtype", "batch", "repeat", "n_threads", "busy")
    assert [found[name] for name in facts] == [str(file), 5, 600, "float32", 1, 3, None, False]
    assert found["load_average"] == 0.1
    assert {"isa", "python", "numpy", "machine"} <= found.keys()
    assert found["nanoseconds"].keys() == {"hot", "cold"}
    names = {"fastsample", "NumPy baseline", "np.max", "np.argmax"}
    assert all(of_state.keys() == names for of_state in found["nanoseconds"].values())
    all_times = [
        (times, count)
        for state, count in (("hot", 15), ("cold", 2))
        for times in found["nanoseconds"][state].values()
    ]
    for times, count in all_times:
        counts, edges = times["histogram"]["counts"], times["histogram"]["edges"]
        assert times["count"] == sum(counts) == count
        assert len(edges) == len(counts) + 1
        assert edges[0] <= times["p50"] <= times["p90"] <= times["p99"] <= times["max"]
        assert times["mean"] > 0


def test_figures_are_written(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    svg, png = tmp_path / "a.svg", tmp_path / "a.png"
    assert run(file, "--repeat", 1, "--svg", svg, "--png", png).exit_code == 0
    text = svg.read_text(encoding="utf-8")
    assert "</svg>" in text
    assert png.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("load", [0.1, 0.51])
def test_a_figure_describes_its_measurement(
    file: Path, monkeypatch: pytest.MonkeyPatch, load: float
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(bench_module, "load_average", lambda: load)
    monkeypatch.setattr(bench_module, "info", lambda: {**info(), "cpu": "A processor"})
    options = ("--isa", "baseline", "--batch", 2, "--repeat", 1, "--no-baseline")
    captions: list[str] = []
    monkeypatch.setattr(
        bench_module, "draw_latencies", lambda _, title, paths: captions.append(title)
    )
    assert run(file, *options, "--svg", file.parent / "a.svg").exit_code == 0
    settings, conditions = captions[0].splitlines()
    assert settings == "temperature 1.0, draw race, V = 600, hot"
    busy = ", BUSY: load average 0.51" if load > 0.5 else ""
    assert conditions == f"4 row(s) of float32, 2 per call, baseline, A processor{busy}"


def test_matplotlib_is_not_loaded_without_a_figure(file: Path) -> None:
    code = (
        "import sys; from fastsample.cli.app import app; "
        f"app(['bench', {str(file)!r}, '--repeat', '1'], standalone_mode=False); "
        "sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_without_the_baseline(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_module, "BaselineSampler", pytest.fail)
    result = run(file, "--repeat", 1, "--no-baseline", "--json", tmp_path / "a.json")
    assert (result.exit_code, "NumPy baseline" in result.stdout) == (0, False)
    found = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert found["nanoseconds"]["cold"].keys() == {"fastsample", "np.max", "np.argmax"}


def test_a_stage_that_the_baseline_lacks(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_module, "BASELINE_STAGES", ("temperature", "top_k"))
    monkeypatch.setattr(bench_module, "BaselineSampler", pytest.fail)
    options = ("--temperature", 0.8, "--top-k", 9, "--top-p", 0.9, "--repeat", 1)
    result = run(file, *options)
    assert result.exit_code == 0
    assert "no NumPy baseline: it does not have top_p\n" in result.stdout


def test_a_busy_machine_is_warned_of(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_module, "load_average", lambda: 0.51)
    result = run(file, "--repeat", 1)
    assert result.exit_code == 0
    assert "this machine is busy (load average 0.51)" in result.stderr


def test_a_file_of_one_row(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", ROWS[0])
    assert "1 row(s) of 600 logits" in run(tmp_path / "one.npy", "--repeat", 1).stdout


def test_greedy(file: Path) -> None:
    result = run(file, "--temperature", 0, "--repeat", 1)
    assert (result.exit_code, "draw" in result.stdout.splitlines()[0]) == (0, False)


@pytest.mark.parametrize(
    ("options", "draw"),
    [
        ((), "race"),
        (("--draw", "race"), "race"),
        (("--draw", "inverse"), "inverse"),
        (("--reduction", "fixed"), "inverse"),
    ],
)
def test_the_way_to_draw_is_named(
    file: Path, tmp_path: Path, options: tuple[str, ...], draw: str
) -> None:
    path = tmp_path / "figures.json"
    result = run(file, "--repeat", 1, "--no-baseline", "--json", path, *options)
    assert f"temperature 1.0, draw {draw}" in result.stdout
    assert json.loads(path.read_text(encoding="utf-8"))["draw"] == draw


@pytest.mark.parametrize("isa", ["baseline", "nonsense"])
def test_the_instruction_set_is_printed_or_refused(file: Path, isa: str) -> None:
    if isa == "nonsense":
        assert "`isa`" in refusal(file, "--isa", isa)
    else:
        pytest.importorskip("fastsample._native")
        assert f"{isa}, default threads" in run(file, "--isa", isa, "--repeat", 1).stdout


def test_threads_are_printed_or_refused(file: Path) -> None:
    assert "2 thread(s)" in run(file, "--batch", 2, "--threads", 2, "--repeat", 1).stdout
    assert "`n_threads` must be" in refusal(file, "--batch", 2, "--threads", 0)


@pytest.mark.parametrize("threads", [1, 2])
def test_one_row_is_never_spread_over_threads(file: Path, threads: int) -> None:
    message = f"--threads {threads} needs a --batch above 1: rows are distributed over threads, one"
    assert message in refusal(file, "--threads", threads)


def test_a_batch_is_one_call_and_its_time_that_of_a_token(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five rows in twos: one is left out. By the clock every call takes 10 ns, a token 5."""
    ticks = iter(range(0, 10**6, 10))
    clock = SimpleNamespace(perf_counter_ns=lambda: next(ticks))
    monkeypatch.setattr(interleave, "time", clock)
    path = tmp_path / "figures.json"
    result = run(file, "--batch", 2, "--repeat", 3, "--json", path)
    assert "4 row(s) of 600 logits (float32, 0.0 MB), 2 per call" in result.stdout
    found = json.loads(path.read_text(encoding="utf-8"))
    assert (found["rows"], found["batch"]) == (4, 2)
    for state, count in (("hot", 6), ("cold", 2)):
        for times in found["nanoseconds"][state].values():
            assert (times["count"], times["mean"]) == (count, 5)


def test_each_contender_gets_the_rows_of_a_batch(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fastsample gets a batch at once, the others row by row; the baseline in float32."""
    np.save(file, ROWS.astype(np.float16))
    seen: dict[str, set[Any]] = {}

    def time_interleaved(calls: Any, items: np.ndarray, repeat: int, tokens: int) -> Any:
        for name, call in calls.items():
            seen[name] = {(items.shape, items.dtype.name, len(call(items[0])))}
        return {name: Latency() for name in calls}

    monkeypatch.setattr(bench_module, "time_interleaved", time_interleaved)
    run(file, "--batch", 2, "--hot")
    assert seen == {
        "fastsample": {((2, 2, 600), "float16", 2)},
        "np.max": {((2, 2, 600), "float16", 2)},
        "np.argmax": {((2, 2, 600), "float16", 2)},
        "NumPy baseline": {((2, 2, 600), "float32", 2)},
    }


def test_rows_of_two_bytes_a_logit(file: Path) -> None:
    np.save(file, ROWS.astype(np.float16))
    printed = run(file, "--repeat", 1).stdout
    assert "5 row(s) of 600 logits (float16, " in printed and bench_module.FLOAT16_NOTE in printed


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--repeat", 0, "--repeat must be at least 1, got 0"),
        ("--batch", 0, "--batch must be in [1, 5], the rows of "),
        ("--batch", 6, "--batch must be in [1, 5], the rows of "),
        ("--top-p", 1.3, "`top_p` must be in [0, 1], got 1.3"),
        ("--reduction", "half", '`reduction` must be "exact", "fixed" or "fast", got'),
        ("--temperature", -1, "`temperature` must be"),
    ],
)
def test_a_number_out_of_range(file: Path, option: str, value: Any, message: str) -> None:
    assert message in refusal(file, option, value)


@pytest.mark.parametrize("option", ["--svg", "--png", "--json"])
@pytest.mark.parametrize("place", ["absent/a", "."])
def test_a_path_that_cannot_be_written(file: Path, tmp_path: Path, option: str, place: str) -> None:
    path = tmp_path / place
    message = f"{option} must name a file in an existing folder, got {path}"
    assert message in refusal(file, option, path)


@pytest.mark.parametrize("option", ["--svg", "--png", "--json"])
@pytest.mark.parametrize("name", ["rows.npy", "../{}/rows.npy", "link"])
def test_the_rows_are_not_written_over(file: Path, option: str, name: str) -> None:
    (file.parent / "link").symlink_to(file)
    path = file.parent / name.format(file.parent.name)
    message = f"{option} must name a file of its own, got {path}, the file of the rows (it would"
    assert message in refusal(file, option, path)
    assert np.array_equal(np.load(file), ROWS)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no file that is always full")
@pytest.mark.parametrize("option", ["--json", "--svg"])
def test_a_full_disk_is_reported_with_its_file(file: Path, option: str) -> None:
    if option == "--svg":
        pytest.importorskip("matplotlib")
    message = "cannot open or write /dev/full: No space left on device"
    assert message in refusal(file, "--repeat", 1, option, "/dev/full")


def test_two_outputs_are_two_files(file: Path) -> None:
    path = file.parent / "a"
    assert f"got {path}, the file of --svg (it" in refusal(file, "--svg", path, "--json", path)


def test_figures_are_written_before_they_are_printed(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def report(console: Any, measured: Any) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(bench_module, "report", report)
    run(file, "--repeat", 1, "--json", tmp_path / "figures.json")
    assert "nanoseconds" in json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))


def test_figures_without_matplotlib(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "figures need matplotlib: pip install" in refusal(file, "--svg", file.parent / "a.svg")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (ROWS.astype(float), "must hold float32 or float16, got float64"),
        (ROWS.astype(">f4"), "must hold float32 or float16, got >f4"),
        (ROWS[None], "must have shape (V,) or (B, V), got (1, 5, 600)"),
        (ROWS[:0], "must hold at least one row, got shape (0, 600)"),
        (np.where(np.arange(600) == 7, np.float32(np.nan), ROWS), "row 0 holds nan at token 7"),
    ],
)
def test_a_file_of_the_wrong_kind(tmp_path: Path, array: np.ndarray, message: str) -> None:
    np.save(tmp_path / "wrong.npy", array)
    assert message in refusal(tmp_path / "wrong.npy")


def test_a_file_that_is_none(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "absent.npy")
    (tmp_path / "text.npy").write_text("1 2 3")
    assert "is not an .npy file" in refusal(tmp_path / "text.npy")


@pytest.mark.parametrize(("share", "marks"), [(0, 0), (1e-6, 1), (0.25, 10), (0.5, 20), (1, 20)])
def test_a_bar(share: float, marks: int) -> None:
    assert bench_module.bar(share, "#") == "#" * marks
