"""Programs of the kernels of one instruction set, compiled apart from the extension."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["-std=c++17", "-O2", "-static", "-ffp-contract=off", "-fno-math-errno"]


def compile_program(folder: Path, name: str, compiler: str, isa: str, flags: list[str]) -> Path:
    """Compile a program of tests/support with the kernels of one instruction set."""
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}")
    program = folder / isa
    names = [f"-DFASTSAMPLE_ISA={isa}", f"-I{ROOT / 'kernels'}"]
    source = str(ROOT / "tests" / "support" / name)
    subprocess.run([compiler, *flags, *names, source, "-o", str(program)], check=True)
    return program


def fingerprint(folder: Path, compiler: str, isa: str, flags: list[str], run: list[str]) -> str:
    """Compile the kernels of one instruction set with the fingerprint's program, and run it."""
    for tool in run:
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    program = compile_program(folder, "isa_fingerprint.cpp", compiler, isa, [*FLAGS, *flags])
    done = subprocess.run([*run, str(program)], check=True, capture_output=True, text=True)
    return done.stdout.strip()
