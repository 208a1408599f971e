"""`fastsample verify`: the proof of rule 9 at the command line, as a page or as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from fastsample import verify
from fastsample.verification import Line, Mismatch, Report, Shown

from .files import read_rows

RED = "bold red"
ENGINES, RUNS = "engines x instruction sets", "repeated runs"
PLAIN_VARIANTS = ("all", "on")
"""Of an invariant that is asked in one variant only: its own name says as much."""


def prove(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="An .npy file of float32 or float16 logits, (V,) or (B, V), to try as well."
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Take about 5 seconds; without it, up to a minute."),
    ] = False,
    minutes: Annotated[
        float | None, typer.Option(help="Run for this many minutes, with fresh random cases.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Makes the random cases; a fresh one where left out.")
    ] = None,
    ways: Annotated[
        bool, typer.Option("--ways", help="Name every way that was tried, by equal answers.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, and nothing else.")
    ] = False,
) -> None:
    """Prove here that a token depends on row, parameters, seed, position and stream alone.

    Leaves with status 0 if all answers were equal, 1 if one was not, 2 if nothing could be told.
    """
    logits = None if file is None else read_rows(file, ("float32", "float16"))
    with bar() as progress:
        report = verify(logits, quick=quick, minutes=minutes, seed=seed, progress=progress)
    with standard_output():
        text = json.dumps(report.as_dict(), indent=2) + "\n" if as_json else page(report, ways)
        typer.echo(text, nl=False)
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


@contextmanager
def standard_output() -> Iterator[None]:
    """Where nobody takes what is printed, say so, and do not try once more when Python ends."""
    try:
        yield
    except OSError as error:
        error.filename = "standard output"
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def page(report: Report, ways: bool = False) -> str:
    """Lay out a report: lines, what broke, what differs where nothing is promised, conditions."""
    console = Console()
    with console.capture() as caught:
        show(console, report, ways)
    return "".join(f"{line.rstrip()}\n" for line in caught.get().splitlines())


def show(console: Console, report: Report, ways: bool = False) -> None:
    """Print a report, the verdict last."""
    lines = lines_of(report)
    # A terminal too narrow breaks lines; cut names could not be looked up.
    widest = Measurement.get(console, console.options.update(max_width=200), lines).maximum
    width = console.width
    console.width = max(widest, width)
    console.print(lines)
    console.width = width
    if "numba" in report.conditions["engines"]:
        console.print("seconds: the first lines that call Numba wait until it has compiled")
    told = [(name_of(line), grouping(line)) for line in lines_to_group(report, ways)]
    heading(console, "Ways by equal answers:", told)
    if not report.ok:
        show_broken(console, report)
    shown = [(shown.name, counted(shown)) for shown in report.shown]
    heading(console, "Promises nothing, so it is only shown (draws that differ from exact):", shown)
    heading(console, "It holds for:" if report.ok else "It was tried on:", facts_of(report).items())
    if not report.ok:
        console.print(Text(way_out(report)))
    console.print(Text(verdict(report)), style="bold" if report.ok else RED)


def lines_to_group(report: Report, ways: bool) -> list[Line]:
    """The invariants whose ways are named: broken ones and repeated runs, or all.

    Where one engine is wrong in all that is broken, it is enough to set it against the others.
    """
    if ways:
        return list(report.invariants)
    of_engines = [line for line in report.invariants if line.invariant == ENGINES and not line.ok]
    if of_engines and common_way(report) is not None:
        return of_engines
    return [line for line in report.invariants if not line.ok or line.invariant == RUNS]


def heading(console: Console, title: str, told: Iterable[tuple[str, str]], style: str = "") -> None:
    """Print a title and named texts under it, which go on below themselves where they are long."""
    console.print(Text(title), style=style)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in told:
        grid.add_row(Text(f"  {name}"), Text(text))
    console.print(grid)


def lines_of(report: Report) -> Table:
    """The invariants by mode, one on a line for each mode that promises them; broken ones red."""
    grid = Table(box=None, show_edge=False, padding=(0, 1, 0, 0))
    grid.add_column("", no_wrap=True)
    for name in ("cases", "tokens or\nnumbers", "mismatches", "seconds"):
        grid.add_column(name, justify="right", vertical="bottom", no_wrap=True)
    grid.add_column("ways", no_wrap=True)
    for mode in dict.fromkeys(line.reduction for line in report.invariants):
        grid.add_row(Text(mode, style="bold"))
        for line in report.invariants:
            if line.reduction == mode:
                grid.add_row(*cells(line), style="" if line.ok else RED)
    return grid


def cells(line: Line) -> Iterator[RenderableType]:
    """One line of the table."""
    yield line.invariant
    for count in (line.cases, line.tokens or line.laws, line.mismatches):
        yield f"{count:,}"
    yield f"{line.seconds:.1f}"
    if not line.cases:
        yield "untried"
    elif line.ok:
        yield f"{sum(map(len, line.groups))} equal"
    else:
        yield f"{len(line.groups)} groups"


def name_of(line: Line | Mismatch) -> str:
    """An invariant and its mode."""
    return f"{line.invariant} ({line.reduction})"


def grouping(line: Line) -> str:
    """Which ways agree with which: the first braces hold those that agree with the reference."""
    if not line.cases:
        return "not covered"
    groups = ((way.replace(", ", " and ") for way in group) for group in line.groups)
    return " ".join("{" + ", ".join(group) + "}" for group in groups)


def show_broken(console: Console, report: Report) -> None:
    """Print the first mismatch in full, those of further lines in short, and what they share."""
    first, *further = [line.first for line in report.invariants if line.first is not None]
    common = common_way(report)
    heading(console, f"First mismatch: {name_of(first)}{asked(first)}", told_of(first), RED)
    if further:
        console.print(Text("First mismatches of the other lines:"), style=RED)
    for one in further:
        console.print(Text(f"  {name_of(one)}{asked(one, common)}: {in_short(one)}"))
    if common is not None:
        console.print(Text(f"All mismatches are of {common}."), style=RED)


def asked(first: Mismatch, common: str | None = None) -> str:
    """How a mismatch was asked for, after the invariant's name; the way that all share is known."""
    variant = "" if first.variant in PLAIN_VARIANTS else f", {first.variant}"
    if first.way in ("", common):
        return variant
    return f"{variant} on {first.way}" if variant else f", {first.way}"


def told_of(first: Mismatch) -> list[tuple[str, str]]:
    """A mismatch in full: what makes its row again, how it was drawn from, and what came."""
    return [
        ("made by", f"from fastsample.verification.cases import {first.case.partition('(')[0]}"),
        ("row", f"{row_of(first)}  # {first.kind}, V = {first.vocabulary:,}"),
        ("drawn with", keywords_of(first)),
        ("expected", part_of(first) + first.expected),
        ("got", part_of(first) + first.got),
    ]


def row_of(first: Mismatch) -> str:
    """The expression of `fastsample.verification.cases` that makes a row."""
    return f"{first.case}.rows[{first.row}]"


def keywords_of(first: Mismatch) -> str:
    """What a draw was asked with."""
    place = {name: getattr(first, name) for name in ("seed", "position", "stream")}
    mode = {"reduction": repr(first.reduction)} if first.reduction in ("fixed", "fast") else {}
    how = {**first.parameters, **place, **mode}
    return ", ".join(f"{name}={value}" for name, value in how.items())


def in_short(first: Mismatch, most: int = 30) -> str:
    """A mismatch in a few words."""
    got, expected = (
        said if len(said) <= most else f"{said[:most]}..." for said in (first.got, first.expected)
    )
    return f"{part_of(first)}{got}, not {expected}"


def part_of(first: Mismatch) -> str:
    """What came out otherwise, before it; an error says so itself."""
    return "" if first.part == "error" else f"{first.part} "


def common_way(report: Report) -> str | None:
    """The one engine and instruction set that answers wrongly in every broken line, if it is one.

    A group names the ways of a variant only where they disagree; so a bare variant is all of them.
    What is asked for by no name ("default") is one of the ways that have a name.
    """
    ways, default = ways_of(report), f"native {report.conditions['isa_default']}"
    guilty: set[str | None] = set()
    for line in report.invariants:
        for label in (label for group in line.groups[1:] for label in group):
            named = (way for way in ways if label == way or label.endswith(f" on {way}"))
            way = next(named, ways[0] if len(ways) == 1 else None)
            guilty.add(default if way == "default" and default in ways else way)
    return guilty.pop() if len(guilty) == 1 else None


def ways_of(report: Report) -> list[str]:
    """Every engine and instruction set that was asked."""
    line = next(line for line in report.invariants if line.invariant == ENGINES)
    return [way for group in line.groups for way in group if way != "reference"]


def way_out(report: Report) -> str:
    """What to do where something is broken."""
    return (
        f"What to do: see it again with --seed {report.seed} and the same options. Until it is "
        f"mended, draw with {instead(report)}. Please report it with what --json prints."
    )


def instead(report: Report) -> str:
    """What to draw with while something is broken: what agrees here, the reference at last."""
    common = common_way(report) or ""
    others = [way for way in ways_of(report) if way.startswith("native") and way != common]
    if common.startswith("native ") and others:
        return f'FASTSAMPLE_ISA={others[0].partition(" ")[2]}, or engine="reference"'
    if common and others:
        return 'engine="native"'
    return 'engine="reference"'


def counted(shown: Shown) -> str:
    """How often something without a promise differs, and the first time."""
    count = f"{shown.differ:,} of {shown.draws:,}"
    if shown.first is None:
        return count
    row, how = row_of(shown.first), keywords_of(shown.first)
    return f"{count}; the first: {in_short(shown.first)}, {row} with {how}"


def facts_of(report: Report) -> dict[str, str]:
    """The conditions, in words."""
    facts = {}
    for name, value in report.conditions.items():
        if isinstance(value, dict):
            facts[name] = "; ".join(f"{key}: {why}" for key, why in value.items()) or "-"
        elif isinstance(value, list):
            facts[name] = ", ".join(map(str, value)) or "-"
        else:
            facts[name] = "-" if value is None else str(value)
    return {name.replace("_", " "): fact for name, fact in facts.items()}


def verdict(report: Report) -> str:
    """The end of the page: whether it holds, the counts and the fingerprint."""
    compared = f"{report.tokens:,} tokens"
    of = (
        f"{report.rows:,} rows, {report.logits:,} logits, {report.seconds:.1f} s, "
        f"--seed {report.seed}"
    )
    if not report.ok:
        broken = sum(not line.ok for line in report.invariants)
        mismatches = sum(line.mismatches for line in report.invariants)
        return (
            f"{broken} of {len(report.invariants)} invariants broken: {mismatches:,} mismatches in "
            f"{compared} compared\n({of}); no fingerprint, since answers differ"
        )
    prints = f"fingerprint {spaced(report.fingerprint)}"
    if report.logits_fingerprint is not None:
        prints += f"\nof these logits {spaced(report.logits_fingerprint)}"
    return f"It holds: 0 mismatches in {compared} compared\n({of})\n{prints}"


def spaced(fingerprint: str) -> str:
    """As much of a hash as eyes compare, in groups of four."""
    return " ".join(fingerprint[at : at + 4] for at in range(0, 24, 4))
