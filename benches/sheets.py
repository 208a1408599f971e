"""The tables of a bench run, one function each."""

from __future__ import annotations

from collections.abc import Iterable

from rivals import ARGMAX, FULL_SORT, INVERSE, NUMPY, OURS, TORCH
from rows import COUNT, FILE, FILE_COUNT, GENERATOR, SMOLLM2
from settings import SETTINGS, WORST_RATIO, WORST_US
from tables import FLOOR, Figure, Report, Sheet, number, one, ratio, times

EXACT, FIXED = "exact", "fixed"
TIMES = ["median us", "mean", "p99"]
SOURCES = {
    FILE: f"{FILE_COUNT} recorded rows",
    SMOLLM2: f"{COUNT} rows of SmolLM2",
    GENERATOR: f"{COUNT} generated rows",
}
"""The sources of rows in the order of the page, and what titles call them."""


def title_of(source: str, vocabulary: int) -> str:
    """Name a set of rows."""
    return f"{SOURCES[source]}, V = {vocabulary:,}"


def sets_of(report: Report, table: str = "settings") -> list[tuple[str, int]]:
    """List the sets of rows of a table, in the order of the page."""
    order = list(SOURCES)
    found = {(f["source"], f["vocabulary"]) for f in report.of(table=table)}
    return sorted(found, key=lambda key: (order.index(key[0]), key[1]))


def without_empty_columns(sheet: Sheet) -> Sheet:
    """Leave out the columns that hold nothing."""
    full = [i for i in range(len(sheet.header)) if any(line[i] for line in sheet.lines)]
    lines = [[line[i] for i in full] for line in sheet.lines]
    return Sheet(sheet.title, [sheet.header[i] for i in full], lines)


def settings_sheet(report: Report, source: str, vocabulary: int) -> Sheet:
    """Every setting on one set of rows: fastsample by both ways to draw, NumPy and the rivals."""
    rivals = [FULL_SORT, NUMPY, TORCH]
    header = ["", *TIMES, FLOOR, f"x {FLOOR}", "goal", f"inverse, x {FLOOR}", *rivals]
    rows = {"source": source, "vocabulary": vocabulary}
    lines = numpy_lines(report, len(header), **rows)
    for setting in SETTINGS:
        here = {
            f["contender"]: f for f in report.of(table="settings", setting=setting.name, **rows)
        }
        if OURS not in here:
            continue
        ours = here[OURS]
        inverse = ratio(report, here[INVERSE]) if INVERSE in here else ""
        others = [number(here[name]["us"]) if name in here else "" for name in rivals]
        cells = [number(ours["partner_us"]), ratio(report, ours), number(ours["limit"])]
        lines.append([setting.name, *times(ours), *cells, inverse, *others])
    title = f"{title_of(source, vocabulary)}: microseconds per token"
    return without_empty_columns(Sheet(title, header, lines))


def numpy_lines(report: Report, width: int, **rows: str | int) -> list[list[str]]:
    """Lines of `np.max` and `np.argmax` on a set of rows, in a table of so many columns."""
    figure = one(report.of(table="settings", contender=ARGMAX, **rows))
    if figure is None:
        return []
    lines = [
        [FLOOR, *times(figure, "partner_"), "", "1.00"],
        [ARGMAX, *times(figure), number(figure["partner_us"]), ratio(report, figure)],
    ]
    return [[*line, *[""] * (width - len(line))] for line in lines]


def compared_sheet(
    report: Report, table: str, title: str, column: str, names: Iterable[str] = ()
) -> Sheet:
    """Lines of setting, set of rows, times, what they are compared with, ratio and goal."""
    named = tuple(names)
    header = ["setting", "rows", *named, *TIMES, column, "ratio", "goal"]
    lines = []
    for source, vocabulary in sets_of(report, table):
        about = {"source": source, "vocabulary": vocabulary}
        argmax = report.of(table="settings", contender=ARGMAX, **about) if column == FLOOR else []
        for figure in (*argmax, *report.of(table=table, **about)):
            cells = [number(figure["partner_us"]), ratio(report, figure), number(figure["limit"])]
            extra = [str(figure[name]) for name in named]
            rows = f"{source}, {vocabulary:,}"
            lines.append([figure["setting"], rows, *extra, *times(figure), *cells])
    return without_empty_columns(Sheet(title, header, lines))


def option_sheets(report: Report) -> list[Sheet]:
    """The cost of each option against its alternative, microseconds per token."""
    return [
        compared_sheet(report, "logprobs", "with logprobs=0, raw", FLOOR),
        compared_sheet(report, "AVX2", "on AVX2", FLOOR),
        compared_sheet(report, "softmax", "softmax into out", FLOOR),
        compared_sheet(report, "draws", "n=1000 draws of a row", "a call for each", ["draw"]),
        compared_sheet(report, "dtype", "rows of 16-bit floats", "float32 rows", ["dtype"]),
        compared_sheet(report, "batch", "a batch in one call", "row by row", ["batch"]),
        compared_sheet(report, "threads", "32 rows on two threads", "one thread"),
    ]


def reductions_sheet(report: Report) -> Sheet:
    """The exact and fixed reductions against fast, which guarantees nothing."""
    header = ["setting", *(f"fast, {name}" for name in TIMES)]
    for reduction in (EXACT, FIXED):
        header += [*(f"{reduction}, {name}" for name in TIMES), "x fast", "goal"]
    lines = []
    for setting in dict.fromkeys(f["setting"] for f in report.of(table="reductions")):
        here = report.of(table="reductions", setting=setting)
        line = [setting, *times(here[0], "partner_")]
        for reduction in (EXACT, FIXED):
            figure = one(f for f in here if f["reduction"] == reduction)
            line += [""] * 5 if figure is None else _against(report, figure)
        lines.append(line)
    title = "cost of determinism: generated rows, V = 151,936, the inverse method"
    return Sheet(title, header, lines)


def _against(report: Report, figure: Figure) -> list[str]:
    return [*times(figure), ratio(report, figure), number(figure["limit"])]


def sums_sheet(report: Report) -> Sheet:
    """Sums of one array: `reduce_sum` and other libraries."""
    header = ["sum", *TIMES, "np.sum", "x np.sum", "GB/s"]
    figures = report.of(table="sums")
    lines = [
        [
            figure["contender"],
            *times(figure),
            number(figure["partner_us"]),
            ratio(report, figure),
            number(figure["bytes_per_second"] / 1e9),
        ]
        for figure in figures
    ]
    sizes = " and ".join(f"{size:,}" for size in dict.fromkeys(f["vocabulary"] for f in figures))
    return Sheet(f"sums of {sizes} float32 numbers", header, lines)


def calls_sheet(report: Report) -> Sheet:
    """Calls on rows of 16 tokens."""
    header = ["call", *TIMES, FLOOR]
    lines = [
        [figure["setting"], *times(figure), number(figure["partner_us"])]
        for figure in report.of(table="calls")
    ]
    return Sheet("call overhead: rows of 16 tokens, microseconds per call", header, lines)


def adversarial_sheet(report: Report) -> Sheet:
    """Rows that no model produces: median / mean / p99 of the race, and of NumPy's passes."""
    figures = report.of(table="adversarial")
    shapes = list(dict.fromkeys(figure["source"] for figure in figures))
    floors = {f["source"]: f for f in figures if f["contender"] == ARGMAX}
    lines = [
        [FLOOR, *(triple(floors.get(shape), "partner_") for shape in shapes)],
        [ARGMAX, *(triple(floors.get(shape)) for shape in shapes)],
    ]
    ours = [figure for figure in figures if figure["contender"] == OURS]
    for setting in dict.fromkeys(figure["setting"] for figure in ours):
        here = {figure["source"]: figure for figure in ours if figure["setting"] == setting}
        lines.append([setting, *(triple(here.get(shape)) for shape in shapes)])
    title = "adversarial rows, V = 151,936: microseconds, median / mean / p99"
    return Sheet(title, ["setting", *shapes], lines if figures else [])


def triple(figure: Figure | None, prefix: str = "") -> str:
    """Format the times of a measurement in one cell."""
    return "" if figure is None else " / ".join(times(figure, prefix))


def bound_sheet(report: Report) -> Sheet:
    """Means of the race on adversarial rows in medians of the inverse method; `!` is over."""
    ours = report.of(table="adversarial", contender=OURS)
    shapes = list(dict.fromkeys(figure["source"] for figure in ours))
    lines = []
    for setting in dict.fromkeys(figure["setting"] for figure in ours):
        here = {figure["source"]: figure for figure in ours if figure["setting"] == setting}
        lines.append([setting, *(in_medians(here[s]) if s in here else "" for s in shapes)])
    title = "adversarial rows: mean of the race / median of the inverse method"
    return Sheet(title, ["setting", *shapes], lines)


def in_medians(figure: Figure) -> str:
    """Format a mean as a multiple of the inverse method's median."""
    inverse = figure["partner_us"]
    over = figure["mean_us"] > max(WORST_RATIO * inverse, inverse + WORST_US)
    return f"{figure['mean_us'] / inverse:.2f}{' !' if over else ''}"


def sheets(report: Report) -> list[Sheet]:
    """Build all tables of a run."""
    settings = [settings_sheet(report, *rows) for rows in sets_of(report)]
    others = (reductions_sheet, sums_sheet, adversarial_sheet, bound_sheet, calls_sheet)
    made = [*settings, *option_sheets(report), *(make(report) for make in others)]
    return [sheet for sheet in made if sheet.lines]
