"""Tests must be able to fail: each planted fault turns a named test red, and no fault none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fastsample
from fastsample.engines import is_installed
from tests.support import golden_checks
from tests.support.engines import Engine
from tests.support.mutants import OF_NUMBA, OF_THE_KERNELS, OF_THE_REFERENCE, Mutant
from tests.support.subprocess_kernels import SubprocessEngine, compile_kernels

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["-std=c++17", "-O1", "-ffp-contract=off", "-fno-math-errno", "-pthread"]
pytestmark = pytest.mark.nightly


def fault_of(mutant: Mutant) -> str:
    return mutant.fault


# ---------------------------------------------------------------- the engines in Python


def copy_package(folder: Path) -> Path:
    package = folder / "fastsample"
    shutil.copytree(Path(fastsample.__file__).parent, package)
    return package


def run_tests(folder: Path, engine: str, *names: str) -> subprocess.CompletedProcess[str]:
    """Tests of one engine, with the package that lies in a folder."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", engine]
    return subprocess.run(
        [*command, *(str(ROOT / "tests" / name) for name in names)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )


def in_python(engine: str) -> list[Mutant]:
    return OF_THE_REFERENCE if engine == "reference" else OF_NUMBA


def needs(engine: str) -> None:
    if engine == "numba" and not is_installed("numba"):
        pytest.skip("numba is not installed")


@pytest.mark.parametrize("engine", ["reference", "numba"])
def test_a_copy_without_a_fault_is_green(engine: str, tmp_path: Path) -> None:
    needs(engine)
    copy_package(tmp_path)
    done = run_tests(tmp_path, engine, *{str(mutant.noticed) for mutant in in_python(engine)})
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("engine", "mutant"),
    [(engine, mutant) for engine in ("reference", "numba") for mutant in in_python(engine)],
    ids=lambda part: part if isinstance(part, str) else part.fault,
)
def test_a_fault_in_python_is_noticed(engine: str, mutant: Mutant, tmp_path: Path) -> None:
    needs(engine)
    package = copy_package(tmp_path)
    mutant.plant(package / "engines" / engine, (".py",))
    done = run_tests(tmp_path, engine, str(mutant.noticed))
    assert done.returncode == 1, done.stdout
    assert "AssertionError" in done.stdout or "assert " in done.stdout


# ---------------------------------------------------------------- the kernels


@contextmanager
def built_with(mutant: Mutant | None, folder: Path, flags: list[str] = FLAGS) -> Iterator[Engine]:
    """The kernels of the baseline, with a fault or without, behind a pipe."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    kernels = shutil.copytree(ROOT / "kernels", folder / "kernels")
    if mutant:
        mutant.plant(kernels, (".hpp", ".cpp"))
    program = compile_kernels(folder, "g++", flags, kernels=kernels)
    command = [str(program), "baseline"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield SubprocessEngine("native", process=process)
        process.kill()


def noticed_by(mutant: Mutant) -> Callable[[Engine], None]:
    assert callable(mutant.noticed)
    return mutant.noticed


def test_kernels_without_a_fault_are_green(tmp_path: Path) -> None:
    with built_with(None, tmp_path) as engine:
        for mutant in OF_THE_KERNELS:
            noticed_by(mutant)(engine)


@pytest.mark.parametrize("mutant", OF_THE_KERNELS, ids=fault_of)
def test_a_fault_in_the_kernels_is_noticed(mutant: Mutant, tmp_path: Path) -> None:
    with built_with(mutant, tmp_path) as engine, pytest.raises(AssertionError):
        noticed_by(mutant)(engine)


def test_a_fused_multiply_and_add_is_noticed(tmp_path: Path) -> None:
    """The fault of a compiler that is left to itself, planted by its flags."""
    if "fma" not in Path("/proc/cpuinfo").read_text().split():
        pytest.skip("needs a processor that fuses")
    fused = [flag for flag in FLAGS if flag != "-ffp-contract=off"]
    fused += ["-O2", "-ffp-contract=fast", "-mfma"]
    with built_with(None, tmp_path, fused) as engine, pytest.raises(AssertionError):
        golden_checks.check_kept_sets(engine)
