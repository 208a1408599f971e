"""`make bench`: run every bench, print the tables, write the JSON and the figure to .benchmarks.

python benches/publish.py                 run everything; the machine must be idle
python benches/publish.py --readme        also update the pages and docs/performance.svg; needs the
                                          model of benches/loop.py, and FASTSAMPLE_LOGITS: rows of
                                          151,936 logits or more
python benches/publish.py --from FILE     format the JSON of an earlier run
python benches/publish.py --noisy         run on a busy machine; results are marked, pages unchanged
python benches/publish.py --only NAME     run bench_NAME.py alone

benches/cold.py is measured after them, and benches/loop.py where its model is installed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import cold
import loop
import typer
from loop_sheets import loop_block, loop_sheets, with_loop_column
from picture import draw
from rich.console import Console
from rich.text import Text
from rivals import NUMPY
from rows import FILE, RowSet, of_the_file
from sentences import TABLES, cost, goals, reductions
from settings import VOCABULARIES
from sheets import sets_of, settings_sheet, sheets
from tables import Report, Sheet, as_markdown, as_table, facts_line, read_report

from fastsample import info

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".benchmarks"
PICTURE = ROOT / "docs" / "performance.svg"
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "performance.md"
DETERMINISM = ROOT / "docs" / "determinism.md"
ROWS = RowSet(FILE, VOCABULARIES[0])
"""The rows of README's table."""

FACTS = ("cpu", "zen4", "cores", "versions", "numpy_simd", "load_average", "noisy")
"""What every figure has of the machine."""

BLOCK = re.compile(
    r"(<!-- make bench README=1 writes this: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL
)


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
    if readme and not done and ROWS not in of_the_file():
        sys.exit(
            "nothing is measured: --readme needs FASTSAMPLE_LOGITS, the .npy file of recorded rows "
            f"of {ROWS.vocabulary:,} logits or more"
        )
    if readme and not done and not loop.is_installed():
        sys.exit(
            f"nothing is measured: --readme needs {', '.join(loop.NEEDS)} (make bench README=1 "
            "MODEL=1 TORCH=torch)"
        )
    try:
        report = read_report(done or run(noisy, patience, only))
    except (OSError, ValueError) as error:
        sys.exit(f"nothing is published: {error}")
    show(Console(width=150), report)
    if only:
        return
    sets = [rows for rows in sets_of(report) if has_rivals(report, *rows)]
    picture = PICTURE if readme and not report.noisy else made("svg", report.noisy)
    draw(report, sets, picture)
    print(f"figure: {picture.relative_to(ROOT)}")
    if readme and report.noisy:
        sys.exit("no page is changed: the figures are noisy")
    if readme:
        write_pages(report)


def has_rivals(report: Report, source: str, vocabulary: int) -> bool:
    """Whether rivals were timed on a set of rows."""
    return bool(report.of(contender=NUMPY, source=source, vocabulary=vocabulary))


def write_pages(report: Report) -> None:
    """Fill the marked blocks of the pages; all are made before one is written."""
    lead, sums = cost(report), reductions(report)
    blocks = {
        README: {"cost": lead, "table": readme_block(report)},
        PAGE: {
            "cost": lead,
            "goals": goals(report, TABLES),
            "loop": loop_block(report),
            "tables": page_block(report),
        },
        DETERMINISM: {"reductions": sums},
    }
    texts = {path: filled(path, named) for path, named in blocks.items()}
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")


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
    if not only:
        add_loops(part)
    part.replace(done)
    return done


def add_loops(path: Path) -> None:
    """Measure draws after a sweep, and after a model's step, and add them to the JSON of a run."""
    document = json.loads(path.read_text(encoding="utf-8"))
    first = document["benchmarks"][0]["extra_info"]
    facts = {**{name: first[name] for name in FACTS}, "isa": info()["isa"]}
    for measured in (cold, *([loop] if loop.is_installed() else [])):
        print(f"{measured.__name__}.py", flush=True)
        document["benchmarks"] += [
            {"extra_info": {**facts, **figure}} for figure in measured.figures()
        ]
    path.write_text(json.dumps(document), encoding="utf-8")


def show(console: Console, report: Report) -> None:
    """Print the tables."""
    if report.noisy:
        console.print(Text("NOISY: other work ran on this machine; do not publish these figures"))
    for sheet in (*sheets(report), *loop_sheets(report)):
        console.print(as_table(sheet))
    console.print(Text("!: misses the goal; ?: unreliable, since np.max was slow at the time"))
    console.print(Text(facts_line(report)))


def readme_block(report: Report) -> str:
    """README's table, the machine it was measured on, and the goals that other tables miss."""
    sheet = with_loop_column(report, readme_sheet(report))
    table = as_markdown(sheet, leave_out=("np.max",))
    other_sizes = [size for size in VOCABULARIES if size != ROWS.vocabulary]
    return f"{table}\n\n{facts_line(report)}\n\n{goals(report, ['settings'], other_sizes)}"


def readme_sheet(report: Report) -> Sheet:
    """Every setting on recorded rows."""
    return settings_sheet(report, ROWS.source, ROWS.vocabulary)


def page_block(report: Report) -> str:
    """All tables."""
    parts = [f"**{sheet.title}**\n\n{as_markdown(sheet)}\n" for sheet in sheets(report)]
    return "\n".join([*parts, f"{facts_line(report)}\n"])


def filled(path: Path, blocks: dict[str, str]) -> str:
    """Return the text of a page with these texts in its marked blocks, which must be the same."""
    text = path.read_text(encoding="utf-8")
    found = [marks[2] for marks in BLOCK.finditer(text)]
    if sorted(found) != sorted(blocks):
        raise ValueError(
            f"{path.name} must have the marked blocks {', '.join(blocks)}, once each, got "
            f"{', '.join(found) or 'none'}"
        )
    return BLOCK.sub(lambda marks: marks[1] + blocks[marks[2]] + marks[3], text)


if __name__ == "__main__":
    typer.run(main)
