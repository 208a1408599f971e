"""The bits of random words, clocks and times in the kernels of every instruction set.

A clock that is off in its last bit hardly ever draws another token: tokens alone do not show it.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fastsample.engines import reference
from fastsample.engines.reference.clocks import clock, in_steps
from fastsample.engines.reference.draw import ARRIVAL, CLOCK, words
from tests.support.build_settings import compile_flags, settings_of_the_build
from tests.support.engines import native
from tests.support.golden_races import clocks as golden_clocks
from tests.support.isa_programs import FLAGS, compile_program
from tests.support.race_cases import random_place

NEAR, FAR_WORD = 1.5e-4, 2**15
"""kNearClock and kFarWord of kernels/math/clocks.hpp."""

COUNT = 100_000
ENDS = (0, 1, 2**12 - 1, 2**12, 2**47 - 1, 2**47, 2**63 - 1, 2**63, 2**64 - 2**12, 2**64 - 1)


class Answer(NamedTuple):
    """What race_times.cpp answers."""

    low: np.ndarray
    high: np.ndarray
    clocks: np.ndarray
    steps: np.ndarray
    times: np.ndarray
    near: np.ndarray


class Program:
    """The kernels of one instruction set behind a pipe."""

    def __init__(self, command: list[str]) -> None:
        self.command = command

    def ask(
        self,
        place: reference.Place,
        purpose: int,
        indices: np.ndarray,
        given: np.ndarray,
        masses: np.ndarray | None = None,
        floor: int = 0,
    ) -> Answer:
        """Words at some indices, clocks of the given words, and times of tokens with masses."""
        count = len(indices)
        rates = np.ones(count, np.uint64) if masses is None else masses
        header = struct.pack("<5Qq", *place, purpose, floor, count)
        question = b"".join((header, *(one.tobytes() for one in (indices, rates, given))))
        found = subprocess.run(self.command, input=question, check=True, capture_output=True).stdout
        kinds = [np.dtype(kind) for kind in "QQdQdf"]
        ends = np.cumsum([kind.itemsize * count for kind in kinds]).tolist()
        assert len(found) == ends[-1]
        parts = zip([0, *ends], ends, kinds, strict=False)
        return Answer(*(np.frombuffer(found[start:end], kind) for start, end, kind in parts))


def check(program: Program) -> None:
    """Random words of any place, clocks of any words, times at any rates: the reference's bits."""
    rng = np.random.default_rng(8)
    for purpose, most in ((CLOCK, 2**22), (ARRIVAL, 2**15)):
        place = random_place(rng)
        indices = rng.integers(0, most, COUNT + 5, dtype=np.uint64)
        given = rng.integers(0, 2**64, len(indices), dtype=np.uint64)
        given >>= rng.integers(0, 60, len(given), dtype=np.uint64)  # late clocks as well
        given[: len(ENDS)] = ENDS
        masses = rng.integers(2**39, 2**40, len(given), endpoint=True, dtype=np.uint64)
        floor = int(rng.integers(0, 2**39))
        found = program.ask(place, purpose, indices, given, masses, floor)
        low, high = words(*place, purpose, indices)
        assert (found.low.tobytes(), found.high.tobytes()) == (low.tobytes(), high.tobytes())
        exact = clock(given)
        assert found.clocks.tobytes() == exact.tobytes()
        assert (found.steps * 2.0**-32).tobytes() == in_steps(exact).tobytes()
        low, _ = words(*place, CLOCK, indices)
        times = clock(low) / (masses - np.uint64(floor)).astype(np.float64)
        assert found.times.tobytes() == times.tobytes()
        has_near = given >> np.uint64(32) >= FAR_WORD
        assert np.abs(found.near - exact)[has_near].max() < NEAR
        assert exact[~has_near].min() > 11
    check_golden_clocks(program)


def check_golden_clocks(program: Program) -> None:
    for case in golden_clocks():
        place = reference.Place(*(int(case[name]) for name in reference.Place._fields))
        index, k = (np.array([case[name]], np.uint64) for name in ("index", "k"))
        found = program.ask(place, int(case["purpose"]), index, k)
        answer = {
            "k": int(found.low[0]),
            "point": int(found.high[0]),
            "clock": float(found.clocks[0]).hex(),
            "steps": int(found.steps[0]),
        }
        assert answer == {name: case[name] for name in answer}, case


ISAS = {"baseline": "baseline", "x86_v3": "x86-64-v3", "x86_v4": "x86-64-v4", "neon": "neon"}


@pytest.mark.skipif(native is None, reason="fastsample._native is not built")
@pytest.mark.parametrize("namespace", ISAS)
def test_times_have_the_bits_of_the_reference(namespace: str, tmp_path: Path) -> None:
    """Compiled with the flags of setup.py."""
    isas = {isa.namespace: isa.flags for isa in settings_of_the_build()["instruction_sets"]()}
    if ISAS[namespace] not in native.isa_usable():
        pytest.skip(f"this machine cannot run {ISAS[namespace]}")
    flags = [*compile_flags(), *isas[namespace]]
    check(Program([str(compile_program(tmp_path, "race_times.cpp", "g++", namespace, flags))]))


@pytest.mark.nightly
def test_neon_under_emulation(tmp_path: Path) -> None:
    emulator = "qemu-aarch64"
    if shutil.which(emulator) is None:
        pytest.skip(f"needs {emulator}")
    compiler = "aarch64-linux-gnu-g++"
    program = compile_program(tmp_path, "race_times.cpp", compiler, "neon", FLAGS)
    check(Program([emulator, str(program)]))


@pytest.mark.skipif(native is None, reason="fastsample._native is not built")
def test_a_fused_operation_is_found(tmp_path: Path) -> None:
    """The control: the same kernels, compiled so that the compiler may fuse."""
    if "x86-64-v3" not in native.isa_usable():
        pytest.skip("this machine cannot run x86-64-v3")
    flags = [*FLAGS, "-march=x86-64-v3", "-ffp-contract=fast"]
    program = compile_program(tmp_path, "race_times.cpp", "g++", "x86_v3", flags)
    given = np.random.default_rng(8).integers(0, 2**64, COUNT, dtype=np.uint64)
    found = Program([str(program)]).ask(
        reference.Place(1, 2, 3), CLOCK, given >> np.uint64(42), given
    )
    assert 0 < np.mean(found.clocks != clock(given)) < 0.1
