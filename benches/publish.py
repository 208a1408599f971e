"""`make bench`: run every bench, print the tables, write the JSON, draw README's picture.

python benches/publish.py                 all of it, on a machine where nothing else runs
python benches/publish.py --readme        and put the table into README.md
python benches/publish.py --from FILE     tables and picture of a run that is done
python benches/publish.py --noisy         on a busy machine; marked, and README stays as it is
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
from rows import published
from tables import Report, as_markdown, as_table, facts_line, read_report, settings_sheet, sheets

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".benchmarks"
JSON = FOLDER / "speed.json"
PICTURE = ROOT / "docs" / "speed.svg"
README = ROOT / "README.md"
BLOCK = re.compile(r"(<!-- make bench README=1 writes this -->\n).*?(<!-- end -->)", re.DOTALL)
LEFT_OUT_OF_README = ("p99",)


def main(
    noisy: Annotated[bool, typer.Option(help="Run on a busy machine and say so.")] = False,
    readme: Annotated[bool, typer.Option(help="Put the table into README.md.")] = False,
    patience: Annotated[float, typer.Option(help="Seconds to wait for a quiet machine.")] = 120,
    done: Annotated[Path | None, typer.Option("--from", help="The JSON of an earlier run.")] = None,
) -> None:
    """Run, print, write and draw."""
    report = read_report(done or run(noisy, patience))
    show(Console(width=150), report)
    sets = [(rows.source, rows.vocabulary) for rows in published()]
    picture = FOLDER / "speed-noisy.svg" if report.noisy else PICTURE
    draw(report, sets, picture)
    print(f"picture: {picture.relative_to(ROOT)}")
    if readme and report.noisy:
        sys.exit("README.md stays as it is: the figures are noisy")
    if readme:
        README.write_text(with_table(README.read_text(encoding="utf-8"), report), encoding="utf-8")


def run(noisy: bool, patience: float) -> Path:
    """Run the benches in a process of their own; an earlier JSON stays unless this one is whole."""
    FOLDER.mkdir(exist_ok=True)
    part = JSON.with_suffix(".part")
    command = [sys.executable, "-m", "pytest", "benches", "-q", "--benchmark-only"]
    command += ["--benchmark-quiet", f"--benchmark-json={part}", f"--patience={patience}"]
    command += ["--noisy"] if noisy else []
    if subprocess.run(command, cwd=ROOT).returncode != 0:
        sys.exit("nothing is published: the benches did not pass")
    part.replace(JSON)
    return JSON


def show(console: Console, report: Report) -> None:
    """Print the tables; a mark tells what is over the most that is aimed at."""
    if report.noisy:
        console.print(Text("NOISY: other work ran on this machine; not for others to see"))
    for sheet in sheets(report):
        console.print(as_table(sheet))
    console.print(Text("! is more than aimed at"))
    console.print(Text(facts_line(report)))


def with_table(text: str, report: Report) -> str:
    """README with the figures of the widest published set of rows between its marks."""
    rows = published()[-1]
    sheet = settings_sheet(report, rows.source, rows.vocabulary)
    block = f"{as_markdown(sheet, LEFT_OUT_OF_README)}\n\n{facts_line(report)}\n"
    changed, found = BLOCK.subn(lambda marks: marks[1] + block + marks[2], text)
    if found != 1:
        raise ValueError("README.md must have one place for the table, between its two marks")
    return changed


if __name__ == "__main__":
    typer.run(main)
