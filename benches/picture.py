"""README's figure: the time per token by setting, for fastsample and its rivals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure as Canvas
from rivals import FULL_SORT, INVERSE, NUMPY, OURS, TORCH
from settings import SETTINGS
from sheets import title_of
from tables import Report

STYLES: dict[str, dict[str, Any]] = {
    "np.max": {"marker": "|", "color": "black", "s": 160},
    OURS: {"marker": "o", "color": "tab:red", "s": 60},
    INVERSE: {"marker": "o", "color": "tab:pink", "s": 30},
    NUMPY: {"marker": "s", "color": "tab:blue", "s": 36},
    FULL_SORT: {"marker": "D", "color": "tab:gray", "s": 36},
    TORCH: {"marker": "^", "color": "tab:orange", "s": 40},
}


def points(report: Report, source: str, vocabulary: int) -> dict[str, list[tuple[int, float]]]:
    """Return (line of the setting, microseconds) of each contender on these rows."""
    found: dict[str, list[tuple[int, float]]] = {name: [] for name in STYLES}
    for line, setting in enumerate(SETTINGS):
        for figure in report.of(
            table="settings", setting=setting.name, source=source, vocabulary=vocabulary
        ):
            found[figure["contender"]].append((line, figure["us"]))
            if figure["contender"] == OURS:
                found["np.max"].append((line, figure["partner_us"]))
    return found


def draw(report: Report, sets: list[tuple[str, int]], path: Path) -> None:
    """Draw one panel per set of rows as SVG; equal figures give equal bytes."""
    with matplotlib.rc_context({"svg.hashsalt": "fastsample", "svg.fonttype": "none"}):
        canvas = Canvas(figsize=(10, 4), layout="constrained")
        panels = canvas.subplots(1, len(sets), sharey=True, squeeze=False)[0]
        for axes, (source, vocabulary) in zip(panels, sets, strict=True):
            for name, places in points(report, source, vocabulary).items():
                lines, times = zip(*places, strict=True) if places else ((), ())
                axes.scatter(times, lines, label=name, zorder=2, **STYLES[name])
            axes.set_xscale("log")
            axes.set_xlabel("microseconds per token")
            axes.set_title(title_of(source, vocabulary), fontsize="medium")
            axes.grid(axis="x", which="both", color="0.9", zorder=0)
        panels[0].set_yticks(range(len(SETTINGS)), [setting.name for setting in SETTINGS])
        panels[0].invert_yaxis()
        canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        if report.noisy:
            canvas.suptitle("NOISY: other work ran on this machine")
        path.parent.mkdir(parents=True, exist_ok=True)
        canvas.savefig(path, format="svg", metadata={"Date": None})
