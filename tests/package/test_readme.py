"""What README and the pages under docs show runs as it stands, and what they name exists."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastsample
from fastsample.engines import OF_TENSORS
from fastsample.verification.invariants import INVARIANTS

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
API = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
GPU = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
SPEED = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
DETERMINISM = (ROOT / "docs" / "determinism.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^fastsample (.*)$", TEXT + SPEED + DETERMINISM, re.MULTILINE)


def blocks_of(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


BLOCKS = blocks_of(TEXT)
API_BLOCKS = blocks_of(API)
SPEED_BLOCKS = blocks_of(SPEED)
DETERMINISM_BLOCKS = blocks_of(DETERMINISM)
GPU_BLOCKS = blocks_of(GPU)


def run_block(block: str, name: str, names: dict[str, Any]) -> None:
    if "import torch" in block:
        pytest.importorskip("torch", reason=f"{name} needs torch")
    if 'engine="numba"' in block:
        pytest.importorskip("numba", reason=f"{name} needs numba")
    exec(compile(block, name, "exec"), names)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_runs(number: int) -> None:
    run_block(BLOCKS[number], f"README.md, block {number}", {"__name__": "readme"})


@pytest.mark.parametrize("number", range(1, len(API_BLOCKS)))
def test_block_of_the_interface_runs(number: int) -> None:
    """After the first one, which makes what all others look at."""
    names: dict[str, Any] = {"__name__": "api"}
    run_block(API_BLOCKS[0], "docs/api.md, block 0", names)
    run_block(API_BLOCKS[number], f"docs/api.md, block {number}", names)


@pytest.mark.parametrize("number", range(len(SPEED_BLOCKS)))
def test_block_about_speed_runs(number: int) -> None:
    run_block(SPEED_BLOCKS[number], f"docs/performance.md, block {number}", {"__name__": "speed"})


@pytest.mark.parametrize("number", range(len(DETERMINISM_BLOCKS)))
def test_block_about_determinism_runs(number: int) -> None:
    names = {"__name__": "determinism"}
    run_block(DETERMINISM_BLOCKS[number], f"docs/determinism.md, block {number}", names)


def test_blocks_about_devices_run_one_after_the_other() -> None:
    names: dict[str, Any] = {"__name__": "gpu"}
    for number, block in enumerate(GPU_BLOCKS):
        run_block(block, f"docs/gpu.md, block {number}", names)


def test_functions_named_exist() -> None:
    named = set(re.findall(r"fastsample\.(\w+)\(", TEXT + API + SPEED))
    assert named <= set(fastsample.__all__)


def test_every_engine_and_invariant_has_its_line_in_the_interface() -> None:
    engines = ("native", "numba", "reference", *OF_TENSORS)
    assert [name for name in engines if f'\n- `"{name}"`: ' not in API] == []
    assert [one.name for one in INVARIANTS if f"\n| {one.name} | " not in API] == []


def test_there_are_blocks_to_run() -> None:
    assert len(BLOCKS) >= 3
    assert len(API_BLOCKS) >= 8
    assert len(GPU_BLOCKS) >= 3
    assert len(SPEED_BLOCKS) >= 1
    assert len(COMMANDS) >= 2


@pytest.mark.parametrize("command", COMMANDS)
def test_command_runs(command: str, tmp_path: Path) -> None:
    pytest.importorskip("typer", reason="the command line needs typer and rich")
    pytest.importorskip("rich", reason="the command line needs typer and rich")
    np.save(tmp_path / "logits.npy", np.linspace(-3, 3, 3_200, dtype=np.float32).reshape(32, 100))
    (tmp_path / "texts.json").write_text(json.dumps([f" word{i}" for i in range(100)]))
    # A relative path in PYTHONPATH would not lead to the package from another folder.
    path = os.pathsep.join(os.path.abspath(part) for part in sys.path if part)
    done = subprocess.run(
        [sys.executable, "-m", "fastsample", *shlex.split(command, comments=True)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    assert {"table": "rank", "bench": "p99", "verify": "fingerprint"}[
        command.split()[0]
    ] in done.stdout


def test_extras_of_the_readme_exist() -> None:
    extras = set(",".join(re.findall(r"\.\[([\w,]+)\]", TEXT)).split(","))
    project = (README.parent / "pyproject.toml").read_text(encoding="utf-8")
    declared = project.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    assert "cli" in extras
    assert extras <= set(re.findall(r"^(\w+) = ", declared, re.MULTILINE))


def test_the_example_is_short() -> None:
    """As `make lint` has it formatted."""
    example = README.parent / "examples" / "generate.py"
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 80


@pytest.mark.parametrize("content", [None, "hello", "float64", "one row"])
def test_a_wrong_file_of_logits_is_told_in_one_line(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    if content == "hello":
        path.write_text(content)
    elif content:
        np.save(path, np.zeros(3, "f4") if content == "one row" else np.zeros((2, 3)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", __file__],
        capture_output=True,
        text=True,
        env={**os.environ, "FASTSAMPLE_LOGITS": str(path)},
    )
    lines = (done.stdout + done.stderr).strip().splitlines()
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert len(lines) == 1
    assert "FASTSAMPLE_LOGITS must name a float32 .npy file of shape (rows, V), got" in lines[0]


def test_make_targets_of_the_readme_exist() -> None:
    targets = set(re.findall(r"(?:^|`)make ([a-z]+)", TEXT, re.MULTILINE))
    makefile = (README.parent / "Makefile").read_text(encoding="utf-8")
    assert {"demo", "test"} <= targets
    assert sorted(t for t in targets if not re.search(rf"^{t}:", makefile, re.MULTILINE)) == []
