"""Programs of the kernels of one instruction set, compiled apart from the extension."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["-std=c++17", "-O2", "-static", "-ffp-contract=off", "-fno-math-errno"]


def fingerprint(folder: Path, compiler: str, isa: str, flags: list[str], run: list[str]) -> str:
    """Compile the kernels of one instruction set with the fingerprint's program, and run it."""
    for tool in (compiler, *run):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    program = folder / isa
    names = [f"-DFASTSAMPLE_ISA={isa}", f"-I{ROOT / 'kernels'}"]
    source = str(ROOT / "tests" / "support" / "isa_fingerprint.cpp")
    subprocess.run([compiler, *FLAGS, *flags, *names, source, "-o", str(program)], check=True)
    done = subprocess.run([*run, str(program)], check=True, capture_output=True, text=True)
    return done.stdout.strip()
