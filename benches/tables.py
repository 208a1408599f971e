"""Tables of a finished run: pytest-benchmark's JSON in, text for terminal and README out."""

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
"""An `np.max` that took so many times what others of the same rows did is no floor to stand on."""

EXACT, FIXED = "exact", "fixed"

COSTS = ("logprobs", "softmax", "AVX2", "dtype", "batch", "threads")


@dataclass(frozen=True)
class Report:
    """What a run measured: a figure per bench, as benches/conftest.py writes it into extra_info."""

    figures: list[Figure]
    noisy: bool

    def of(self, **wanted: Any) -> list[Figure]:
        """Figures that have all these values."""
        return [
            figure
            for figure in self.figures
            if all(figure[name] == value for name, value in wanted.items())
        ]

    def is_doubtful(self, figure: Figure) -> bool:
        """Whether its `np.max` was slow: its ratio is then too low, and may pass for no reason."""
        if figure["partner"] != FLOOR:
            return False
        about = {name: figure[name] for name in ("source", "vocabulary", "partner")}
        usual = median(other["partner_us"] for other in self.of(**about))
        return bool(figure["partner_us"] > SLOW_FLOOR * usual)


@dataclass(frozen=True)
class Sheet:
    """A table as text."""

    title: str
    header: list[str]
    lines: list[list[str]]


def read_report(path: Path) -> Report:
    """Read pytest-benchmark's JSON; benches that only skipped have no figure."""
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
    """The figure, where there is one."""
    return next(iter(figures), None)


def number(value: float | None, digits: int = 3) -> str:
    """Write a number with so many digits that count, never as a power of ten."""
    if value is None:
        return ""
    whole = f"{value:.{digits}g}"
    return f"{float(whole):,.0f}" if "e" in whole or abs(value) >= 10 ** (digits - 1) else whole


def over(figure: Figure) -> bool:
    """Whether a figure misses what it aims at."""
    return figure["limit"] is not None and figure["ratio"] > figure["limit"]


def ratio(report: Report, figure: Figure) -> str:
    """Write a ratio, with a mark where it is over, and one where it cannot be relied on."""
    marks = f"{' !' if over(figure) else ''}{' ?' if report.is_doubtful(figure) else ''}"
    return f"{figure['ratio']:.2f}{marks}"


def sets_of(report: Report) -> list[tuple[str, int]]:
    """The sets of rows of the first table, in the order that they are shown in."""
    sources = (SMOLLM2, GENERATOR, FILE)
    found = {(f["source"], f["vocabulary"]) for f in report.of(table="settings")}
    return sorted(found, key=lambda key: (sources.index(key[0]), key[1]))


def settings_sheet(report: Report, source: str, vocabulary: int) -> Sheet:
    """Every setting on one set of rows: ours, the floor, the rivals; microseconds a token."""
    header = ["setting", OURS, "p99", "np.max", "in np.max", "aim", FULL_SORT, NUMPY, TORCH]
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
    return Sheet(f"{source}, V = {vocabulary:,}: microseconds a token", header, lines)


def costs_sheet(report: Report) -> Sheet:
    """What each choice costs, against what it is an alternative to."""
    header = ["", "setting", "us", "against", "us", "ratio", "aim", "GB/s"]
    lines = []
    for table in COSTS:
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
    return Sheet("what a choice costs: generator, V = 151,936, a token", header, lines)


def reductions_sheet(report: Report) -> Sheet:
    """Each promise against fast, which promises nothing; both took turns with it."""
    header = ["setting", "fast, us", EXACT, "in fast", "aim", FIXED, "in fast", "aim"]
    lines = []
    for setting in dict.fromkeys(f["setting"] for f in report.of(table="reductions")):
        here = report.of(table="reductions", setting=setting)
        line = [setting, number(median(figure["partner_us"] for figure in here))]
        for reduction in (EXACT, FIXED):
            figure = one(f for f in here if f["reduction"] == reduction)
            line += ["", "", ""] if figure is None else _against(report, figure)
        lines.append(line)
    return Sheet("what a promise costs: generator, V = 151,936, a token", header, lines)


def _against(report: Report, figure: Figure) -> list[str]:
    return [number(figure["us"]), ratio(report, figure), number(figure["limit"])]


def sums_sheet(report: Report) -> Sheet:
    """Sums of one array, ours and others'."""
    header = ["sum", "us", "np.sum", "in np.sum", "GB/s"]
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


def spiteful_sheet(report: Report) -> Sheet:
    """Rows that no model makes: in `np.max` of the same rows, and the most that is aimed at."""
    figures = report.of(table="spiteful")
    shapes = list(dict.fromkeys(figure["source"] for figure in figures))
    lines = []
    for setting in dict.fromkeys(figure["setting"] for figure in figures):
        here = {figure["source"]: figure for figure in figures if figure["setting"] == setting}
        limit = number(next(iter(here.values()))["limit"])
        ratios = (ratio(report, here[shape]) if shape in here else "" for shape in shapes)
        lines.append([setting, limit, *ratios])
    return Sheet("spiteful rows, V = 151,936: in np.max", ["setting", "aim", *shapes], lines)


def sheets(report: Report) -> list[Sheet]:
    """All tables of a run."""
    settings = [settings_sheet(report, *rows) for rows in sets_of(report)]
    others = (costs_sheet, reductions_sheet, sums_sheet, spiteful_sheet)
    return [sheet for sheet in (*settings, *(make(report) for make in others)) if sheet.lines]


def facts_line(report: Report) -> str:
    """Tell the machine and the versions in one line."""
    figure = report.figures[0]
    versions = ", ".join(f"{name} {version}" for name, version in figure["versions"].items())
    isas = ", ".join(dict.fromkeys(f["isa"] for f in report.figures if f["table"] != "AVX2"))
    return f"{figure['cpu']}, {isas}, {versions}, load average {figure['load_average']:.2f} before"


def as_table(sheet: Sheet) -> Table:
    """Lay a sheet out for the terminal."""
    grid = Table(title=sheet.title, box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0))
    for i, name in enumerate(sheet.header):
        words = all(not line[i][:1].isdigit() for line in sheet.lines)
        grid.add_column(name, justify="left" if words else "right")
    for line in sheet.lines:
        grid.add_row(*line)
    return grid


def as_markdown(sheet: Sheet, leave_out: tuple[str, ...] = ()) -> str:
    """Write a sheet as a Markdown table, without some columns."""
    kept = [i for i, name in enumerate(sheet.header) if name not in leave_out]
    lines = [sheet.header, ["---" if i == 0 else "--:" for i in range(len(sheet.header))]]
    return "\n".join(f"| {' | '.join(line[i] for i in kept)} |" for line in [*lines, *sheet.lines])
