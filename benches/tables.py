"""Read the JSON of a bench run, and format tables of it, for the terminal and for the pages."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich import box
from rich.table import Table
from rows import FILE
from settings import MEAN_MARGIN

Figure = dict[str, Any]
FLOOR = "np.max"
SLOW_FLOOR = 1.25
"""Above this multiple of its usual time on the same rows, an `np.max` measurement is unreliable."""


@dataclass(frozen=True)
class Report:
    """The measurements of a run: one per bench, as benches/conftest.py writes them."""

    figures: list[Figure]
    noisy: bool

    def of(self, **wanted: Any) -> list[Figure]:
        """Select the measurements with these values."""
        return [
            figure
            for figure in self.figures
            if all(figure.get(name) == value for name, value in wanted.items())
        ]

    def is_doubtful(self, figure: Figure) -> bool:
        """Whether its `np.max` was slow, which makes its ratio too low."""
        if figure["partner"] != FLOOR:
            return False
        about = {name: figure[name] for name in ("source", "vocabulary", "partner")}
        usual = median(other["partner_us"] for other in self.of(**about))
        return bool(figure["partner_us"] > SLOW_FLOOR * usual)


@dataclass(frozen=True)
class Sheet:
    """A table of strings."""

    title: str
    header: list[str]
    lines: list[list[str]]


def read_report(path: Path) -> Report:
    """Read the JSON of pytest-benchmark."""
    text = path.read_text(encoding="utf-8")
    try:
        document = json.loads(text)
        figures = [bench["extra_info"] for bench in document["benchmarks"]]
        report = Report(figures, bool(document["machine_info"]["noisy"]))
        facts_line(report)
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} is not the JSON of a run of these benches") from error
    return report


def one(figures: Iterable[Figure]) -> Figure | None:
    """Return the first measurement, or None."""
    return next(iter(figures), None)


def number(value: float | None, digits: int = 3) -> str:
    """Format a number with this many significant digits, without an exponent."""
    if value is None:
        return ""
    text = f"{value:.{digits}g}"
    return f"{float(text):,.0f}" if "e" in text or abs(value) >= 10 ** (digits - 1) else text


def over(figure: Figure) -> bool:
    """Whether a measurement misses its goal."""
    return figure["limit"] is not None and figure["ratio"] > figure["limit"]


def ratio(report: Report, figure: Figure) -> str:
    """Format a ratio: `!` misses the goal, `?` has an unreliable `np.max`."""
    marks = f"{' !' if over(figure) else ''}{' ?' if report.is_doubtful(figure) else ''}"
    return f"{figure['ratio']:.2f}{marks}"


def times(figure: Figure, prefix: str = "") -> list[str]:
    """Format median, mean and 99th percentile; `!` at a mean too far above the median."""
    middle, mean, p99 = (number(figure[f"{prefix}{name}"]) for name in ("us", "mean_us", "p99_us"))
    return [middle, f"{mean}{' !' if not prefix and is_mean_over(figure) else ''}", p99]


def is_mean_over(figure: Figure) -> bool:
    """Whether a mean is too far above its median: goals are for recorded rows."""
    has_goal = figure["limit"] is not None and figure["source"] == FILE
    return has_goal and bool(figure["mean_us"] > MEAN_MARGIN * figure["us"])


def facts_line(report: Report) -> str:
    """Describe the machine and the versions in one line."""
    figure = report.figures[0]
    versions = ", ".join(f"{name} {version}" for name, version in figure["versions"].items())
    isas = ", ".join(dict.fromkeys(f["isa"] for f in report.figures if f["table"] != "AVX2"))
    load = f"load average before the run {figure['load_average']:.2f}"
    kind = "Zen 4" if figure["zen4"] else "not Zen 4"
    return f"{figure['cpu']} ({kind}), {isas}, {versions}, {load}"


def as_table(sheet: Sheet) -> Table:
    """Format a sheet for the terminal."""
    grid = Table(title=sheet.title, box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0))
    for i, name in enumerate(sheet.header):
        is_text = all(not line[i][:1].isdigit() for line in sheet.lines)
        grid.add_column(name, justify="left" if is_text else "right")
    for line in sheet.lines:
        grid.add_row(*line)
    return grid


def as_markdown(sheet: Sheet, leave_out: tuple[str, ...] = ()) -> str:
    """Format a sheet as a Markdown table, without some columns."""
    kept = [i for i, name in enumerate(sheet.header) if name not in leave_out]
    lines = [sheet.header, ["---" if i == 0 else "--:" for i in range(len(sheet.header))]]
    return "\n".join(f"| {' | '.join(line[i] for i in kept)} |" for line in [*lines, *sheet.lines])
