"""Timing in turns: who is called when, on which row, and what is counted."""

from __future__ import annotations

import os
import platform
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from fastsample import Latency
from fastsample.api.info import cpu_name
from fastsample.cli import interleave as stopwatch
from fastsample.cli.interleave import in_turns, load_average, take_turns

ROWS = np.arange(8, dtype=np.float32)[:, np.newaxis]


def called(names: list[str], rows: np.ndarray = ROWS) -> list[tuple[str, int]]:
    """Who is called on which row in one pass."""
    seen: list[tuple[str, int]] = []
    calls = {name: lambda row, name=name: seen.append((name, int(row[0]))) for name in names}
    take_turns(calls, rows, {name: Latency() for name in names})
    return seen


def test_calls_take_turns() -> None:
    assert [name for name, _ in called(["a", "b"])] == ["a", "b"] * 8


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_each_meets_every_row_once(names: list[str]) -> None:
    seen = called(names)
    for name in names:
        assert sorted(row for who, row in seen if who == name) == list(range(8))


def test_nobody_meets_the_row_that_another_has_just_read() -> None:
    rows = [row for _, row in called(["a", "b"])]
    assert all(row != after for row, after in pairwise(rows))


def test_one_row_is_everybodys() -> None:
    assert called(["a", "b", "c"], ROWS[:1]) == [("a", 0), ("b", 0), ("c", 0)]


def test_the_first_pass_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10**6))
    monkeypatch.setattr(stopwatch.time, "perf_counter_ns", lambda: next(ticks))
    seen: list[int] = []
    latencies = in_turns({"a": lambda row: seen.append(1), "b": np.max}, ROWS, repeat=3)
    assert len(seen) == 8 * 4
    assert {name: latency.count for name, latency in latencies.items()} == {"a": 24, "b": 24}
    assert latencies["a"].max == latencies["b"].p50 == 1


def test_load_average_is_that_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.7, 0.2, 0.1))
    assert load_average() == 0.7


def test_the_time_of_a_call_is_shared_by_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(0, 10**6, 100))
    monkeypatch.setattr(stopwatch.time, "perf_counter_ns", lambda: next(ticks))
    found = in_turns({"a": np.max}, ROWS.reshape(4, 2, 1), repeat=1, tokens=2)["a"]
    assert (found.count, found.mean) == (4, 50)


def test_the_processor_has_a_name(tmp_path: Path) -> None:
    told = tmp_path / "cpuinfo"
    told.write_text("processor\t: 0\nmodel name\t: Fast 9000: X\nmodel name\t: Other\n")
    assert cpu_name(told) == "Fast 9000: X"
    told.write_text("processor\t: 0\n")
    kind = platform.processor() or platform.machine()
    assert cpu_name(told) == cpu_name(tmp_path / "absent") == kind
