"""`make bench`: run every bench, print the tables, write the JSON and the figure to .benchmarks.

python benches/publish.py                 run everything; the machine must be idle
python benches/publish.py --readme        also update README.md and docs/performance.{md,svg}
python benches/publish.py --from FILE     format the JSON of an earlier run
python benches/publish.py --noisy         run on a busy machine; results are marked, pages unchanged
python benches/publish.py --only NAME     run bench_NAME.py alone
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
PICTURE = ROOT / "docs" / "performance.svg"
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "performance.md"
BLOCK = re.compile(r"(<!-- make bench README=1 writes this -->\n).*?(<!-- end -->)", re.DOTALL)


def main(
    noisy: Annotated[
        bool, typer.Option(help="Run on a busy machine, and mark the results.")
    ] = False,
    readme: Annotated[bool, typer.Option(help="Write the tables into the pages.")] = False,
    patience: Annotated[
        float, typer.Option(help="Seconds to wait until the machine is idle.")
    ] = 120,
    done: Annotated[Path | None, typer.Option("--from", help="The JSON of an earlier run.")] = None,
    only: Annotated[str, typer.Option(help="Run bench_NAME.py alone; no figure.")] = "",
) -> None:
    """Run, print, write and draw."""
    if only and readme:
        sys.exit(
            "no page is changed: --only and --readme exclude each other (pages show every bench)"
        )
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
    print(f"figure: {picture.relative_to(ROOT)}")
    if readme and report.noisy:
        sys.exit("no page is changed: the figures are noisy")
    if readme:
        write_between_marks(README, readme_block(report))
        write_between_marks(PAGE, page_block(report))


def made(kind: str, noisy: bool, name: str = "performance") -> Path:
    """Return the path of a result; a noisy run never overwrites one of a quiet run."""
    return FOLDER / f"{name}{'-noisy' if noisy else ''}.{kind}"


def run(noisy: bool, patience: float, only: str = "") -> Path:
    """Run the benches in a subprocess; the JSON is replaced only if every bench passes."""
    FOLDER.mkdir(exist_ok=True)
    done = made("json", noisy, only or "performance")
    part = done.with_suffix(".part")
    benches = f"benches/bench_{only}.py" if only else "benches"
    command = [sys.executable, "-m", "pytest", benches, "-q", "--benchmark-only"]
    command += ["--benchmark-quiet", f"--benchmark-json={part}", f"--patience={patience}"]
    command += ["--noisy"] if noisy else []
    if subprocess.run(command, cwd=ROOT).returncode != 0:
        sys.exit("nothing is published: a bench failed or did not run")
    part.replace(done)
    return done


def show(console: Console, report: Report) -> None:
    """Print the tables."""
    if report.noisy:
        console.print(Text("NOISY: other work ran on this machine; do not publish these figures"))
    for sheet in sheets(report):
        console.print(as_table(sheet))
    console.print(Text("!: misses the target; ?: unreliable, since np.max was slow at the time"))
    console.print(Text(facts_line(report)))


def readme_block(report: Report) -> str:
    """README's table, and the machine it was measured on."""
    table = as_markdown(readme_sheet(report), leave_out=("p99",))
    return f"{table}\n\n{facts_line(report)}\n"


def readme_sheet(report: Report) -> Sheet:
    """Every setting on the largest set of rows that anyone can reproduce."""
    rows = published()[-1]
    return settings_sheet(report, rows.source, rows.vocabulary)


def page_block(report: Report) -> str:
    """All other tables that anyone can reproduce."""
    reproducible = Report([f for f in report.figures if f["source"] != FILE], report.noisy)
    others = [sheet for sheet in sheets(reproducible) if sheet != readme_sheet(report)]
    parts = [f"**{sheet.title}**\n\n{as_markdown(sheet)}\n" for sheet in others]
    return "\n".join([*parts, f"{facts_line(report)}\n"])


def write_between_marks(path: Path, block: str) -> None:
    """Replace the marked block of a page."""
    text = path.read_text(encoding="utf-8")
    changed, found = BLOCK.subn(lambda marks: marks[1] + block + marks[2], text)
    if found != 1:
        raise ValueError(f"{path.name} must have one marked block for the tables")
    path.write_text(changed, encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
