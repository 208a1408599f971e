"""`fastsample verify`: the results of `fastsample.verify` as a page or as JSON."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fastsample import verify

from .files import read_rows

if TYPE_CHECKING:
    from fastsample.verification import Comparison, Mismatch, Report


def verify_command(
    file: Annotated[
        Path | None,
        typer.Argument(help="An .npy file of float32 or float16 logits, (V,) or (B, V), to check."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Take about 5 seconds instead of about a minute.")
    ] = False,
    minutes: Annotated[
        float | None, typer.Option(help="Run for this many minutes, with more random cases.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Makes the random cases; a fresh one if left out.")
    ] = None,
    ways: Annotated[
        bool, typer.Option("--ways", help="List all backends and variants, by equal results.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, and nothing else.")
    ] = False,
) -> None:
    """Check here that a token depends on row, parameters, seed, position and stream alone.

    The exit status is 0 if all results are equal, 1 if one is not, 2 if the check did not run.
    """
    logits = None if file is None else read_rows(file, ("float32", "float16"))
    with progress_bar() as progress:
        report = verify(logits, quick=quick, minutes=minutes, seed=seed, progress=progress)
    text = json.dumps(report.as_dict(), indent=2) if as_json else page(report, ways)
    typer.echo(text)
    if not report.ok:
        raise typer.Exit(1)


@contextmanager
def progress_bar() -> Iterator[Callable[[float, int], None] | None]:
    """Show a bar on a terminal while the check runs."""
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


def page(report: Report, ways: bool = False) -> str:
    """Return the page: invariants, mismatches, baselines, environment, and the verdict last.

    It is as wide as the terminal, but for the lines of invariants, which are never broken.
    """
    broken, common = [line for line in report.invariants if not line.ok], wrong_backend(report)
    grouped = report.invariants if ways else broken
    if common is not None and not ways:  # Its results in the first line say enough.
        grouped = [line for line in broken if line.invariant == broken[0].invariant]
    environment = {name.replace("_", " "): value for name, value in report.environment.items()}
    not_covered = environment.pop("not covered")
    others = {call_of(line): summary_of(line) for line in broken[1:]}
    parts = [
        *invariant_lines(report),
        *section(
            "Backends and variants by equal results", {name_of(x): groups_of(x) for x in grouped}
        ),
        *(
            section(f"First mismatch: {call_of(broken[0])}", details_of(broken[0]), red)
            if broken
            else ()
        ),
        *section("First mismatches of the other lines", others, red),
        *([red(f"All mismatches are of {common}.")] if common else ()),
        *section(
            "Baselines without guarantees: draws that differ from exact",
            {line.invariant: baseline_of(line) for line in report.baselines},
        ),
        *section("Environment", environment),
        *section("Not covered", not_covered),
        *verdict(report, common),
    ]
    return "\n".join(parts)


def red(text: str) -> str:
    """Color a text; a terminal shows it."""
    return typer.style(text, fg="red", bold=True)


def section(title: str, facts: dict[str, Any], style: Callable[[str], str] = str) -> list[str]:
    """Return a title and a line for each fact, none where there are no facts."""
    width = max(40, shutil.get_terminal_size().columns)
    left = min(max(map(len, facts), default=0), width // 2)
    lines = [style(f"{title}:")] if facts else []
    for name, value in facts.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value or "-")
        lines += textwrap.wrap(
            text,
            width,
            initial_indent=f"  {name:<{left}}  ",
            subsequent_indent=" " * (left + 4),
            break_on_hyphens=False,
        )
    return lines


def invariant_lines(report: Report) -> Iterator[str]:
    """Yield a line for each invariant in each mode, red where it is broken."""
    yield f"{'':<34} {'cases':>5} {'compared':>10} {'mismatches':>10} {'seconds':>7} results"
    for mode, lines in groupby(report.invariants, lambda line: line.reduction):
        yield typer.style(mode, bold=True)
        for line in lines:
            results = f"{len(line.groups)} groups"
            if line.ok:
                results = f"{sum(map(len, line.groups))} equal" if line.cases else "unchecked"
            text = (
                f"{line.invariant:<34} {line.cases:>5,} {line.tokens or line.function_values:>10,} "
                f"{line.mismatches:>10,} {line.seconds:>7.1f} {results}"
            )
            yield text if line.ok else red(text)


def name_of(line: Comparison) -> str:
    """Return an invariant and its mode."""
    return f"{line.invariant} ({line.reduction})"


def call_of(line: Comparison) -> str:
    """Return an invariant with the variant and backend of its first mismatch, if they say more."""
    first = first_of(line)
    names = [first.variant] * (first.variant not in ("all", "on")) + [first.backend] * bool(
        first.backend
    )
    return ", ".join([name_of(line), *([" on ".join(names)] if names else [])])


def first_of(line: Comparison) -> Mismatch:
    """Return the first mismatch of a broken line."""
    assert line.first is not None
    return line.first


def groups_of(line: Comparison) -> str:
    """Return backends and variants in braces; the first ones agree with the reference."""
    if not line.cases:
        return "unchecked"
    groups = ((label.replace(", ", " and ") for label in group) for group in line.groups)
    return " ".join("{" + ", ".join(group) + "}" for group in groups)


def details_of(line: Comparison) -> dict[str, str]:
    """Return a mismatch in full: how to make the row and draw from it, and both results."""
    first = first_of(line)
    part = "" if first.part == "error" else f"{first.part} "
    return {
        "made by": f"from fastsample.verification.cases import {first.case.partition('(')[0]}",
        "row": f"{first.case}.rows[{first.row}]  # {first.kind}",
        "parameters": keywords_of(first),
        "expected": part + first.expected,
        "got": part + first.got,
    }


def keywords_of(first: Mismatch) -> str:
    """Return the parameters of a draw as arguments."""
    return ", ".join(f"{name}={value!r}" for name, value in first.parameters.items())


def summary_of(line: Comparison) -> str:
    """Return a mismatch in a few words."""
    first = first_of(line)
    got, expected = (textwrap.shorten(text, 40) for text in (first.got, first.expected))
    return (
        f"{got}, not {expected}" if first.part == "error" else f"{first.part} {got}, not {expected}"
    )


def baseline_of(line: Comparison) -> str:
    """Return how often a baseline differs, and the first time."""
    count = f"{line.mismatches:,} of {line.tokens:,}"
    if line.first is None:
        return count
    row = f"{line.first.case}.rows[{line.first.row}]"
    return f"{count}; the first: {summary_of(line)}, {row} with {keywords_of(line.first)}"


def wrong_backend(report: Report) -> str | None:
    """Return the backend that all mismatches are of, if they are of one.

    Calls that name no engine have the default one, which has a name as well.
    """
    wrong = {
        backend
        for line in report.invariants
        for (_, backend), digest in line.deviations.items()
        if digest
    }
    default = f"native {report.environment['isa']}"
    if default in report.backends and "default" in wrong:
        wrong = wrong - {"default"} | {default}
    return wrong.pop() if len(wrong) == 1 else None


def verdict(report: Report, common: str | None) -> list[str]:
    """Return the end of the page: what to do, the counts, and the fingerprint."""
    compared = f"{sum(line.mismatches for line in report.invariants):,} mismatches in "
    compared += f"{report.tokens:,} tokens compared"
    size = f"({report.rows:,} rows, {report.logits:,} logits, {report.seconds:.1f} s, "
    size += f"--seed {report.seed})"
    if not report.ok:
        broken = sum(not line.ok for line in report.invariants)
        return [
            f"What to do: reproduce it with --seed {report.seed} and the same options. Until it is "
            f"fixed, draw with {alternative(report, common or '')}. Please report it with the "
            "output of --json.",
            red(f"{broken} of {len(report.invariants)} invariants broken: {compared}"),
            red(f"{size}; no fingerprint, as results differ"),
        ]
    of_logits = report.logits_fingerprint
    return [
        typer.style(f"All results are equal: {compared}", bold=True),
        size,
        f"fingerprint {spaced(report.fingerprint)}",
        *([f"of these logits {spaced(of_logits)}"] if of_logits is not None else []),
    ]


def alternative(report: Report, common: str) -> str:
    """Return what to draw with while something is broken: a backend that agrees here."""
    others = [one for one in report.backends if one.startswith("native") and one != common]
    if common.startswith("native ") and others:
        return f'FASTSAMPLE_ISA={others[0].partition(" ")[2]}, or engine="reference"'
    return 'engine="native"' if common and others else 'engine="reference"'


def spaced(fingerprint: str) -> str:
    """Return the first 24 digits of a hash, in groups of four."""
    return " ".join(fingerprint[at : at + 4] for at in range(0, 24, 4))
