"""Interleaved timing: the order of calls, their rows, and what is counted."""

from __future__ import annotations

import os
import platform
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from fastsample import Latency
from fastsample.api.info import cpu_name
from fastsample.cli import interleave
from fastsample.cli.interleave import Sweep, load_average, time_after, time_interleaved, time_pass

ROWS = np.arange(8, dtype=np.float32)[:, np.newaxis]


def called(names: list[str], rows: np.ndarray = ROWS) -> list[tuple[str, int]]:
    """The calls of one pass, each with its row."""
    seen: list[tuple[str, int]] = []
    calls = {name: lambda row, name=name: seen.append((name, int(row[0]))) for name in names}
    time_pass(calls, rows, {name: Latency() for name in names})
    return seen


def test_calls_alternate() -> None:
    assert [name for name, _ in called(["a", "b"])] == ["a", "b"] * 8


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_each_call_gets_every_row_once(names: list[str]) -> None:
    seen = called(names)
    for name in names:
        assert sorted(row for caller, row in seen if caller == name) == list(range(8))


def test_no_call_gets_the_row_of_the_call_before() -> None:
    rows = [row for _, row in called(["a", "b"])]
    assert all(row != after for row, after in pairwise(rows))


def test_one_row_is_shared() -> None:
    assert called(["a", "b", "c"], ROWS[:1]) == [("a", 0), ("b", 0), ("c", 0)]


def test_the_first_pass_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10**6))
    monkeypatch.setattr(interleave.time, "perf_counter_ns", lambda: next(ticks))
    seen: list[int] = []
    latencies = time_interleaved({"a": lambda row: seen.append(1), "b": np.max}, ROWS, repeat=3)
    assert len(seen) == 8 * 4
    assert {name: latency.count for name, latency in latencies.items()} == {"a": 24, "b": 24}
    assert latencies["a"].max == latencies["b"].p50 == 1


def test_load_average_is_that_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.7, 0.2, 0.1))
    assert load_average() == 0.7


def test_the_time_of_a_call_is_shared_by_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(0, 10**6, 100))
    monkeypatch.setattr(interleave.time, "perf_counter_ns", lambda: next(ticks))
    found = time_interleaved({"a": np.max}, ROWS.reshape(4, 2, 1), repeat=1, tokens=2)["a"]
    assert (found.count, found.mean) == (4, 50)


def test_a_step_comes_before_each_call_and_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []
    now = [0]

    def step(name: str) -> str:
        now[0] += 1_000
        seen.append(("step", name))
        return name

    def call(item: str) -> None:
        now[0] += 10
        seen.append(("call", item))

    monkeypatch.setattr(interleave.time, "perf_counter_ns", lambda: now[0])
    found = time_after(step, dict.fromkeys("abcd", call), repeat=5, tokens=2)
    assert seen[::2] == [("step", name) for _, name in seen[1::2]]
    rounds = ["".join(name for _, name in seen[i : i + 8 : 2]) for i in range(0, 40, 8)]
    assert [sorted(one) for one in rounds] == [list("abcd")] * 5 and len(set(rounds)) > 2
    assert {(one.count, one.max) for one in found.values()} == {(5, 5.0)}


@pytest.mark.parametrize("shape", [(3, 7), (3, 2, 7)])
def test_a_sweep_writes_the_next_row_into_the_same_memory(shape: tuple[int, ...]) -> None:
    rows = np.random.default_rng(1).normal(size=shape).astype(np.float16)
    sweep = Sweep(rows, megabytes=1)
    first = sweep()
    for i in (1, 2, 0, 1):
        assert sweep() is first and np.array_equal(first, rows[i]) and first.dtype == rows.dtype
    assert sweep._memory.nbytes == 2**20


def test_the_processor_has_a_name(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Fast 9000: X\nmodel name\t: Other\n")
    assert cpu_name(cpuinfo) == "Fast 9000: X"
    cpuinfo.write_text("processor\t: 0\n")
    kind = platform.processor() or platform.machine()
    assert cpu_name(cpuinfo) == cpu_name(tmp_path / "absent") == kind
