"""`fastsample verify`: the proof of rule 9 at the command line, as a page or as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from . import verify
from .files import read_rows
from .proof import Line, Mismatch, Report, Shown


def prove(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="An .npy file of float32 or float16 logits, (V,) or (B, V), to try as well."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Take at most 5 seconds.")] = False,
    minutes: Annotated[
        float | None, typer.Option(help="Go on so long with fresh random cases.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Makes the random cases; a fresh one where left out.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, and nothing else.")
    ] = False,
) -> None:
    """Prove on this machine that tokens depend on nothing but row, parameters and seed.

    Leaves with status 0 where every answer was equal, and with 1 where one was not.
    """
    logits = None if file is None else read_rows(file, ("float32", "float16"))
    with bar() as progress:
        report = verify(logits, quick=quick, minutes=minutes, seed=seed, progress=progress)
    if as_json:
        typer.echo(json.dumps(report.as_dict(), indent=2))
    else:
        show(Console(), report)
    if not report.ok:
        raise typer.Exit(1)


@contextmanager
def bar() -> Iterator[Callable[[float, int], None] | None]:
    """A bar of the time, where somebody sits at a terminal; it is gone when the proof is over."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda share, tokens: progress.update(
            task, completed=share, description=f"{tokens:,} tokens compared"
        )


def show(console: Console, report: Report) -> None:
    """Print a report: the lines, what differs where nothing is promised, and the conditions."""
    console.print(lines_of(report))
    for line in report.invariants:
        if line.first is not None:
            print_mismatch(console, line.first)
    console.print(Text("Promises nothing, so it is only shown (draws that differ from exact):"))
    for shown in report.shown:
        console.print(Text(f"  {shown_line(shown)}"), soft_wrap=True)
    console.print(Text("It holds for:"))
    for name, fact in facts_of(report).items():
        console.print(Text(f"  {name + ':':<16} {fact}"), soft_wrap=True)
    console.print(Text(verdict(report)), style="bold" if report.ok else "bold red", soft_wrap=True)


def lines_of(report: Report) -> Table:
    """The invariants, one on a line for each mode that promises them; broken ones red."""
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for name in ("mode", "invariant", "cases", "tokens\ncompared", "mismatches", "seconds"):
        grid.add_column(name, justify="left" if name in ("mode", "invariant") else "right")
    grid.add_column("ways by equal answers")
    for line in report.invariants:
        counts = (f"{line.cases:,}", f"{line.tokens:,}", f"{line.mismatches:,}")
        grid.add_row(
            line.reduction,
            line.invariant,
            *counts,
            f"{line.seconds:.2f}",
            Text(grouping(line)),
            style="" if line.ok else "bold red",
        )
    return grid


def grouping(line: Line) -> str:
    """Which ways agree with which: the first braces hold those that agree with the reference."""
    if not line.cases:
        return "not covered"
    return " ".join("{" + ", ".join(group) + "}" for group in line.groups)


def print_mismatch(console: Console, first: Mismatch) -> None:
    """Print the first mismatch of an invariant in full."""
    title = f"{first.invariant}, {first.reduction}: the first of {first.variant} on {first.way}"
    console.print(Text(title), style="bold red", soft_wrap=True)
    console.print(Text(f"  {where(first)}"), soft_wrap=True)
    console.print(Text(f"  expected {first.part}: {first.expected}"), soft_wrap=True)
    console.print(Text(f"  got:      {' ' * len(first.part)}{first.got}"), soft_wrap=True)


def where(first: Mismatch) -> str:
    """What makes a draw again: the row, its parameters and the place of the draw."""
    filters = ", ".join(f"{name} {value}" for name, value in first.parameters.items())
    return (
        f"row {first.row} of fastsample.proof.cases.{first.case} ({first.kind}, "
        f"V = {first.vocabulary:,}); {filters}; seed {first.seed}, position {first.position}, "
        f"stream {first.stream}"
    )


def shown_line(shown: Shown) -> str:
    """How often something without a promise differs, and the first time."""
    told = f"{shown.name}: {shown.differ:,} of {shown.draws:,}"
    if shown.first is None:
        return told
    return f"{told}; the first {shown.first.got}, not {shown.first.expected}: {where(shown.first)}"


def facts_of(report: Report) -> dict[str, str]:
    """The conditions, in words."""
    facts = {}
    for name, value in report.conditions.items():
        if isinstance(value, dict):
            facts[name] = "; ".join(f"{key}: {why}" for key, why in value.items()) or "-"
        elif isinstance(value, list):
            facts[name] = ", ".join(map(str, value)) or "-"
        else:
            facts[name] = str(value)
    return {name.replace("_", " "): fact for name, fact in facts.items()}


def verdict(report: Report) -> str:
    """The end of the page: the counts and the fingerprint."""
    broken = [line for line in report.invariants if not line.ok]
    said = f"{len(broken)} broken" if broken else "0 mismatches"
    prints = f"fingerprint {spaced(report.fingerprint)}"
    if report.logits_fingerprint is not None:
        prints += f", of these logits {spaced(report.logits_fingerprint)}"
    return (
        f"{said} in {report.tokens:,} tokens compared, of {report.rows:,} rows with "
        f"{report.logits:,} logits, in {report.seconds:.1f} s (--seed {report.seed})\n{prints}"
    )


def spaced(fingerprint: str) -> str:
    """As much of a hash as eyes compare, in groups of four."""
    return " ".join(fingerprint[at : at + 4] for at in range(0, 24, 4))
