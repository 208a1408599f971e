"""`make bench`: run every bench, print the tables, write JSON and picture into .benchmarks.

python benches/publish.py                 all of it, on a machine where nothing else runs
python benches/publish.py --readme        tables into README.md and docs/speed.md, and the picture
python benches/publish.py --from FILE     tables and picture of a run that is done
python benches/publish.py --noisy         on a busy machine; marked, and no page changes
python benches/publish.py --only NAME     the tables of bench_NAME.py alone, JSON beside the whole's
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from picture import draw
from rich.console import Console
from rich.text import Text
from rows import FILE, published
from tables import (
    Report,
    Sheet,
    as_markdown,
    as_table,
    facts_line,
    read_report,
    settings_sheet,
    sheets,
)

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".benchmarks"
PICTURE = ROOT / "docs" / "speed.svg"
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "speed.md"
BLOCK = re.compile(r"(<!-- make bench README=1 writes this -->\n).*?(<!-- end -->)", re.DOTALL)


def main(
    noisy: Annotated[bool, typer.Option(help="Run on a busy machine and say so.")] = False,
    readme: Annotated[bool, typer.Option(help="Put the tables into the pages.")] = False,
    patience: Annotated[float, typer.Option(help="Seconds to wait for a quiet machine.")] = 120,
    done: Annotated[Path | None, typer.Option("--from", help="The JSON of an earlier run.")] = None,
    only: Annotated[str, typer.Option(help="Run bench_NAME.py alone, and draw nothing.")] = "",
) -> None:
    """Run, print, write and draw."""
    if only and readme:
        sys.exit("no page is changed: --only measures a part, and pages show all (leave one out)")
    try:
        report = read_report(done or run(noisy, patience, only))
    except (OSError, ValueError) as error:
        sys.exit(f"nothing is published: {error}")
    show(Console(width=150), report)
    if only:
        return
    sets = [(rows.source, rows.vocabulary) for rows in published()]
    picture = PICTURE if readme and not report.noisy else made("svg", report.noisy)
    draw(report, sets, picture)
    print(f"picture: {picture.relative_to(ROOT)}")
    if readme and report.noisy:
        sys.exit("no page is changed: the figures are noisy")
    if readme:
        write_between_marks(README, readme_block(report))
        write_between_marks(PAGE, page_block(report))


def made(kind: str, noisy: bool, name: str = "speed") -> Path:
    """Name a file of a run; a noisy one replaces nothing that a quiet one wrote."""
    return FOLDER / f"{name}{'-noisy' if noisy else ''}.{kind}"


def run(noisy: bool, patience: float, only: str = "") -> Path:
    """Run the benches in a process of their own; an earlier JSON stays unless this one is whole."""
    FOLDER.mkdir(exist_ok=True)
    done = made("json", noisy, only or "speed")
    part = done.with_suffix(".part")
    benches = f"benches/bench_{only}.py" if only else "benches"
    command = [sys.executable, "-m", "pytest", benches, "-q", "--benchmark-only"]
    command += ["--benchmark-quiet", f"--benchmark-json={part}", f"--patience={patience}"]
    command += ["--noisy"] if noisy else []
    if subprocess.run(command, cwd=ROOT).returncode != 0:
        sys.exit("nothing is published: not every bench ran and passed")
    part.replace(done)
    return done


def show(console: Console, report: Report) -> None:
    """Print the tables; a mark tells what is over the most that is aimed at."""
    if report.noisy:
        console.print(Text("NOISY: other work ran on this machine; not for others to see"))
    for sheet in sheets(report):
        console.print(as_table(sheet))
    console.print(Text("! is more than aimed at; ? has an np.max that was slow, and tells nothing"))
    console.print(Text(facts_line(report)))


def readme_block(report: Report) -> str:
    """README's table, and on what machine it was made."""
    table = as_markdown(readme_sheet(report), leave_out=("p99",))
    return f"{table}\n\n{facts_line(report)}\n"


def readme_sheet(report: Report) -> Sheet:
    """Every setting on the widest of the sets that anyone can repeat."""
    rows = published()[-1]
    return settings_sheet(report, rows.source, rows.vocabulary)


def page_block(report: Report) -> str:
    """All other tables that anyone can repeat."""
    repeatable = Report([f for f in report.figures if f["source"] != FILE], report.noisy)
    others = [sheet for sheet in sheets(repeatable) if sheet != readme_sheet(report)]
    parts = [f"**{sheet.title}**\n\n{as_markdown(sheet)}\n" for sheet in others]
    return "\n".join([*parts, f"{facts_line(report)}\n"])


def write_between_marks(path: Path, block: str) -> None:
    """Put a block into the one place of a page that is marked for it."""
    text = path.read_text(encoding="utf-8")
    changed, found = BLOCK.subn(lambda marks: marks[1] + block + marks[2], text)
    if found != 1:
        raise ValueError(f"{path.name} must have one place for tables, between its two marks")
    path.write_text(changed, encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
