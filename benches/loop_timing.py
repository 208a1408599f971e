"""Time forms of a draw after steps, with `fastsample.cli.interleave.time_after`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import machine
from loop_forms import FormSet, Step
from loop_goals import OWN_CLOCK
from loop_sheets import loop_goals, loop_sheets, own_clock, quickest
from rich.console import Console
from rich.text import Text
from rivals import TORCH, is_installed
from tables import Figure, Report, as_table, facts_line

import fastsample
from fastsample.cli.interleave import time_after

WARM_CALLS = 3
"""Calls of each form that are not counted, each after a step of its own."""


def measure(table: str, forms: FormSet, step: Step, repeat: int) -> list[Figure]:
    """Time each form `repeat` times, each straight after a step, and return a figure of each."""
    calls = forms.calls
    for name in list(calls) * WARM_CALLS:
        calls[name](forms.argument(name, step))
    own: Any = calls.get(OWN_CLOCK)
    if own is not None:
        own.latency.reset()
    latencies = time_after(lambda name: forms.argument(name, step), calls, repeat)
    figures: dict[str, Figure] = {
        name: {"table": table, "form": name, "batch": forms.batch, **microseconds(latency)}
        for name, latency in latencies.items()
    }
    if own is not None:
        figures[OWN_CLOCK]["own_us"] = own.latency.p50 / 1e3
    return list(figures.values())


def microseconds(latency: fastsample.Latency) -> dict[str, float]:
    """Median, mean and percentiles."""
    names = {"us": "p50", "mean_us": "mean", "p90_us": "p90", "p99_us": "p99"}
    return {name: getattr(latency, of) / 1e3 for name, of in names.items()}


def has_torch() -> bool:
    """Whether torch is installed; it gets one thread, as all that it is compared with."""
    if not is_installed(TORCH):
        return False
    import torch

    torch.set_num_threads(1)
    return True


def run_alone(measured: Callable[[], list[Figure]], noisy: bool, patience: float) -> None:
    """Measure, on an idle machine unless `noisy`, and print the tables."""
    try:
        load = machine.load_average() if noisy else machine.settled_load(patience)
    except machine.BusyError as error:
        sys.exit(str(error))
    facts = {**machine.facts(), "isa": fastsample.info()["isa"], "load_average": load}
    show(Console(width=150), Report([{**facts, **figure} for figure in measured()], noisy))


def show(console: Console, report: Report) -> None:
    """Print the tables of a run."""
    if report.noisy:
        console.print(Text("NOISY: other work ran on this machine; do not publish these figures"))
    for sheet in loop_sheets(report):
        console.print(as_table(sheet))
    for line in (quickest(report), loop_goals(report), own_clock(report), facts_line(report)):
        console.print(Text(line.strip()))
