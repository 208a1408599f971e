"""The processor's rounding and flush-to-zero modes, which any library of a process may set."""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from unittest import mock

from fastsample.verification import flush

X86 = {"nearest": 0, "down": 0x400, "up": 0x800, "zero": 0xC00}
ARM = {"nearest": 0, "up": 0x400000, "down": 0x800000, "zero": 0xC00000}
MODES = {"x86_64": X86, "aarch64": ARM, "arm64": ARM}.get(platform.machine())
LIBRARY = ctypes.util.find_library("m")
KNOWN = MODES is not None and LIBRARY is not None
"""Whether the mode can be set here."""


@contextmanager
def rounding(mode: str) -> Iterator[None]:
    """Round "down", "up" or to "zero" within the block."""
    set_mode = ctypes.CDLL(LIBRARY).fesetround
    assert set_mode(MODES[mode]) == 0
    try:
        yield
    finally:
        set_mode(MODES["nearest"])


@contextmanager
def _flushing(bit: int) -> Iterator[None]:
    with mock.patch.dict(flush._FLUSH_BITS, {"x86_64": (7, bit)}), flush.flushing() as is_on:
        assert is_on or platform.machine() != "x86_64"
        yield


flushing_results = partial(_flushing, 0x8000)
"""On x86-64, flush denormal results to zero within the block, but not denormal operands."""
flushing_operands = partial(_flushing, 0x40)
"""On x86-64, read denormal operands as zero within the block, but do not flush results."""
