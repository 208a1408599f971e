"""A loop of calls: what it measures of itself, what it leaves in memory, and what it loads."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastsample import Sampler, sample
from tests.support.engines import Engine, native
from tests.support.prepared_calls import ByDlpack
from tests.support.sampler_steps import PARAMS, PENALISED, STEPS

CALLS = 100_000
ROW = np.random.default_rng(2).normal(size=16).astype(np.float32)
ROWS = np.random.default_rng(3).normal(size=(4, 16)).astype(np.float32)

# ---------------------------------------------------------------- memory


def history(sampler: Sampler) -> int:
    """Bytes that the sampler's own tokens take: 4 each, and room for some more."""
    return sum(sys.getsizeof(sampler.sequence(n)._state) for n in sampler.ids)


def a_loop(name: str) -> tuple[Callable[[int], Any], Callable[[], int]]:
    """A call for a position, and what its history takes."""
    if name == "sample(row)":
        return lambda i: sample(ROW, temperature=0.8, top_k=4, seed=1, position=i), lambda: 0
    sampler = Sampler(temperature=0.8, top_k=4, seed=1, stream="row", measure=True)
    logits = ROW if name == "sampler(row)" else ROWS
    sampler(logits)
    return lambda _: sampler(logits), lambda: history(sampler)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


LOOPS = ["sampler(row)", "sampler(batch)", "sample(row)"]


@pytest.mark.skipif(native is None, reason="fastsample._native is not built")
@pytest.mark.parametrize("name", LOOPS)
def test_calls_leave_nothing_behind(name: str) -> None:
    call, own = a_loop(name)
    for i in range(2_000):
        call(i)
    tracemalloc.start()
    try:
        for i in range(CALLS):
            call(i)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after < own() + 4_096
    assert peak < own() + 8_192


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
@pytest.mark.skipif(native is None, reason="fastsample._native is not built")
@pytest.mark.parametrize("name", LOOPS)
def test_calls_leave_no_page_behind(name: str) -> None:
    call, own = a_loop(name)
    for i in range(2_000):
        call(i)
    before = resident()
    for i in range(CALLS):
        call(i)
    # An array that grows may leave its last place behind, which was two thirds as large.
    assert resident() - before < 2 * own() + 2**19


# ---------------------------------------------------------------- latency


def measured(engine: Engine, **how: Any) -> Sampler:
    return Sampler(PARAMS, stream="row", engine=engine.name, isa=engine.isa, measure=True, **how)


def test_every_call_is_counted(engine: Engine) -> None:
    sampler, plain = (
        measured(engine),
        Sampler(PARAMS, stream="row", engine=engine.name, isa=engine.isa),
    )
    for i, logits in enumerate(STEPS[:4]):
        bias = {3: 1.0} if i % 2 else None
        assert sampler(logits, bias=bias).tolist() == plain(logits, bias=bias).tolist()
    sampler.sample(STEPS[4], logprobs=2)
    assert (sampler.latency.count, sampler.latency.tokens) == (5, 20)
    assert 0 < sampler.latency.p50 <= sampler.latency.max < 60e9
    sampler.latency.reset()
    sampler(STEPS[5])
    assert (sampler.latency.count, sampler.latency.tokens) == (1, 4)


def test_calls_that_fail_and_rows_that_are_marked_are_not_counted(engine: Engine) -> None:
    sampler = measured(engine)
    spoilt = STEPS[0].copy()
    spoilt[2, 5] = np.nan
    for _ in range(2):
        with pytest.raises(ValueError, match="row 2 holds nan"):
            sampler(spoilt)
        sampler(STEPS[0])
    with pytest.raises(ValueError, match="must have 4 rows"):
        sampler(STEPS[0, :3])
    assert (sampler.latency.count, sampler.latency.tokens) == (2, 8)
    sampler.sample(spoilt, on_invalid="mark")
    assert (sampler.latency.count, sampler.latency.tokens) == (3, 11)


def test_penalised_calls_are_measured() -> None:
    sampler = Sampler(PENALISED, stream="row", measure=True)
    for logits in STEPS:
        sampler(logits)
    assert sampler.latency.count == len(STEPS)


@pytest.mark.parametrize(
    "duplicate", [Sampler.clone, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
)
def test_a_copy_measures_for_itself(duplicate: Callable[[Sampler], Sampler]) -> None:
    sampler = Sampler(PARAMS, stream="row", measure=True)
    sampler(STEPS[0])
    twin = duplicate(sampler)
    assert (sampler.latency.count, twin.latency.count) == (1, 0)
    twin(STEPS[1])
    twin(STEPS[2])
    assert (sampler.latency.count, twin.latency.count) == (1, 2)


class SlowByDlpack(ByDlpack):
    """Logits whose memory takes a while to get."""

    SECONDS = 0.02

    def __dlpack__(self, **keywords: Any) -> Any:
        time.sleep(self.SECONDS)
        return super().__dlpack__(**keywords)


@pytest.mark.parametrize("name", ["call", "sample", "sample with margins"])
def test_a_call_is_measured_from_its_start(engine: Engine, name: str) -> None:
    """The compiled step declines such logits at first: what it took until then counts too."""
    sampler, logits = measured(engine), SlowByDlpack(STEPS[0])
    sampler(STEPS[0])
    sampler.latency.reset()
    calls: dict[str, Callable[[], object]] = {
        "call": lambda: sampler(logits),
        "sample": lambda: sampler.sample(logits, logprobs=1),
        "sample with margins": lambda: sampler.sample(logits, margin=True),
    }
    before = time.perf_counter_ns()
    calls[name]()
    outside = time.perf_counter_ns() - before
    assert SlowByDlpack.SECONDS * 1e9 <= sampler.latency.max <= outside


def test_nothing_is_measured_by_default() -> None:
    sampler = Sampler(PARAMS, stream="row")
    sampler(STEPS[0])
    assert not hasattr(sampler, "latency")
    assert not hasattr(sampler.clone(), "latency")


def test_compiled_code_fills_the_same_buckets() -> None:
    """Times from half a microsecond to some milliseconds: the sums must fit the buckets."""
    sampler = Sampler(top_p=0.99, seed=1, measure=True, n_threads=1)
    for exponent in range(1, 19):
        row = np.random.default_rng(exponent).normal(size=2**exponent).astype(np.float32)
        sampler(row)
        sampler.latency.reset()
        for _ in range(20):
            sampler(row)
        latency = sampler.latency
        counts, edges = latency.histogram()
        assert counts.sum() == latency.count == latency.tokens == 20
        assert (counts * edges[:-1]).sum() <= latency.mean * 20 <= (counts * edges[1:]).sum()
        assert edges[-2] <= latency.max < edges[-1]


# ---------------------------------------------------------------- what is loaded

SLOW = (
    *("torch", "numba", "triton", "typer", "rich", "matplotlib", "ml_dtypes"),
    *("hashlib", "hmac", "secrets", "random", "inspect", "subprocess", "json", "asyncio"),
    *("importlib.metadata", "multiprocessing", "concurrent.futures", "numpy.testing"),
    *("ctypes", "select", "signal", "pickle", "tempfile", "uuid"),
    *("fastsample.cli", "fastsample.engines.reference.engine", "fastsample.verification.run"),
)


def test_import_loads_nothing_slow() -> None:
    """What NumPy loads itself is no cost of ours; and dataclasses need inspect."""
    question = (
        "import dataclasses, json, numpy, sys; before = set(sys.modules); import fastsample; "
        f"print(json.dumps(sorted((set(sys.modules) - before) & set({SLOW!r}))))"
    )
    answer = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True)
    assert (answer.stderr, json.loads(answer.stdout)) == ("", [])
