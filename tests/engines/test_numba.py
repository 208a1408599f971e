"""What is the Numba engine's own: when it is taken, how its loops are compiled, its wide cuts.

That its answers are the reference's is in the tests that every engine meets.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import fastsample
from fastsample import engines
from tests.support.engines import (
    NATIVE,
    Engine,
    differing,
    make_output,
    make_plan,
    make_request,
    without_modules,
)

numba = pytest.importorskip("numba")
if not engines.is_installed("numba"):
    pytest.skip("the engine does not know this processor's float mode", allow_module_level=True)

# Numba is there: what is imported here needs it.
from fastsample.engines.numba import engine as loops  # noqa: E402
from fastsample.engines.numba.row import Row  # noqa: E402

NUMBA, REFERENCE = Engine("numba"), Engine("reference")
FUSED = re.compile(r"\bv?fn?m(?:add|sub)|\bfml[as]\b")
TYPES_OF_LOOPS = """
import numpy as np
from fastsample import log_softmax, sample, softmax
from fastsample.engines.numba import clocks, draw, fixed, float_mode, mass, ordinal, race
rows = np.random.default_rng(0).normal(size=(3, 5000)).astype(np.float32)
frozen = rows.copy()
frozen.flags.writeable = False
for logits in (rows, frozen, rows[:, ::2], rows.astype(np.float16), rows[0]):
    for how in ({}, {"temperature": 0.5, "top_k": 50, "top_p": 0.9, "min_p": 0.1},
                {"top_p": 0.999}, {"top_p": 0.9999, "temperature": 0.2},
                {"top_k": 4000, "min_keep": 2000}, {"temperature": 0},
                {"typical_p": 0.3, "top_n_sigma": 2.5}, {"typical_p": 0.9, "epsilon_cutoff": 0.1}):
        for place in ({"seed": 1, "position": 0}, {"seed": 2**64 - 1, "position": 2**64 - 1}):
            for method, reduction in (("race", "exact"), ("inverse", "exact"), (None, "fixed")):
                sample(logits, **how, **place, stream="row", logprobs=2, draw=method,
                       logprobs_mode=("raw", "processed"), reduction=reduction, engine="numba")
    for reduction in ("exact", "fixed"):
        softmax(logits, reduction=reduction, engine="numba")
        log_softmax(logits, reduction=reduction, engine="numba")
for module in (clocks, draw, fixed, float_mode, mass, ordinal, race):
    for name, loop in vars(module).items():
        if hasattr(loop, "nopython_signatures") and loop.__module__ == module.__name__:
            print(module.__name__, name, len(loop.nopython_signatures))
"""


# ---------------------------------------------------------------- when it is taken


@pytest.mark.parametrize(
    ("absent", "name"),
    [((), "native"), ((NATIVE,), "numba"), ((NATIVE, "numba"), "reference")],
)
def test_auto_takes_the_fastest_that_is_there(absent: tuple[str, ...], name: str) -> None:
    if not absent and not engines.is_installed("native"):
        pytest.skip("fastsample._native is not built")
    with without_modules(*absent):
        assert engines.resolve().name == engines.resolve("auto").name == name


def test_without_the_extension_calls_go_through() -> None:
    rows = np.random.default_rng(1).normal(size=(4, 700)).astype(np.float32)
    how: dict[str, Any] = {"top_p": 0.9, "seed": 3, "position": 5, "stream": "row"}
    expected = fastsample.sample(rows, **how, engine="reference").tokens
    with without_modules(NATIVE):
        assert fastsample.sample(rows, **how).tokens.tolist() == expected.tolist()


# ---------------------------------------------------------------- how loops are compiled


def run(code: str, **environment: str) -> str:
    path = str(Path(fastsample.__file__).parent.parent)
    variables = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.check_output([sys.executable, "-c", code], text=True, env=variables)


def test_every_loop_is_compiled_once() -> None:
    """Neither writable rows nor large seeds make another type, which would cost seconds."""
    counts = dict(line.rsplit(" ", 1) for line in run(TYPES_OF_LOOPS).splitlines())
    assert {name: count for name, count in counts.items() if count != "1"} == {}
    assert len(counts) > 20


def test_no_multiply_and_add_is_fused() -> None:
    from fastsample.engines.numba import clocks, fixed, mass, race
    from fastsample.engines.numba import draw as draws

    rows = np.random.default_rng(2).normal(size=(1, 5000)).astype(np.float32)
    for mode in ("exact", "fixed"):
        fastsample.softmax(rows, engine="numba", reduction=mode)
        for top_p in (0.5, 0.9999):
            for temperature in (1.0, 0.2):
                how = {"top_p": top_p, "temperature": temperature, "reduction": mode}
                fastsample.sample(rows, **how, engine="numba")
                fastsample.sample(rows, **how, typical_p=0.5, top_n_sigma=2.0, engine="numba")
    for how in ({}, {"top_k": 50}):
        fastsample.sample(rows, **how, draw="race", engine="numba")
    loops = {mass.running_mass, mass.write_powers, draws.draw}
    loops |= {fixed.running_sum, fixed.draw_floats}
    loops |= {race._draw, clocks.clock_of_token, clocks.write_arrivals}
    for loop in loops:
        assert loop.nopython_signatures
        for code in loop.inspect_asm().values():
            assert [line for line in code.splitlines() if FUSED.search(line)] == []


@pytest.mark.parametrize("cache", ["0", "1"])
def test_no_numba_cache_by_default(cache: str, tmp_path: Path) -> None:
    code = "import fastsample, numpy as np; fastsample.sample(np.zeros(9, 'f4'), engine='numba')"
    run(code, FASTSAMPLE_NUMBA_CACHE=cache, NUMBA_CACHE_DIR=str(tmp_path))
    assert any(tmp_path.rglob("*.nbi")) == (cache == "1")


# ---------------------------------------------------------------- cuts far from the top


ROWS = {
    "one value": lambda rng, size: np.full(size, 2.5),
    "few values": lambda rng, size: rng.integers(-2, 3, size) / 2,
    "around 0": lambda rng, size: rng.choice([-(2.0**-126), -1e-40, -0.0, 1e-40, 2.0**-126], size),
    "one block": lambda rng, size: np.where(np.arange(size) // 128 == 1, 5.0, -5.0),
    "half banned": lambda rng, size: rng.choice([1.0, 2.0, 3.0, -np.inf, -np.inf], size),
    "normal": lambda rng, size: rng.normal(size=size) * 3,
}
CUTS: list[dict[str, Any]] = [
    *({"top_k": k} for k in (1, 39, 40, 41, 2500, 4999)),
    *({"top_p": p} for p in (0.01, 0.5, 0.9, 0.99999)),
    {"top_k": 3000, "top_p": 0.7, "temperature": 1.7},
    {"min_p": 1e-6, "top_p": 0.9, "stages": ("min_p", "temperature", "top_p"), "temperature": 0.3},
    {"top_p": 0.1, "min_p": 0.9, "min_keep": 4000},
    *({"typical_p": p} for p in (0.01, 0.5, 0.99999)),
    {"typical_p": 0.2, "min_keep": 3000},
    {"top_k": 3000, "typical_p": 0.7, "top_p": 0.9, "temperature": 1.7},
    {"top_n_sigma": 1.5, "epsilon_cutoff": 1e-4},
]


@pytest.mark.parametrize("kind", ROWS)
def test_cuts_of_many_tokens(kind: str) -> None:
    rng = np.random.default_rng(3)
    row = ROWS[kind](rng, 5000).astype(np.float32)
    rows = np.broadcast_to(row, (len(CUTS), len(row)))
    plan = np.concatenate([make_plan(1, **how, seed=n) for n, how in enumerate(CUTS)])
    request = make_request(rows, plan)
    expected, found = (
        engine.run(request, make_output(len(rows), modes=("raw", "processed"), top_count=4000))
        for engine in (REFERENCE, NUMBA)
    )
    assert differing(expected, found) == []
    assert differing(REFERENCE.kept_sets(request), NUMBA.kept_sets(request)) == []


# ---------------------------------------------------------------- rows that are written meanwhile


LOOKS = ("mass", "masses", "keys", "count", "draw", "first", "sort_key_of_token")
OTHER_LOGITS: dict[str, Any] = {
    "nothing": -np.inf,
    "nan": np.nan,
    "infinities": np.inf,
    "one value": 0.5,
    "deeper": np.linspace(-60, -50, 5000, dtype=np.float32),
    "higher": np.linspace(20, 60, 5000, dtype=np.float32),
}


def changing(kind: type[Row], place: int, logits: Any) -> type[Row]:
    """A kind of row whose memory gets other logits at the n-th look at it after the first."""

    class Changing(kind):  # type: ignore[misc, valid-type]
        def __init__(self, memory: np.ndarray) -> None:
            super().__init__(memory)
            self.memory, self.left = memory, place

    def look(name: str) -> Any:
        def looked(self: Any, *given: Any, **options: Any) -> Any:
            if self.left == 0:
                self.memory[:] = logits
            self.left -= 1
            return getattr(kind, name)(self, *given, **options)

        return looked

    for name in LOOKS:
        setattr(Changing, name, look(name))
    return Changing


@pytest.mark.parametrize("logits", OTHER_LOGITS)
@pytest.mark.parametrize("reduction", ["exact", "fixed"])
def test_a_row_written_during_a_call_gets_one_of_its_tokens(reduction: str, logits: str) -> None:
    """Any token, but no error, and none outside the vocabulary."""
    for how, place in itertools.product(CUTS, range(12)):
        rows = np.random.default_rng(5).normal(0, 3, (1, 5000)).astype(np.float32)
        request = make_request(rows, make_plan(1, **how), 5000, reduction)
        kinds = {reduction: changing(loops._ROWS[reduction], place, OTHER_LOGITS[logits])}
        with mock.patch.dict(loops._ROWS, kinds):
            out = NUMBA.run(request, make_output(1, modes=("raw", "processed"), top_count=3))
        assert out.status.tolist() == [0]
        assert 0 <= out.tokens[0, 0] < 5000, (how, place)
        assert np.all((out.logprobs.top_tokens >= 0) & (out.logprobs.top_tokens < 5000))
