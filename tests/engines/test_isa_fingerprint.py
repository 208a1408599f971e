"""The kernels of every instruction set have one fingerprint, NEON under emulation too."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from tests.support.isa_programs import fingerprint

FINGERPRINT = "561b053019cfa9d4 1500299b0b6691e3\n14aa775555bd9e45 d4c506657c7465e3"
"""Pinned: it changes only with the rule, or with the rows and chains of isa_fingerprint.cpp."""


@pytest.mark.nightly
@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x86-64 processor")
@pytest.mark.parametrize(
    ("isa", "name", "flags"),
    [
        ("baseline", "baseline", []),
        ("x86_v3", "x86-64-v3", ["-march=x86-64-v3"]),
        ("x86_v4", "x86-64-v4", ["-march=x86-64-v4"]),
    ],
)
def test_x86(isa: str, name: str, flags: list[str], tmp_path: Path) -> None:
    native = pytest.importorskip("fastsample._native")
    if name not in native.isa_usable():
        pytest.skip(f"this machine cannot run {name}")
    assert fingerprint(tmp_path, "g++", isa, flags, []) == FINGERPRINT


@pytest.mark.nightly
def test_neon_under_emulation(tmp_path: Path) -> None:
    compiler, emulator = "aarch64-linux-gnu-g++", "qemu-aarch64"
    assert fingerprint(tmp_path, compiler, "neon", [], [emulator]) == FINGERPRINT
