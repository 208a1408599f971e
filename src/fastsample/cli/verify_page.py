"""`fastsample verify`: the results of `fastsample.verify` as a page or as JSON."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastsample import verify

from .files import read_rows

if TYPE_CHECKING:
    from fastsample.verification import Comparison, Report


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
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            help="Also list all backends and variants by equal results, and why a part is not "
            "covered.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, and nothing else.")
    ] = False,
) -> None:
    """Check here that a token depends on row, parameters, seed, position and stream alone.

    The exit status is 0 if all results are equal, 1 if one is not, 2 if the check did not run.
    """
    logits = None if file is None else read_rows(file)
    progress = print_progress if sys.stderr is not None and sys.stderr.isatty() else None
    report = verify(logits, quick=quick, minutes=minutes, seed=seed, progress=progress)
    if progress is not None:
        typer.echo(f"\r{'':40}\r", err=True, nl=False)
    typer.echo(json.dumps(report.as_dict(), indent=2) if as_json else page(report, verbose))
    if not report.ok:
        raise typer.Exit(1)


def print_progress(share: float, tokens: int) -> None:
    """Write the share of the time and the number of tokens over the last line of a terminal."""
    typer.echo(f"\r{share:4.0%}, {tokens:,} tokens compared ", err=True, nl=False)


def page(report: Report, verbose: bool = False) -> str:
    """Return the page: invariants, mismatches, baselines, environment, and the verdict last.

    It is as wide as the terminal, but for the lines of invariants, which are never broken.
    """
    broken, common = [line for line in report.invariants if not line.ok], wrong_backend(report)
    grouped = report.invariants if verbose else broken
    if common and not verbose:  # Its results in the first line say enough.
        grouped = [line for line in broken if line.invariant == broken[0].invariant]
    text = [*invariant_lines(report)]
    text += section("Backends and variants by equal results", map(groups_of, grouped))
    for line in broken[:1]:
        text += section(f"First mismatch: {summary_of(line)[0]}", details_of(line), red)
    text += section("First mismatches of the other lines", map(summary_of, broken[1:]), red)
    text += [red(f"All mismatches are of {common}.")] if common else []
    baselines = [(line.invariant, baseline_of(line)) for line in report.baselines]
    text += section("Baselines without guarantees: draws that differ from exact", baselines)
    environment = {name.replace("_", " "): value for name, value in report.environment.items()}
    not_covered = environment.pop("not covered")
    if not verbose:
        environment["not covered"] = f"{len(not_covered)} parts: --verbose lists them, and why"
    text += section("Environment", environment.items())
    if verbose:
        text += section("Not covered", not_covered.items())
    return "\n".join([*text, *verdict(report, common)])


def red(text: str) -> str:
    """Color a text; a terminal shows it."""
    return typer.style(text, fg="red", bold=True)


def section(
    title: str, facts: Iterable[tuple[str, Any]], style: Callable[[str], str] = str
) -> list[str]:
    """Return a title and a line for each fact, none where there are no facts."""
    facts, width = list(facts), max(40, shutil.get_terminal_size().columns)
    left = min(max((len(name) for name, _ in facts), default=0), width // 2)
    wrap = textwrap.TextWrapper(width, subsequent_indent=" " * (left + 4), break_on_hyphens=False)
    lines = [style(f"{title}:")] if facts else []
    for name, value in facts:
        wrap.initial_indent = f"  {name:<{left}}  "
        text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value or "-")
        lines += wrap.wrap(text or "-")
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


def groups_of(line: Comparison) -> tuple[str, str]:
    """Return an invariant, and its backends and variants in braces, the reference's first."""
    groups = ((label.replace(", ", " and ") for label in group) for group in line.groups)
    text = " ".join("{" + ", ".join(group) + "}" for group in groups)
    return f"{line.invariant} ({line.reduction})", text if line.cases else "unchecked"


def summary_of(line: Comparison) -> tuple[str, str]:
    """Return where the first mismatch of a line is, and what it is."""
    assert line.first is not None
    variant, backend, part = line.first.variant, line.first.backend, line.first.part
    call = " on ".join(name for name in (variant, backend) if name not in ("all", "on", ""))
    got, expected = (textwrap.shorten(one, 40) for one in (line.first.got, line.first.expected))
    where = f"{line.invariant} ({line.reduction})" + (f", {call}" if call else "")
    return where, f"{'' if part == 'error' else f'{part} '}{got}, not {expected}"


def details_of(line: Comparison) -> list[tuple[str, str]]:
    """Return a mismatch in full: how to make the row and draw from it, and both results."""
    assert line.first is not None
    first, part = line.first, "" if line.first.part == "error" else f"{line.first.part} "
    return [
        ("made by", f"from fastsample.verification.cases import {first.case.partition('(')[0]}"),
        ("row", f"{first.case}.rows[{first.row}]  # {first.kind}"),
        ("parameters", ", ".join(f"{name}={value!r}" for name, value in first.parameters.items())),
        ("expected", part + first.expected),
        ("got", part + first.got),
    ]


def baseline_of(line: Comparison) -> str:
    """Return how often a baseline differs, and the first time."""
    count = f"{line.mismatches:,} of {line.tokens:,}"
    if line.first is None:
        return count
    return f"{count}; the first: {summary_of(line)[1]}, {line.first.case}.rows[{line.first.row}]"


def wrong_backend(report: Report) -> str | None:
    """Return the backend that all mismatches are of, if they are of one.

    Calls that name no engine have the default one, which has a name as well.
    """
    found = [item for line in report.invariants for item in line.deviations.items()]
    wrong = {backend for (_, backend), digest in found if digest}
    default = f"native {report.environment['isa']}"
    if default in report.environment["backends"] and "default" in wrong:
        wrong = wrong - {"default"} | {default}
    return wrong.pop() if len(wrong) == 1 else None


def alternative(report: Report, common: str) -> str:
    """Return what to draw with while something is broken: a backend that agrees here."""
    natives = (name for name in report.environment["backends"] if name.startswith("native"))
    other = next((name for name in natives if name != common), "")
    if common.startswith("native ") and other:
        return f'FASTSAMPLE_ISA={other.partition(" ")[2]}, or engine="reference"'
    return 'engine="native"' if common and other else 'engine="reference"'


def verdict(report: Report, common: str | None) -> list[str]:
    """Return the end of the page: what to do, the counts, and the fingerprint."""
    mismatches = sum(line.mismatches for line in report.invariants)
    compared = f"{mismatches:,} mismatches in {report.tokens:,} tokens compared"
    size = f"{report.rows:,} rows, {report.logits:,} logits, {report.seconds:.1f} s"
    size = f"({size}, --seed {report.seed})"
    if not report.ok:
        broken = sum(not line.ok for line in report.invariants)
        return [
            f"What to do: reproduce it with --seed {report.seed} and the same options. Until it is "
            f"fixed, draw with {alternative(report, common or '')}. Please report it with the "
            "output of --json.",
            red(f"{broken} of {len(report.invariants)} invariants broken: {compared}"),
            red(f"{size}; no fingerprint, as results differ"),
        ]
    prints = {"fingerprint": report.fingerprint, "of these logits": report.logits_fingerprint}
    spaced = {name: " ".join(textwrap.wrap(one[:24], 4)) for name, one in prints.items() if one}
    ok = typer.style(f"All results are equal: {compared}", bold=True)
    return [ok, size, *(f"{name} {text}" for name, text in spaced.items())]
