"""Format the JSON of a bench run as tables, for the terminal and for the pages."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich import box
from rich.table import Table
from rivals import FULL_SORT, NUMPY, OURS, TORCH
from rows import FILE, GENERATOR, SMOLLM2
from settings import SETTINGS

Figure = dict[str, Any]
FLOOR = "np.max"
SLOW_FLOOR = 1.25
"""Above this multiple of its usual time on the same rows, an `np.max` measurement is unreliable."""

EXACT, FIXED = "exact", "fixed"

OPTIONS = ("logprobs", "softmax", "AVX2", "dtype", "batch", "threads")


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
            if all(figure[name] == value for name, value in wanted.items())
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
    """Whether a measurement misses its target."""
    return figure["limit"] is not None and figure["ratio"] > figure["limit"]


def ratio(report: Report, figure: Figure) -> str:
    """Format a ratio: `!` misses the target, `?` has an unreliable `np.max`."""
    marks = f"{' !' if over(figure) else ''}{' ?' if report.is_doubtful(figure) else ''}"
    return f"{figure['ratio']:.2f}{marks}"


def sets_of(report: Report) -> list[tuple[str, int]]:
    """List the sets of rows of the settings tables, in the order of the page."""
    sources = (SMOLLM2, GENERATOR, FILE)
    found = {(f["source"], f["vocabulary"]) for f in report.of(table="settings")}
    return sorted(found, key=lambda key: (sources.index(key[0]), key[1]))


def settings_sheet(report: Report, source: str, vocabulary: int) -> Sheet:
    """Every setting on one set of rows: fastsample, `np.max` and the rivals."""
    header = ["setting", OURS, "p99", "np.max", "x np.max", "target", FULL_SORT, NUMPY, TORCH]
    lines = []
    for setting in SETTINGS:
        here = {
            figure["contender"]: figure
            for figure in report.of(
                table="settings", setting=setting.name, source=source, vocabulary=vocabulary
            )
        }
        if OURS not in here:
            continue
        ours = here[OURS]
        rivals = [number(here[name]["us"]) if name in here else "" for name in header[-3:]]
        times = [number(ours[name]) for name in ("us", "p99_us", "partner_us")]
        lines.append([setting.name, *times, ratio(report, ours), number(ours["limit"]), *rivals])
    return Sheet(f"{source}, V = {vocabulary:,}: microseconds per token", header, lines)


def options_sheet(report: Report) -> Sheet:
    """The cost of each option, against its alternative."""
    header = ["option", "setting", "us", "compared with", "us", "ratio", "target", "GB/s"]
    lines = []
    for table in OPTIONS:
        for figure in report.of(table=table):
            kind = {
                "softmax": figure["contender"],
                "dtype": figure["dtype"],
                "batch": f"B = {figure['batch']}",
                "threads": f"B = {figure['batch']}, {figure['threads']} threads",
            }.get(table, table)
            lines.append(
                [
                    kind,
                    figure["setting"],
                    number(figure["us"]),
                    figure["partner"],
                    number(figure["partner_us"]),
                    ratio(report, figure),
                    number(figure["limit"]),
                    number(figure["bytes_per_second"] / 1e9),
                ]
            )
    return Sheet("cost of options: generator, V = 151,936, per token", header, lines)


def reductions_sheet(report: Report) -> Sheet:
    """The exact and fixed reductions against fast, which guarantees nothing."""
    header = ["setting", "fast, us"]
    for reduction in (EXACT, FIXED):
        header += [f"{reduction}, us", "x fast", "target"]
    lines = []
    for setting in dict.fromkeys(f["setting"] for f in report.of(table="reductions")):
        here = report.of(table="reductions", setting=setting)
        line = [setting, number(median(figure["partner_us"] for figure in here))]
        for reduction in (EXACT, FIXED):
            figure = one(f for f in here if f["reduction"] == reduction)
            line += ["", "", ""] if figure is None else _against(report, figure)
        lines.append(line)
    return Sheet("cost of determinism: generator, V = 151,936, per token", header, lines)


def _against(report: Report, figure: Figure) -> list[str]:
    return [number(figure["us"]), ratio(report, figure), number(figure["limit"])]


def sums_sheet(report: Report) -> Sheet:
    """Sums of one array: `reduce_sum` and other libraries."""
    header = ["sum", "us", "np.sum", "x np.sum", "GB/s"]
    figures = report.of(table="sums")
    lines = [
        [
            figure["contender"],
            *(number(figure[name]) for name in ("us", "partner_us")),
            ratio(report, figure),
            number(figure["bytes_per_second"] / 1e9),
        ]
        for figure in figures
    ]
    sizes = " and ".join(f"{size:,}" for size in dict.fromkeys(f["vocabulary"] for f in figures))
    return Sheet(f"sums of {sizes} float32 numbers", header, lines)


def adversarial_sheet(report: Report) -> Sheet:
    """Rows that no model produces: multiples of `np.max` of the same rows."""
    figures = report.of(table="adversarial")
    shapes = list(dict.fromkeys(figure["source"] for figure in figures))
    lines = []
    for setting in dict.fromkeys(figure["setting"] for figure in figures):
        here = {figure["source"]: figure for figure in figures if figure["setting"] == setting}
        limit = number(next(iter(here.values()))["limit"])
        ratios = (ratio(report, here[shape]) if shape in here else "" for shape in shapes)
        lines.append([setting, limit, *ratios])
    return Sheet("adversarial rows, V = 151,936: x np.max", ["setting", "target", *shapes], lines)


def sheets(report: Report) -> list[Sheet]:
    """Build all tables of a run."""
    settings = [settings_sheet(report, *rows) for rows in sets_of(report)]
    others = (options_sheet, reductions_sheet, sums_sheet, adversarial_sheet)
    return [sheet for sheet in (*settings, *(make(report) for make in others)) if sheet.lines]


def facts_line(report: Report) -> str:
    """Describe the machine and the versions in one line."""
    figure = report.figures[0]
    versions = ", ".join(f"{name} {version}" for name, version in figure["versions"].items())
    isas = ", ".join(dict.fromkeys(f["isa"] for f in report.figures if f["table"] != "AVX2"))
    load = f"load average before the run {figure['load_average']:.2f}"
    return f"{figure['cpu']}, {isas}, {versions}, {load}"


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
