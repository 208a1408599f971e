"""What the README shows runs as it stands there, and what it names exists."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")
COMMANDS = re.findall(r"^fastsample (.*)$", TEXT, re.MULTILINE)
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_runs(number: int) -> None:
    block = BLOCKS[number]
    if "import torch" in block:
        pytest.importorskip("torch", reason=f"block {number} of the README needs torch")
    exec(compile(block, f"README.md, block {number}", "exec"), {"__name__": "readme"})


def test_there_are_blocks_to_run() -> None:
    assert len(BLOCKS) >= 3
    assert len(COMMANDS) >= 2


@pytest.mark.parametrize("command", COMMANDS)
def test_command_runs(command: str, tmp_path: Path) -> None:
    pytest.importorskip("typer", reason="the command line needs typer and rich")
    pytest.importorskip("rich", reason="the command line needs typer and rich")
    np.save(tmp_path / "logits.npy", np.linspace(-3, 3, 200, dtype=np.float32).reshape(2, 100))
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
    assert "rank" in done.stdout


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
