"""Processors that we lack: golden files and a slice of the oracle give the same bits on them.

Our own kernels and NumPy run emulated. Numba and torch make or choose their code for the processor:
they are set to do so for the other one, whose instructions this one has too, and run natively.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.support import golden_checks, golden_distinct, golden_races
from tests.support.isa_programs import FLAGS
from tests.support.subprocess_kernels import SubprocessEngine, compile_kernels

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.nightly


def need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")


# ---------------------------------------------------------------- x86-64, Python and all

SLICE = [
    *("tests/engines/test_golden.py", "tests/engines/test_reduction_golden.py"),
    *("tests/engines/test_oracle.py", "tests/engines/test_dtypes.py"),
    *("tests/engines/test_golden_races.py", "tests/engines/test_golden_distinct.py"),
]
LEFT_OUT = "not border and not wide and not every_bit"


def numpy_dispatch() -> str:
    """NumPy's own kernels beyond its baseline: QEMU 7.2 runs its AVX2 argsort wrongly."""
    try:
        found = import_module("numpy._core._multiarray_umath")
    except ModuleNotFoundError:  # NumPy 1
        found = import_module("numpy.core._multiarray_umath")
    return " ".join(found.__cpu_dispatch__)


def run(*command: str, **variables: str) -> str:
    """What a command prints that must succeed."""
    environment = {**os.environ, **variables}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x86-64 processor")
TESTS = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not nightly"]


@x86_64
@pytest.mark.parametrize(("cpu", "isa"), [("Haswell", "x86-64-v3"), ("Nehalem", "baseline")])
def test_python_on_another_x86(cpu: str, isa: str, tmp_path: Path) -> None:
    pytest.importorskip("fastsample._native")
    need("qemu-x86_64")
    hidden = 'import sys\nsys.modules["numba"] = sys.modules["torch"] = None\n'
    (tmp_path / "without.py").write_text(hidden)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    variables = {
        "NPY_DISABLE_CPU_FEATURES": numpy_dispatch(),
        "OPENBLAS_CORETYPE": cpu,  # NumPy's BLAS would choose AVX-512 on some machines
        "PYTHONPATH": path,
    }
    python = ["qemu-x86_64", "-cpu", cpu, sys.executable, "-W", "ignore::ImportWarning"]
    code = "import fastsample; print(fastsample.info()['isa'])"
    assert run(*python, "-c", code, **variables).strip() == isa
    quiet = ["-p", "without", "-W", "ignore::ImportWarning"]
    done = run(*python, *TESTS, *quiet, "-k", LEFT_OUT, *SLICE, **variables)
    assert " passed" in done.splitlines()[-1]


CODE_OF_A_LOOP = """
import numpy as np
from numba import njit
total = njit(lambda x: (x * 2).sum())
total(np.ones(64, np.float32))
print(*total.inspect_asm().values())
"""


def need_isa(isa: str) -> None:
    if isa not in pytest.importorskip("fastsample._native").isa_usable():
        pytest.skip(f"this machine cannot run {isa}")


@x86_64
@pytest.mark.parametrize(
    ("cpu", "isa", "registers"),
    [("haswell", "x86-64-v3", {"xmm", "ymm"}), ("nehalem", "baseline", {"xmm"})],
)
def test_numba_for_another_x86(cpu: str, isa: str, registers: set[str]) -> None:
    pytest.importorskip("numba")
    need_isa(isa)
    for_it = {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": "", "FASTSAMPLE_NUMBA_CACHE": "0"}
    code = run(sys.executable, "-c", CODE_OF_A_LOOP, **for_it)
    assert set(re.findall("[xyz]mm", code)) == registers
    done = run(sys.executable, *TESTS, "-k", "numba", *SLICE, **for_it)
    assert " passed" in done.splitlines()[-1]


@x86_64
@pytest.mark.torch
@pytest.mark.parametrize(("capability", "isa"), [("avx2", "x86-64-v3"), ("default", "baseline")])
def test_torch_for_another_x86(capability: str, isa: str) -> None:
    pytest.importorskip("torch")
    need_isa(isa)
    for_it = {"ATEN_CPU_CAPABILITY": capability}
    code = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    assert run(sys.executable, "-c", code, **for_it).strip() == capability.upper()
    done = run(sys.executable, *TESTS, "-k", "torch and not border and not wide", *SLICE, **for_it)
    assert " passed" in done.splitlines()[-1]


# ---------------------------------------------------------------- aarch64, the kernels alone


@pytest.fixture(scope="module", params=["neon", "baseline"])
def emulated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """Kernels of aarch64."""
    need("aarch64-linux-gnu-g++", "qemu-aarch64")
    folder = tmp_path_factory.mktemp(request.param)
    flags = [*FLAGS, "-pthread"]
    program = compile_kernels(folder, "aarch64-linux-gnu-g++", flags, request.param)
    command = ["qemu-aarch64", str(program), request.param]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield SubprocessEngine("native", process=process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    "check",
    [
        golden_checks.check_tokens,
        golden_checks.check_kept_sets,
        golden_checks.check_request_draws,
        golden_checks.check_request_kept_sets,
        golden_checks.check_request_logprobs,
        golden_checks.check_request_softmax,
        golden_checks.check_fixed_draws,
        golden_checks.check_fixed_logprobs,
        golden_checks.check_fixed_softmax,
        golden_races.check_races,
        golden_distinct.check_distinct,
    ],
)
def test_golden_bits_on_aarch64(emulated: SubprocessEngine, check) -> None:
    check(emulated)
