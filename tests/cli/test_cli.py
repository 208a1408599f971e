"""The command line: output, errors and exit status."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from typer.testing import CliRunner

import fastsample
from fastsample import Arrival, DrawTrace, engines
from fastsample.cli.app import app
from fastsample.cli.table import describe_race, visible
from fastsample.engines import is_installed
from fastsample.params.table import STAGE_PARAMETERS
from tests.support.engines import NATIVE, native, without_modules

WORDS = [" the", "a b", "\n", "[bold]", "x", "\t", "z"]
LOGITS = np.log(np.array([0.5, 0.2, 0.1, 0.08, 0.04, 0.01, 0.07], dtype=np.float32))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "logits.npy"
    np.save(path, np.stack([LOGITS, LOGITS[::-1]]))
    return path


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.json"
    path.write_text(json.dumps(WORDS), encoding="utf-8")
    return path


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "100"})


def cells(output):
    """Split the table's lines into cells, by their order on the line."""
    return [line.split() for line in output.splitlines() if line.strip()[:1].isdigit()]


def refusal(*arguments):
    """Return the one line that explains why the command exited with status 2."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


def test_table_lists_candidates(file):
    result = run("table", file, "--row", 1, "-n", 3)
    assert result.exit_code == 0
    assert cells(result.stdout) == [
        ["1", "6", "-0.693", "0.5000", "0.5000", "0.5000"],
        ["2", "5", "-1.609", "0.2000", "0.7000", "0.2000"],
        ["3", "4", "-2.303", "0.1000", "0.8000", "0.1000"],
    ]


def test_table_shows_texts_and_cuts(file, texts):
    result = run("table", file, "--texts", texts, "--top-p", 0.8)
    rows = cells(result.stdout)
    assert [row[2] for row in rows] == ["␣the", "a␣b", "\\n", "[bold]", "z", "x", "\\t"]
    assert [row[-1] for row in rows[3:]] == ["top_p"] * 4


def test_table_prints_the_drawn_token(file, texts):
    result = run(
        "table", file, "--texts", texts, "--seed", 5, "--position", 2, "--stream", 3, "--top-k", 4
    )
    token = int(fastsample.sample(LOGITS, top_k=4, seed=5, position=2, stream=3).tokens)
    expected = f"drawn: {token} {visible(WORDS[token])}   (seed 5, position 2, stream 3)"
    assert expected in result.stdout


def test_table_shows_the_race(file):
    how = {"top_p": 0.9, "seed": 5, "position": 2}
    _, trace = fastsample.candidates(LOGITS, draw=True, **how)
    options = ("--top-p", 0.9, "--seed", 5, "--position", 2)
    shown = run("table", file, *options, "--draw", "race").stdout
    *_, drawn, winner, runner_up, margin = shown.splitlines()
    assert drawn.startswith(f"drawn: {trace.token} ")
    assert winner.startswith(f"winner: {trace.token}, time {trace.winner.time:.4g}, ")
    assert runner_up.startswith(f"runner-up: {trace.runner_up.token}, time ")
    assert margin == f"margin: {trace.margin:.4g}"
    for other in (("--draw", "inverse"), ("--draw", "race", "--top-k", 1)):
        assert "margin" not in run("table", file, *options, *other).stdout


@pytest.mark.parametrize(
    ("height", "text"), [(None, "4, time 0.5, by its clock"), (7, "4, time 0.5, at height 7")]
)
def test_how_a_token_came(height, text):
    trace = DrawTrace(4, Arrival(4, 0.5, height), None, 0.25)
    assert describe_race(trace) == f"winner: {text}\nrunner-up: none\nmargin: 0.25"


def test_table_without_a_seed_draws_nothing(file):
    assert "drawn" not in run("table", file).stdout


@pytest.mark.parametrize("option", [("--position", 0), ("--stream", 0), ("--draw", "race")])
def test_options_of_a_draw_need_a_seed(file, option):
    message = "--draw, --position and --stream need --seed (give --seed too)"
    assert message in refusal("table", file, *option)


def test_table_adds_the_drawn_token_with_its_rank(file):
    seed = next(
        seed for seed in range(99) if fastsample.sample(LOGITS, seed=seed, position=0).tokens == 6
    )
    result = run("table", file, "-n", 2, "--seed", seed)
    assert [row[:2] for row in cells(result.stdout)] == [["1", "0"], ["2", "1"], ["5", "6"]]
    assert "drawn: 6 " in result.stdout


def test_a_narrow_terminal_crops_the_text_and_keeps_the_token(tmp_path):
    np.save(tmp_path / "wide.npy", np.arange(100_001, dtype=np.float32))
    (tmp_path / "texts.json").write_text(json.dumps(["long word " * 9] * 100_001))
    command = ["table", tmp_path / "wide.npy", "--texts", tmp_path / "texts.json", "-n", 1]
    for columns in ("70", "30"):
        arguments = [str(a) for a in command]
        result = CliRunner().invoke(app, arguments, env={"COLUMNS": columns})
        (line,) = (line for line in result.stdout.splitlines() if "100000" in line)
        assert "word␣long␣word" not in line


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ((), "raw raw final prob. total prob."),
        (("--temperature", 0), "raw raw final prob. total prob."),
        (
            ("--temperature", 0.5),
            "raw raw tempered tempered final prob. total prob. total prob.",
        ),
        (
            ("--temperature", 0.5, "--top-p", 0.9),
            "raw raw tempered top_p final prob. total prob. total prob.",
        ),
    ],
)
def test_columns_of_probabilities(file, options, columns):
    first, second = run("table", file, *options).stdout.splitlines()[:2]
    above, below = columns[: columns.index(" prob.")], columns[columns.index(" prob.") + 1 :]
    assert first.split() == above.split()
    assert second.split() == ["rank", "token", "logit", *below.split(), "cut", "by"]


def test_the_total_of_top_p_shows_the_cut(file):
    rows = cells(run("table", file, "--temperature", 0.5, "--top-k", 4, "--top-p", 0.9).stdout)
    totals = [float(row[6]) for row in rows[:4]]
    mass = np.array([0.5, 0.2, 0.1, 0.08]) ** 2
    assert totals == pytest.approx(np.cumsum(mass / mass.sum()), abs=5e-5)
    assert totals[0] < 0.9 <= totals[1]
    assert [len(row) for row in rows[:2]] == [8, 8]
    assert [row[-1] for row in rows[2:4]] == ["top_p"] * 2


def test_float16_logits(tmp_path):
    np.save(tmp_path / "half.npy", LOGITS.astype(np.float16))
    np.save(tmp_path / "single.npy", LOGITS.astype(np.float16).astype(np.float32))
    half, single = (run("table", tmp_path / f"{n}.npy", "--seed", 3) for n in ("half", "single"))
    assert (half.exit_code, half.stdout) == (0, single.stdout)


@pytest.mark.parametrize("command", [[], ["table"], ["bench"], ["verify"], ["demo"], ["info"]])
def test_help_shows_no_type_for_flags(command):
    page = run(*command, "--help").stdout
    assert "--help" in page
    assert "bool" not in page.lower()


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--tempeature", 0.5), ("--tempeature", "--temperature")),
        (("--draw", "foo"), ("--draw", "'foo'", "'race', 'inverse'")),
    ],
)
def test_a_wrong_option_is_answered_with_a_right_one(file, options, parts):
    result = run("table", file, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert all(part in result.stderr for part in parts)


@pytest.mark.parametrize("command", ["table", "bench"])
def test_every_stage_of_the_table_has_an_option(command):
    page = run(command, "--help").stdout
    for parameter in STAGE_PARAMETERS:
        assert f"--{parameter.name.replace('_', '-')} " in page


def test_an_option_of_a_stage_reaches_the_filter(file):
    rows = cells(run("table", file, "--min-p", 0.3).stdout)
    assert [row[-1] for row in rows[2:]] == ["min_p"] * 5


def test_version():
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"fastsample {fastsample.__version__}\n")


@pytest.mark.skipif(native is None, reason="fastsample._native is not built")
@pytest.mark.parametrize("name", ["nonsense", "unusable"])
@pytest.mark.parametrize("command", ["info", "demo", "table"])
def test_a_bad_instruction_set_is_refused_in_one_line(file, command, name):
    if name == "unusable":
        name = next(isa for isa in ("neon", "baseline") if isa not in native.isa_usable())
    arguments = [command] if command != "table" else [command, file, "--seed", "3"]
    done = subprocess.run(
        [sys.executable, "-m", "fastsample", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "FASTSAMPLE_ISA": name},
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("fastsample: the environment's `FASTSAMPLE_ISA`")
    assert repr(name) in line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no file that is always full")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["info"], ["verify", "--help"]])
def test_a_full_disk_is_reported_in_one_line(arguments):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "fastsample", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    message = "fastsample: cannot open or write standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, message)


def test_closed_standard_output_is_no_error():
    done = subprocess.run(
        f"{shlex.quote(sys.executable)} -m fastsample info >&-", shell=True, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("columns", ["0", "", "000"])
def test_a_terminal_without_columns_gets_the_default_width(columns):
    command = [sys.executable, "-m", "fastsample"]
    env = {**os.environ, "COLUMNS": columns}
    for option in ("info", "--help"):
        done = subprocess.run([*command, option], capture_output=True, text=True, env=env)
        assert (done.returncode, done.stderr) == (0, "")
        assert "version" in done.stdout


def test_a_file_of_one_row(tmp_path):
    np.save(tmp_path / "one.npy", LOGITS)
    assert len(cells(run("table", tmp_path / "one.npy").stdout)) == 7


def test_a_file_in_column_order(tmp_path):
    np.save(tmp_path / "fortran.npy", np.asfortranarray(np.stack([LOGITS, LOGITS])))
    assert len(cells(run("table", tmp_path / "fortran.npy").stdout)) == 7


def test_missing_file(tmp_path):
    assert "No such file" in refusal("table", tmp_path / "absent.npy")


def test_file_that_is_not_npy(tmp_path):
    path = tmp_path / "bad.npy"
    path.write_text("hello")
    assert "is not an .npy file" in refusal("table", path)
    path.write_bytes(b"")
    assert "is not an .npy file" in refusal("table", path)


def npy(header):
    """The bytes of an .npy file with this header."""
    text = header.encode("latin1") + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(400)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 100",
        "{'descr': '<f4, 'fortran_order': False, 'shape': (100,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (100,), }}",
        "  {'descr': '<f4'\n 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2**63, 100)}",
        f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**64}, 100)}}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 100)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (True, 100)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 100)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (3,)}",
        "[" * 5000,
        "",
    ],
)
@pytest.mark.parametrize("command", ["table", "bench", "verify"])
def test_a_corrupt_file_is_reported_in_one_line(tmp_path, command, header):
    path = tmp_path / "corrupt.npy"
    path.write_bytes(npy(header))
    line = refusal(command, path)
    assert line.startswith(f"fastsample: {path} is not an .npy file of numbers (")


def test_a_pipe_or_a_folder_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        assert f"{path} must be a regular file" in refusal("table", path)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no /proc")
def test_a_file_that_cannot_be_mapped_is_named():
    assert "cannot open or write /proc/self/mem: " in refusal("table", "/proc/self/mem")


def test_file_of_objects_is_not_unpickled(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert "is not an .npy file" in refusal("table", tmp_path / "objects.npy")


def test_file_of_several_arrays(tmp_path):
    np.savez(tmp_path / "several.npz", LOGITS)
    assert "is not an .npy file" in refusal("table", tmp_path / "several.npz")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (LOGITS.astype(np.float64), "must hold float32 or float16, got float64"),
        (LOGITS.astype(">f4"), "must hold float32 or float16, got >f4"),
        (LOGITS[None, None], r"must have shape (V,) or (B, V), got (1, 1, 7)"),
        (np.array([0, np.nan], dtype=np.float32), "holds nan at token 1"),
    ],
)
def test_file_of_the_wrong_kind(tmp_path, array, message):
    np.save(tmp_path / "wrong.npy", array)
    assert message in refusal("table", tmp_path / "wrong.npy")


@pytest.mark.parametrize("row", [2, -1])
def test_row_out_of_range(file, row):
    assert f"--row must be in [0, 2), the rows of {file}, got {row}" in refusal(
        "table", file, "--row", row
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('["a"]', "must hold 7 texts, one per logit, got 1"),
        ("{}", "must be a JSON list of strings"),
        ("[1, 2, 3, 4, 5, 6, 7]", "must be a JSON list of strings"),
        ("[", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_texts_of_the_wrong_kind(file, texts, content, message):
    texts.write_text(content, encoding="utf-8")
    assert message in refusal("table", file, "--texts", texts)


def test_missing_texts(file, tmp_path):
    assert "No such file" in refusal("table", file, "--texts", tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("option", "value"),
    [("--top-p", 1.3), ("--temperature", -1), ("--seed", -1), ("--min-p", 2), ("--top-k", -2)],
)
def test_parameter_out_of_range(file, option, value):
    name = option.strip("-").replace("-", "_")
    assert f"`{name}` must be" in refusal("table", file, option, value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [(" the", "␣the"), ("\n\t", "\\n\\t"), ("\\n", "\\\\n"), ("é", "é"), ("\x00", "\\x00")],
)
def test_visible(text, shown):
    assert visible(text) == shown


def test_demo_shows_candidates_draws_and_latencies():
    result = run("demo")
    assert result.exit_code == 0
    assert result.stdout.count("drawn:") == 3
    for word in ("␣and", "np.max", "p99", "Rows and code are in the cache", "rule_version:"):
        assert word in result.stdout


def test_info_prints_every_fact():
    result = run("info")
    assert result.exit_code == 0
    for name in fastsample.info():
        assert f"{name}:" in result.stdout


def test_info_lists_engines_and_instruction_sets():
    facts = fastsample.info()
    assert facts["engine"] == facts["engines"][0]
    assert "reference" in facts["engines"]
    assert ("native" in facts["engines"]) == (native is not None) == (facts["isa"] is not None)
    for name in ("numba", "torch", "triton"):
        there = is_installed(name)
        assert (name in facts["engines"]) == there == (facts[name] is not None)
        if there:
            assert facts[name] == importlib.import_module(name).__version__


def test_the_engines_of_the_error_message_are_those_installed():
    with pytest.raises(ValueError) as refused:
        engines.resolve("?")
    found = []
    for name in sorted(set(re.findall(r"'(\w+)'", str(refused.value))) - {"auto"}):
        try:
            engines.resolve(name)
        except RuntimeError as error:
            if "installed" in str(error):
                continue
        found.append(name)
    assert found == sorted(engines.installed())


def test_info_knows_packages_by_what_is_in_them(monkeypatch):
    """The module triton comes in packages of other names too, as with torch for ROCm."""
    module = importlib.import_module("fastsample.api.info")
    monkeypatch.setattr(module, "installed", lambda: ("reference", "numba", "triton"))

    def version(name):
        known = {"numba": "0.60", "pytorch-triton-rocm": "3.7.1"}
        if name not in known:
            raise metadata.PackageNotFoundError(name)
        return known[name]

    monkeypatch.setattr(metadata, "version", version)
    packages = {"triton": ["pytorch-triton-rocm"]}
    monkeypatch.setattr(metadata, "packages_distributions", lambda: packages)
    facts = fastsample.info()
    assert (facts["numba"], facts["triton"]) == ("0.60", "3.7.1")
    packages.clear()
    assert fastsample.info()["triton"] == "unknown"


def test_info_loads_no_engine():
    code = "import sys, fastsample as f; f.info(); print({'torch', 'numba'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("with_numba", [True, False])
def test_info_without_the_extension(with_numba):
    if with_numba and not is_installed("numba"):
        pytest.skip("numba is not installed")
    with without_modules(NATIVE, "torch", *(() if with_numba else ("numba",))):
        page = run("info").stdout
    found = ["numba", "reference"] if with_numba else ["reference"]
    assert f"engines:       {', '.join(found)}\n" in page
    assert f"engine:        {found[0]}\n" in page
    assert "isa:           -\n" in page


def test_module_is_the_command_line():
    command = [sys.executable, "-m", "fastsample", "info"]
    assert b"rule_version" in subprocess.run(command, check=True, capture_output=True).stdout


def test_a_terminal_without_the_characters_gets_escapes(file, texts):
    command = [sys.executable, "-m", "fastsample", "table", file, "--texts", texts]
    plain = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, env=plain)
    assert done.returncode == 0
    assert b"\\u2423the" in done.stdout


@pytest.mark.parametrize("absent", ["typer", "rich"])
def test_without_the_extra_it_says_what_to_install(absent):
    code = f"import sys; sys.modules['{absent}'] = None; import fastsample.__main__ as m; m.main()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr == (
        f"The command line needs {absent}: pip install typer rich "
        "(or pip install '.[cli]' in fastsample's repository)\n"
    )
