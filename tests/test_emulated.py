"""Processors that we lack, emulated: golden files and a slice of the oracle give the same bits."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import test_golden
import test_reduction_golden
from piped import Piped, compile_kernels
from test_isa_fingerprint import FLAGS

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.nightly


def need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")


# ---------------------------------------------------------------- x86-64, Python and all

SLICE = [
    *("tests/test_golden.py", "tests/test_reduction_golden.py"),
    *("tests/test_oracle.py", "tests/test_dtypes.py"),
]
LEFT_OUT = "not 200k"


def numpy_dispatch() -> str:
    """NumPy's own kernels beyond its baseline: QEMU 7.2 runs its AVX2 argsort wrongly."""
    try:
        found = import_module("numpy._core._multiarray_umath")
    except ModuleNotFoundError:  # NumPy 1
        found = import_module("numpy.core._multiarray_umath")
    return " ".join(found.__cpu_dispatch__)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="runs this machine's own Python")
@pytest.mark.parametrize(("cpu", "isa"), [("Haswell", "x86-64-v3"), ("Nehalem", "baseline")])
def test_python_on_another_x86(cpu: str, isa: str) -> None:
    pytest.importorskip("fastsample._native")
    need("qemu-x86_64")
    emulated = ["qemu-x86_64", "-cpu", cpu, sys.executable, "-W", "ignore::ImportWarning"]
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": numpy_dispatch()}

    def run(*arguments: str) -> str:
        told = subprocess.run(
            [*emulated, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert told.returncode == 0, told.stdout[-4000:] + told.stderr[-4000:]
        return told.stdout

    assert run("-c", "import fastsample; print(fastsample.info()['isa'])").strip() == isa
    quiet = ["-q", "-p", "no:cacheprovider", "-W", "ignore::ImportWarning"]
    told = run("-m", "pytest", *quiet, "-m", "not nightly", "-k", LEFT_OUT, *SLICE)
    assert " passed" in told.splitlines()[-1]


# ---------------------------------------------------------------- aarch64, the kernels alone


@pytest.fixture(scope="module", params=["neon", "baseline"])
def emulated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """Kernels of aarch64."""
    need("aarch64-linux-gnu-g++", "qemu-aarch64")
    folder = tmp_path_factory.mktemp(request.param)
    flags = [*FLAGS, "-pthread"]
    program = compile_kernels(folder, "aarch64-linux-gnu-g++", flags, ["baseline", "neon"])
    command = ["qemu-aarch64", str(program), request.param]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Piped("native", process=process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    "hold",
    [
        test_golden.test_tokens,
        test_golden.test_kept_sets_and_masses,
        test_golden.test_draws_of_jobs,
        test_golden.test_kept_sets_of_jobs,
        test_golden.test_log_probabilities_of_jobs,
        test_golden.test_softmax_and_its_kin_of_jobs,
        test_reduction_golden.test_fixed_draws,
        test_reduction_golden.test_fixed_log_probabilities,
        test_reduction_golden.test_fixed_softmax_and_its_kin,
    ],
)
def test_golden_bits_on_aarch64(emulated: Piped, hold) -> None:
    hold(emulated)
