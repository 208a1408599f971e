"""The sentences of the pages that hold figures of a bench run."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from rivals import ARGMAX, INVERSE, OURS
from rows import FILE
from settings import FIXED_LIMIT, MEAN_MARGIN, VOCABULARIES
from sheets import EXACT, FIXED
from tables import Figure, Report, is_mean_over, number, one, over

WIDTH = 112
TABLES = {"settings": "Draws", "logprobs": "With `logprobs=0`", "AVX2": "On AVX2"}
"""The tables whose goals are counted, and how sentences about them begin."""

LEADS = ("usual chain", "T .8", "top_p .9", "top_p .95, T 1.5")


def wrapped(text: str) -> str:
    """Break a paragraph into lines."""
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"


def listed(parts: Iterable[str]) -> str:
    """Join with commas, and "and" before the last."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def cost(report: Report) -> str:
    """What a token costs by the race and by the inverse method, in `np.max` of its row."""
    rows = {"source": FILE, "vocabulary": VOCABULARIES[0]}
    races, inverses = [], []
    for name in LEADS:
        about = {"table": "settings", "setting": name, **rows}
        race, inverse = (one(report.of(contender=who, **about)) for who in (OURS, INVERSE))
        if race is None or inverse is None:
            raise ValueError(
                f"the run has no figures of {name} on recorded rows of V = {VOCABULARIES[0]:,}: "
                "name a file of rows as long or longer in FASTSAMPLE_LOGITS"
            )
        races.append(f"{race['ratio']:.2f} ({name})")
        inverses.append(f"{inverse['ratio']:.2f}")
    return wrapped(
        "**What a token costs**, in `np.max` of its row, which is one pass over the logits: "
        f'{listed(races)}. By running sums (`draw="inverse"`): {listed(inverses)}. Medians on '
        f"recorded rows of V = {VOCABULARIES[0]:,}, one thread, {processor(report)}."
    )


def processor(report: Report) -> str:
    """Name the processor."""
    return str(report.figures[0]["cpu"])


def goals(report: Report, tables: Iterable[str], vocabularies: Iterable[int] = VOCABULARIES) -> str:
    """How many goals of some tables are met on recorded rows, and by how much draws miss theirs.

    Misses are listed for these vocabularies.
    """
    kind = "is one" if report.figures[0]["zen4"] else "is none: its figures are reported"
    text = [f"The goals are for AMD's Zen 4; this processor {kind}."]
    for table in tables:
        bound = [f for f in report.of(table=table, source=FILE) if f["limit"] is not None]
        missed = [f for f in bound if over(f)]
        means = [f for f in bound if is_mean_over(f)]
        text.append(
            f"{TABLES[table]}: {len(bound) - len(missed)} of {len(bound)} medians meet their goal, "
            f"and {len(bound) - len(means)} means are within {MEAN_MARGIN} of their median."
        )
        if table == "settings" and (listing := by_vocabulary(missed, vocabularies)):
            text.append(f"Missed (goal): {listing}.")
    if behind := [f"{size:,}" for size in VOCABULARIES if is_behind_argmax(report, size)]:
        text.append(f"Greedy is slower than `np.argmax` at V = {listed(behind)}.")
    return wrapped(" ".join(text))


def by_vocabulary(missed: list[Figure], vocabularies: Iterable[int]) -> str:
    """List missed goals by vocabulary, each with its ratio and its goal."""
    parts = []
    for size in vocabularies:
        here = [f for f in missed if f["vocabulary"] == size]
        cells = [f"{f['setting']} {f['ratio']:.2f} ({number(f['limit'])})" for f in here]
        parts += [f"at V = {size:,} {listed(cells)}"] if cells else []
    return "; ".join(parts)


def is_behind_argmax(report: Report, vocabulary: int) -> bool:
    """Whether greedy takes more `np.max` of the same rows than `np.argmax` does."""
    rows = {"table": "settings", "source": FILE, "vocabulary": vocabulary}
    greedy = one(report.of(setting="greedy", contender=OURS, **rows))
    argmax = one(report.of(contender=ARGMAX, **rows))
    return greedy is not None and argmax is not None and bool(greedy["ratio"] > argmax["ratio"])


def reductions(report: Report) -> str:
    """What exact and fixed cost, in multiples of fast."""
    parts = []
    for reduction in (EXACT, FIXED):
        figures = report.of(table="reductions", reduction=reduction)
        ratios = sorted(figure["ratio"] for figure in figures)
        chain = one(f for f in figures if f["setting"] == "usual chain")
        on_chain = f", {chain['ratio']:.2f} on the usual chain" if chain else ""
        parts.append(f"{reduction} takes {ratios[0]:.2f} to {ratios[-1]:.2f} of fast{on_chain}")
    over_fixed = [f["setting"] for f in report.of(table="reductions", reduction=FIXED) if over(f)]
    text = f"On {processor(report)} {'; '.join(parts)}. Fixed is to take at most {FIXED_LIMIT}"
    text += f", and takes more at {listed(over_fixed)}." if over_fixed else "."
    return wrapped(text)
