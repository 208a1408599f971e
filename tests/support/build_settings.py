"""What setup.py compiles with: its flags and its instruction sets, read without building."""

from __future__ import annotations

import functools
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"


@functools.cache
def settings_of_the_build() -> dict[str, Any]:
    """Return the names that setup.py defines, and build nothing; skip where they cannot be read."""
    if not (ROOT / "setup.py").exists():
        pytest.skip("setup.py is not next to the tests")
    setuptools = pytest.importorskip("setuptools", reason="needs setuptools to read setup.py")
    pytest.importorskip("Cython", reason="needs Cython to read setup.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setuptools, "setup", lambda **_: None)
        return runpy.run_path(str(ROOT / "setup.py"))


def compile_flags() -> list[str]:
    """Return the flags of every source, and the include path."""
    return [*settings_of_the_build()["COMPILE_FLAGS"], f"-I{KERNELS}"]
