"""What the package declares, what it carries, and what its objects may not contain."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import platform
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import fastsample
from tests.support.build_settings import KERNELS, compile_flags, settings_of_the_build

ROOT = Path(__file__).resolve().parents[2]
OPTIONAL = ("torch", "numba", "triton", "typer", "rich", "matplotlib", "threadpoolctl")
FUSED = re.compile(r"\bv?fn?m(?:add|sub)|\bfml[as]\b")


def metadata() -> importlib.metadata.PackageMetadata:
    try:
        return importlib.metadata.metadata("fastsample")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("fastsample is imported from its sources, not installed")


# ---------------------------------------------------------------- what is declared


def test_numpy_is_the_only_hard_dependency() -> None:
    metadata()
    requirements = importlib.metadata.requires("fastsample") or []
    hard = [re.split(r"[^\w-]", line)[0] for line in requirements if "extra ==" not in line]
    assert hard == ["numpy"]


def test_declared_version_is_the_version_of_the_module() -> None:
    assert metadata()["Version"] == fastsample.__version__


def test_declared_licence_and_python() -> None:
    declared = metadata()
    assert declared["License-Expression"] == "Apache-2.0"
    assert declared["Requires-Python"] == ">=3.10"
    assert declared.get_all("Provides-Extra") == ["cli", "numba", "torch", "triton", "plot", "dev"]


def test_licence_text_is_in_the_package() -> None:
    metadata()
    text = importlib.metadata.distribution("fastsample").read_text("licenses/LICENSE")
    assert text is not None
    assert "Apache License" in text


def test_the_command_is_declared() -> None:
    metadata()
    commands = importlib.metadata.entry_points(group="console_scripts", name="fastsample")
    assert [command.value for command in commands] == ["fastsample.__main__:main"]


# ---------------------------------------------------------------- what it carries


@pytest.mark.parametrize(
    "name", ["py.typed", "_native.pyi", "cli/demo_data/rows.npy", "cli/demo_data/texts.json"]
)
def test_data_is_installed(name: str) -> None:
    assert importlib.resources.files("fastsample").joinpath(name).is_file()


def test_import_loads_nothing_optional() -> None:
    question = f"import fastsample, sys; print([n for n in {OPTIONAL} if n in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True)
    assert (answer.stdout.strip(), answer.stderr) == ("[]", "")


def test_rule_page_states_the_constants_of_the_reference() -> None:
    page = ROOT / "docs" / "rule.md"
    if not page.exists():
        pytest.skip("docs/rule.md is not next to the tests")
    stated = set(re.findall(r"0x[0-9a-f.]+(?:p[+-]?\d+)?", page.read_text().lower()))
    folder = importlib.resources.files("fastsample").joinpath("engines/reference")
    sources = [path for path in folder.iterdir() if path.name.endswith(".py")]
    source = "".join(path.read_text(encoding="utf-8") for path in sources).lower()
    assert len(stated) == 20
    assert sorted(constant for constant in stated if constant not in source) == []


# ---------------------------------------------------------------- what its objects may not contain


def tool(*names: str) -> str:
    for name in names:
        if found := shutil.which(name):
            return found
    pytest.skip(f"needs one of {', '.join(names)}")


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Objects of the kernels, one per instruction set, compiled with the flags of setup.py.

    All but `add_exact_product`: what it fuses has one rounding either way.
    """
    isas = settings_of_the_build()["instruction_sets"]()
    flags = [*compile_flags(), "-DFASTSAMPLE_NEVER_FUSE", "-c"]
    folder, compiler = tmp_path_factory.mktemp("objects"), tool("c++", "g++", "clang++")
    source = str(KERNELS / "simd" / "isa.cpp")

    def compiled(isa: Any) -> Path:
        target = folder / f"{isa.namespace}.o"
        name = f"-DFASTSAMPLE_ISA={isa.namespace}"
        command = [compiler, *flags, *isa.flags, name, source, "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return target

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(compiled, isas))


def test_an_object_per_instruction_set(objects: list[Path]) -> None:
    names = {path.stem for path in objects}
    expected = {
        "x86_64": {"baseline", "x86_v3", "x86_v4"},
        "aarch64": {"baseline", "neon"},
    }
    assert names == expected.get(platform.machine(), {"baseline"})


def test_no_symbol_is_shared_between_instruction_sets(objects: list[Path]) -> None:
    """The linker keeps one copy of a weak symbol: AVX-512 code could end up in the baseline."""
    nm = tool("nm")
    for path in objects:
        lines = subprocess.check_output([nm, "-C", path], text=True).splitlines()
        assert [line for line in lines if re.search(r"\s[WVu]\s", line)] == [], path


def test_no_multiply_and_add_is_fused(objects: list[Path]) -> None:
    objdump = tool("objdump")
    for path in objects:
        code = subprocess.check_output([objdump, "-d", "--no-show-raw-insn", path], text=True)
        assert [line for line in code.splitlines() if FUSED.search(line)] == [], path
