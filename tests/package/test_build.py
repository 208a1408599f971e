"""What a compiler and the flags of CFLAGS and CXXFLAGS may not change: bits, and the float mode."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.build_settings import KERNELS, ROOT, compile_flags, settings_of_the_build

COMPILERS = ["g++", *(f"clang++-{version}" for version in (14, 15, 16, 17, 18, 19, 20))]
FAST_MATH = ["-ffast-math", "-Ofast", "-funsafe-math-optimizations"]
KEEPS_DENORMALS = "import numpy as np; assert np.float32(1e-40) * np.float32(1) > 0"

if not (ROOT / "setup.py").exists():
    pytest.skip("the sources are not in the folder of the tests", allow_module_level=True)
pytest.importorskip("Cython", reason="needs Cython to read setup.py")


def need(compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}")


def run(command: list[Any], **variables: str) -> str:
    """Return what a command prints that has to succeed."""
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


# ---------------------------------------------------------------- in seconds


@pytest.mark.parametrize("flag", FAST_MATH)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_fast_math_at_link_leaves_denormals(compiler: str, flag: str, tmp_path: Path) -> None:
    """setuptools hands CXXFLAGS to the linker, where these flags add code that runs at import."""
    need(compiler)
    source, library = tmp_path / "empty.cpp", tmp_path / "empty.so"
    source.write_text("")
    link_flags = settings_of_the_build()["LINK_FLAGS"]
    run([compiler, flag, "-shared", "-fPIC", source, "-o", library, *link_flags])
    run([sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(library)!r}); {KEEPS_DENORMALS}"])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x86-64 processor")
def test_x87_arithmetic_is_overruled_or_refused() -> None:
    need("g++")
    source = str(KERNELS / "runtime" / "dispatch.cpp")
    run(["g++", "-mfpmath=387", *compile_flags(), "-fsyntax-only", source])
    refused = ["g++", *compile_flags(), "-mfpmath=387", "-fsyntax-only", source]
    done = subprocess.run(refused, capture_output=True, text=True)
    assert done.returncode == 1
    assert "compile without -mfpmath=387" in done.stderr


@pytest.mark.parametrize("compiler", COMPILERS)
def test_compilers_accept_the_dispatcher(compiler: str) -> None:
    """Clang 14 to 16 do not know every feature of a processor by name."""
    need(compiler)
    source = str(KERNELS / "runtime" / "dispatch.cpp")
    run([compiler, *compile_flags(), "-Wall", "-Werror", "-fsyntax-only", source])


OVERFLOWS = """
#include "math/float_mass.hpp"
using namespace fastsample::FASTSAMPLE_ISA;
int main() {
  volatile float logit = 129.0f;  // 2^128: a lane past the end of a list may hold it
  const bool infinite = float_mass_of({0.0f, 1.0f}, logit) == kInfinity;
  const Pack large = each([&](int) { return fill(logit); });
  SpanMass mass;
  for (int i = 0; i < 50; ++i) mass.add({large, large});
  return mass.total() + infinite == 0;
}
"""


def test_sums_that_may_wrap_are_unsigned(tmp_path: Path) -> None:
    need("g++")
    source, program = tmp_path / "overflows.cpp", tmp_path / "overflows"
    source.write_text(OVERFLOWS)
    sanitize = ["-fsanitize=signed-integer-overflow,shift", "-fsanitize-undefined-trap-on-error"]
    names = [f"-I{KERNELS}", "-DFASTSAMPLE_ISA=baseline"]
    run(["g++", "-std=c++17", "-O0", *sanitize, *names, source, "-o", program])
    run([program])


# ---------------------------------------------------------------- in minutes


def build(folder: Path, **variables: str) -> None:
    """Build the package into a folder."""
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "src" / "fastsample", folder / "fastsample", ignore=ignored)
    command = [sys.executable, "setup.py", "--quiet", "build_ext"]
    run([*command, "--build-lib", folder, "--build-temp", folder / "temp"], **variables)


def check_bits(folder: Path) -> None:
    """Hold the package of a folder to the reference and to the golden files."""
    python = [sys.executable, "-W", "ignore"]
    variables = {"PYTHONPATH": str(folder)}
    path = run(
        [*python, "-c", "from fastsample import _native; print(_native.__file__)"], **variables
    )
    assert Path(path).is_relative_to(folder)
    run([*python, "-c", f"import fastsample._native; {KEEPS_DENORMALS}"], **variables)
    run([*python, "-m", "fastsample", "verify", "--quick"], **variables)
    tests = ["-p", "no:cacheprovider", "-k", "native", "tests/engines/test_golden.py"]
    assert " passed" in run([*python, "-m", "pytest", "-q", *tests], **variables)


@pytest.mark.nightly
@pytest.mark.parametrize("compiler", COMPILERS[1:])
def test_bits_of_clang(compiler: str, tmp_path: Path) -> None:
    need(compiler)
    build(tmp_path, CC=compiler.replace("++", ""), CXX=compiler)
    check_bits(tmp_path)


@pytest.mark.nightly
@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x86-64 processor")
def test_bits_under_hostile_flags(tmp_path: Path) -> None:
    need("g++")
    flags = "-Ofast -ffast-math -mfpmath=387 -march=native"
    build(tmp_path, CC="gcc", CXX="g++", CFLAGS=flags, CXXFLAGS=flags)
    check_bits(tmp_path)
