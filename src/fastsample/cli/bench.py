"""`fastsample bench`: time per token on your own rows, next to `np.max` and a NumPy baseline."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastsample import Latency, Sampler, SamplingParams, info, sample

from .baseline import STAGES as BASELINE_STAGES
from .baseline import BaselineSampler
from .files import naming, read_rows
from .interleave import QUIET, Call, load_average, time_interleaved
from .options import LogitsFile, describe, sampling_options, stage_values, stages_in_use
from .plots import draw_latencies, require_matplotlib, shares

OURS, BASELINE, MAXIMUM = "fastsample", "NumPy baseline", "np.max"
TIMES = ("p50", "p90", "p99", "max")
BARS, BAR_WIDTH = 18, 20
FLOAT16_NOTE = f"{MAXIMUM} is slow on float16, so the ratios are too low: compare microseconds"


@dataclass(frozen=True)
class Settings:
    """What is timed: sampling parameters and how they are run."""

    params: SamplingParams
    repeat: int
    batch: int
    isa: str | None
    n_threads: int | None
    reduction: str

    def __str__(self) -> str:
        """The parameters, and the reduction if it is not the default."""
        mode = "" if self.reduction == "exact" else f", reduction {self.reduction}"
        return describe(self.params) + mode


@dataclass(frozen=True)
class Run:
    """A measurement: settings, rows, machine and times."""

    file: Path
    shape: tuple[int, int]
    dtype: str
    settings: Settings
    isa: str
    load: float
    latencies: dict[str, Latency]


@sampling_options
def bench(
    file: LogitsFile,
    params: SamplingParams,
    repeat: Annotated[int, typer.Option(help="How many times each row is timed.")] = 20,
    isa: Annotated[
        str | None,
        typer.Option(help="The instruction set; `fastsample info` lists those of this machine."),
    ] = None,
    batch: Annotated[
        int, typer.Option(help="How many rows a call samples from; times are per token.")
    ] = 1,
    threads: Annotated[
        int | None,
        typer.Option(
            help="The most threads that the rows of a batch are distributed over; chosen by rows x "
            "vocabulary by default."
        ),
    ] = None,
    reduction: Annotated[
        str, typer.Option(help='How masses are added: "exact", "fixed" or "fast".')
    ] = "exact",
    no_baseline: Annotated[
        bool, typer.Option("--no-baseline", help="Skip the NumPy baseline, which takes longest.")
    ] = False,
    svg: Annotated[Path | None, typer.Option(help="Write the histogram to this SVG file.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write the histogram to this PNG file.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all results to this JSON file.")
    ] = None,
) -> None:
    """Time the sampling of every row of a file, compared with np.max and a NumPy baseline."""
    check_outputs(file, {"--svg": svg, "--png": png, "--json": json_file})
    figures = {kind: path for kind, path in (("svg", svg), ("png", png)) if path is not None}
    if figures:
        require_matplotlib()
    if repeat < 1:
        raise ValueError(f"--repeat must be at least 1, got {repeat} (passes over the rows)")
    if threads is not None and batch == 1:
        raise ValueError(
            f"--threads {threads} needs a --batch above 1: rows are distributed over threads, one "
            "row is never split (give --batch, or leave --threads out)"
        )
    settings = Settings(params, repeat, batch, isa, threads, reduction)
    run = measure(file, settings, not no_baseline)
    # Files are written first: a pipe that breaks during printing must not lose the results.
    if json_file is not None:
        with naming(json_file):
            json_file.write_text(json.dumps(as_json(run), indent=2) + "\n", encoding="utf-8")
    for kind, path in figures.items():
        with naming(path):
            draw_latencies(run.latencies, caption(run), {kind: path})
    report(Console(), run)


def check_outputs(file: Path, paths: Mapping[str, Path | None]) -> None:
    """Refuse, before the measurement, outputs that cannot be written or would overwrite a file."""
    taken = {file.resolve(): "the file of the rows"}
    for option, path in paths.items():
        if path is None:
            continue
        if path.is_dir() or not path.parent.is_dir():
            raise ValueError(f"{option} must name a file in an existing folder, got {path}")
        if path.resolve() in taken:
            raise ValueError(
                f"{option} must name a file of its own, got {path}, {taken[path.resolve()]} (it "
                "would be overwritten)"
            )
        taken[path.resolve()] = f"the file of {option}"


def measure(file: Path, settings: Settings, with_baseline: bool) -> Run:
    """Time a draw and `np.max` interleaved on the rows of a file, then the NumPy baseline alone.

    The baseline's sort of the row evicts caches, which no call in a loop without it would find.
    """
    batch, repeat = settings.batch, settings.repeat
    rows = read_full_batches(file, batch)
    load = load_average()
    sampler = Sampler(
        settings.params,
        isa=settings.isa,
        n_threads=settings.n_threads,
        reduction=settings.reduction,
        seed=0,
    )
    sample(rows, temperature=0)  # raises for the first row that is invalid, and names it
    items = rows if batch == 1 else rows.reshape(-1, batch, rows.shape[1])
    calls: dict[str, Call] = {OURS: sampler, MAXIMUM: by_row(np.max, batch)}
    latencies = time_interleaved(calls, items, repeat, batch)
    if with_baseline and not missing_in_baseline(settings.params):
        baseline = {BASELINE: by_row(BaselineSampler(replace(settings.params, seed=0)), batch)}
        float32_items = items.astype(np.float32, copy=False)
        latencies |= time_interleaved(baseline, float32_items, repeat, batch)
    facts = info()
    isa = settings.isa or facts["isa"] or facts["engine"]
    return Run(file, rows.shape, rows.dtype.name, settings, isa, load, latencies)


def missing_in_baseline(params: SamplingParams) -> list[str]:
    """List the stages in use that the baseline does not have."""
    return [name for name in stages_in_use(params) if name not in BASELINE_STAGES]


def read_full_batches(file: Path, batch: int) -> NDArray[Any]:
    """Read rows of shape (B, V), without those that do not fill a last batch."""
    rows = read_rows(file, ("float32", "float16"))
    if not len(rows):
        raise ValueError(f"{file} must hold at least one row, got shape {rows.shape}")
    if not 1 <= batch <= len(rows):
        raise ValueError(f"--batch must be in [1, {len(rows)}], the rows of {file}, got {batch}")
    return np.array(rows[: len(rows) // batch * batch])


def by_row(call: Call, batch: int) -> Call:
    """Apply a call of one row to each row of a batch."""
    return call if batch == 1 else lambda rows: [call(row) for row in rows]


def report(console: Console, run: Run) -> None:
    """Print the times, the histogram and the conditions of the measurement."""
    if run.load > QUIET:
        typer.echo(
            f"fastsample: this machine is busy (load average {run.load:.2f}): run it again when "
            "nothing else runs",
            err=True,
        )
    (count, vocabulary), settings = run.shape, run.settings
    threads = "default threads" if settings.n_threads is None else f"{settings.n_threads} thread(s)"
    size = count * vocabulary * np.dtype(run.dtype).itemsize / 1e6
    baseline = (
        f", then the {BASELINE}, which sorts the row if a filter is on"
        if BASELINE in run.latencies
        else ""
    )
    lines = [
        str(settings),
        f"{count} row(s) of {vocabulary:,} logits ({run.dtype}, {size:.1f} MB), {settings.batch} "
        f"per call, each {settings.repeat} time(s) after a warm-up pass; {OURS} and {MAXIMUM} "
        f"interleaved{baseline}",
        f"{run.isa}, {threads}, {info()['cpu']}, numpy {np.__version__}, "
        f"load average {run.load:.2f}",
    ]
    if missing := missing_in_baseline(settings.params):
        lines.append(f"no {BASELINE}: it does not have {', '.join(missing)}")
    if run.dtype == "float16":
        lines.append(FLOAT16_NOTE)
    for line in lines:
        console.print(Text(line))
    console.print(latency_table(run.latencies))
    console.print(Text("distribution of times per token; a full bar is half of all calls"))
    console.print(histogram(run.latencies, "#" if console.options.ascii_only else "█"))


def caption(run: Run) -> str:
    """Describe a measurement in two lines, for a figure that is shown alone."""
    count, vocabulary = run.shape
    busy = f", BUSY: load average {run.load:.2f}" if run.load > QUIET else ""
    batch = f", {run.settings.batch} per call" if run.settings.batch > 1 else ""
    return (
        f"{run.settings}, V = {vocabulary:,}\n"
        f"{count} row(s) of {run.dtype}{batch}, {run.isa}, {info()['cpu']}{busy}"
    )


def latency_table(latencies: Mapping[str, Latency]) -> Table:
    """Format percentiles in microseconds, and medians as multiples of that of `np.max`."""
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for name in ("us per token", *TIMES, f"p50 x {MAXIMUM}"):
        grid.add_column(name, justify="left" if name == "us per token" else "right", no_wrap=True)
    for name, latency in latencies.items():
        times = (f"{getattr(latency, time) / 1e3:.1f}" for time in TIMES)
        grid.add_row(name, *times, f"{latency.p50 / latencies[MAXIMUM].p50:.2f}")
    return grid


def histogram(latencies: Mapping[str, Latency], mark: str) -> Table:
    """Format one bar per range of times and name, on one logarithmic scale."""
    edges, found = shares(latencies, BARS)
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    grid.add_column("from us", justify="right", no_wrap=True)
    for name in latencies:
        grid.add_column(name, width=BAR_WIDTH, no_wrap=True)
    for i in range(BARS):
        bars = (bar(float(found[name][i]), mark) for name in latencies)
        grid.add_row(f"{edges[i] / 1e3:.1f}", *bars)
    return grid


def bar(share: float, mark: str) -> str:
    """Draw a share of all calls: one half fills the width, any calls have at least one mark."""
    return mark * min(int(np.ceil(2 * share * BAR_WIDTH)), BAR_WIDTH)


def as_json(run: Run) -> dict[str, Any]:
    """Return all results and conditions; times in nanoseconds."""
    settings = run.settings
    return {
        "file": str(run.file),
        "rows": run.shape[0],
        "vocabulary": run.shape[1],
        "dtype": run.dtype,
        "batch": settings.batch,
        "parameters": stage_values(settings.params),
        "repeat": settings.repeat,
        "isa": run.isa,
        "n_threads": settings.n_threads,
        "reduction": settings.reduction,
        "load_average": run.load,
        "busy": run.load > QUIET,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": info(),
        "nanoseconds": {name: times_of(latency) for name, latency in run.latencies.items()},
    }


def times_of(latency: Latency) -> dict[str, Any]:
    """Return the statistics and the histogram of one name's times."""
    counts, edges = latency.histogram()
    return {
        "count": latency.count,
        **{name: getattr(latency, name) for name in ("mean", *TIMES)},
        "histogram": {"counts": counts.tolist(), "edges": edges.tolist()},
    }
