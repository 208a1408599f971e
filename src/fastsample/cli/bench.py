"""`fastsample bench`: time per token on your own rows, next to NumPy's passes and a baseline.

Hot and cold: one call after the other, and each call after the caches were swept and its row was
written anew, which is nearer to what it costs after a model's step.
"""

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
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastsample import Latency, Sampler, SamplingParams, info, sample

from .baseline import STAGES as BASELINE_STAGES
from .baseline import BaselineSampler
from .files import naming, read_rows
from .interleave import QUIET, SWEPT, Call, Sweep, load_average, time_after, time_interleaved
from .options import LogitsFile, describe, sampling_options, stage_values, stages_in_use
from .plots import draw_latencies, require_matplotlib, shares
from .tables import label, make_table, number

OURS, BASELINE, MAXIMUM, ARGMAX = "fastsample", "NumPy baseline", "np.max", "np.argmax"
HOT, COLD = STATES = ("hot", "cold")
TIMES = ("mean", "p50", "p90", "p99", "max")
TIMES_OF_OTHERS = ("p50", "p99")
BARS, BAR_WIDTH = 18, 20
COLD_CALLS = 100
"""How many cold calls are timed at most: each needs a sweep, of some milliseconds."""

Latencies = Mapping[str, Latency]
FLOAT16_NOTE = f"{MAXIMUM} is slow on float16, so the ratios are too low: compare microseconds"


@dataclass(frozen=True)
class Run:
    """What is timed, and how: parameters, options, rows and machine."""

    file: Path
    params: SamplingParams
    repeat: int
    batch: int
    isa: str | None
    n_threads: int | None
    reduction: str
    states: tuple[str, ...]
    load: float
    rows: NDArray[Any]

    def __str__(self) -> str:
        """The parameters, how a token is drawn, and the reduction if it is not the default."""
        draw = f", draw {self.draw}" if self.params.temperature > 0 else ""
        mode = "" if self.reduction == "exact" else f", reduction {self.reduction}"
        return f"{describe(self.params)}{draw}{mode}"

    @property
    def items(self) -> NDArray[Any]:
        """What a call gets: rows of shape (V,), or batches of shape (B, V)."""
        return (
            self.rows if self.batch == 1 else self.rows.reshape(-1, self.batch, self.rows.shape[1])
        )

    @property
    def draw(self) -> str:
        """The way to draw: only the reduction exact has the race."""
        return self.params.draw or ("race" if self.reduction == "exact" else "inverse")

    @property
    def isa_in_use(self) -> str:
        """The instruction set or the engine that draws."""
        return str(self.isa or info()["isa"] or info()["engine"])

    @property
    def missing_in_baseline(self) -> list[str]:
        """The stages in use that the baseline does not have."""
        return [name for name in stages_in_use(self.params) if name not in BASELINE_STAGES]


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
    cold: Annotated[
        bool | None,
        typer.Option(
            "--cold/--hot",
            help=f"Time only cold calls, each after {SWEPT} MB were read and the row was written "
            "anew, or only hot ones; both by default.",
        ),
    ] = None,
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
    rows = read_full_batches(file, batch)
    states = STATES if cold is None else (COLD if cold else HOT,)
    run = Run(file, params, repeat, batch, isa, threads, reduction, states, load_average(), rows)
    latencies = measure(run, not no_baseline)
    # Files are written first: a pipe that breaks during printing must not lose the results.
    if json_file is not None:
        with naming(json_file):
            json_file.write_text(
                json.dumps(as_json(run, latencies), indent=2) + "\n", encoding="utf-8"
            )
    for kind, path in figures.items():
        with naming(path):
            draw_latencies(latencies[states[0]], caption(run), {kind: path})
    report(Console(), run, latencies)


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


def measure(run: Run, with_baseline: bool) -> dict[str, Latencies]:
    """Time a draw, `np.max`, `np.argmax` and the NumPy baseline: latencies by state and name."""
    sample(run.rows, temperature=0)  # raises for the first row that is invalid, and names it
    calls: dict[str, Call] = {
        OURS: Sampler(
            run.params,
            stream="row",
            isa=run.isa,
            n_threads=run.n_threads,
            reduction=run.reduction,
            seed=0,
        )
    }
    numpy_calls = ((MAXIMUM, np.max), (ARGMAX, np.argmax))
    calls |= {name: by_row(call, run.batch) for name, call in numpy_calls}
    baseline: dict[str, Call] = {}
    if with_baseline and not run.missing_in_baseline:
        baseline[BASELINE] = by_row(BaselineSampler(replace(run.params, seed=0)), run.batch)
    time_in = {HOT: time_hot, COLD: time_cold}
    return {state: time_in[state](run, calls, baseline) for state in run.states}


def time_hot(run: Run, calls: Mapping[str, Call], baseline: Mapping[str, Call]) -> Latencies:
    """Time the calls interleaved, then the NumPy baseline alone.

    The baseline's sort of the row evicts caches, which no call in a loop without it would find.
    """
    latencies = time_interleaved(calls, run.items, run.repeat, run.batch)
    if baseline:
        items = run.items.astype(np.float32, copy=False)
        latencies |= time_interleaved(baseline, items, run.repeat, run.batch)
    return latencies


def time_cold(run: Run, calls: Mapping[str, Call], baseline: Mapping[str, Call]) -> Latencies:
    """Time each call after a sweep, in random order; a first round is not counted."""
    sweep = Sweep(run.items)
    float32 = Sweep(run.items.astype(np.float32, copy=False)) if baseline else sweep
    repeat = min(run.repeat * len(run.items), COLD_CALLS)
    found: Latencies = {}
    for rounds in (1, repeat):
        found = time_after(
            lambda name: (float32 if name in baseline else sweep)(),
            {**calls, **baseline},
            rounds,
            run.batch,
        )
    return found


def read_full_batches(file: Path, batch: int) -> NDArray[Any]:
    """Read rows of shape (B, V), without those that do not fill a last batch."""
    rows = read_rows(file)
    if not len(rows):
        raise ValueError(f"{file} must hold at least one row, got shape {rows.shape}")
    if not 1 <= batch <= len(rows):
        raise ValueError(f"--batch must be in [1, {len(rows)}], the rows of {file}, got {batch}")
    return np.array(rows[: len(rows) // batch * batch])


def by_row(call: Call, batch: int) -> Call:
    """Apply a call of one row to each row of a batch."""
    return call if batch == 1 else lambda rows: [call(row) for row in rows]


def report(console: Console, run: Run, latencies: Mapping[str, Latencies]) -> None:
    """Print the times, the histogram and the conditions of the measurement."""
    if run.load > QUIET:
        typer.echo(
            f"fastsample: this machine is busy (load average {run.load:.2f}): run it again when "
            "nothing else runs",
            err=True,
        )
    first = latencies[run.states[0]]
    for line in conditions(run, BASELINE in first):
        console.print(Text(line))
    console.print(latency_table(latencies))
    console.print(
        Text(f"distribution of {run.states[0]} times per token; a full bar is half of all calls")
    )
    shown = {name: latency for name, latency in first.items() if name != ARGMAX}
    console.print(histogram(shown, "#" if console.options.ascii_only else "█"))


def conditions(run: Run, has_baseline: bool) -> list[str]:
    """Describe what was measured, how and where."""
    count, vocabulary = run.rows.shape
    threads = "default threads" if run.n_threads is None else f"{run.n_threads} thread(s)"
    baseline = (
        f", then the {BASELINE}, which sorts the row if a filter is on" if has_baseline else ""
    )
    rows = (
        f"{count} row(s) of {vocabulary:,} logits ({run.rows.dtype}, {run.rows.nbytes / 1e6:.1f} "
        f"MB), {run.batch} per call"
    )
    how = {
        HOT: f"hot: {rows}, each {run.repeat} time(s) after a warm-up pass; {OURS}, {MAXIMUM} and "
        f"{ARGMAX} interleaved{baseline}",
        COLD: f"cold: {rows}, each call after {SWEPT} MB were read and the row was written anew, "
        f"at most {COLD_CALLS} calls, in random order",
    }
    lines = [
        str(run),
        *(how[state] for state in run.states),
        f"{run.isa_in_use}, {threads}, {info()['cpu']}, numpy {np.__version__}, "
        f"load average {run.load:.2f}",
    ]
    if missing := run.missing_in_baseline:
        lines.append(f"no {BASELINE}: it does not have {', '.join(missing)}")
    if run.rows.dtype == np.float16:
        lines.append(FLOAT16_NOTE)
    return lines


def caption(run: Run) -> str:
    """Describe a measurement in two lines, for a figure that is shown alone."""
    count, vocabulary = run.rows.shape
    busy = f", BUSY: load average {run.load:.2f}" if run.load > QUIET else ""
    batch = f", {run.batch} per call" if run.batch > 1 else ""
    return (
        f"{run}, V = {vocabulary:,}, {run.states[0]}\n"
        f"{count} row(s) of {run.rows.dtype}{batch}, {run.isa_in_use}, {info()['cpu']}{busy}"
    )


def latency_table(latencies: Mapping[str, Latencies]) -> Table:
    """Format mean and percentiles in microseconds, and medians as multiples of `np.max`'s.

    All of them for the first state; of the other one, the median and p99.
    """
    first, *others = latencies
    heads = [*TIMES, f"p50 x {MAXIMUM}"]
    heads += [f"{state} {time}" for state in others for time in TIMES_OF_OTHERS]
    grid = make_table(label(f"us, {first}"), *map(number, heads))
    for name, latency in latencies[first].items():
        times = [getattr(latency, time) for time in TIMES]
        rest = [getattr(latencies[s][name], time) for s in others for time in TIMES_OF_OTHERS]
        ratio = f"{latency.p50 / latencies[first][MAXIMUM].p50:.2f}"
        grid.add_row(name, *map(microseconds, times), ratio, *map(microseconds, rest))
    return grid


def microseconds(nanoseconds: float) -> str:
    """Format a time."""
    return f"{nanoseconds / 1e3:.1f}"


def histogram(latencies: Mapping[str, Latency], mark: str) -> Table:
    """Format one bar per range of times and name, on one logarithmic scale."""
    edges, found = shares(latencies, BARS)
    grid = make_table(number("from us"), *(label(name, width=BAR_WIDTH) for name in latencies))
    for i in range(BARS):
        bars = (bar(float(found[name][i]), mark) for name in latencies)
        grid.add_row(f"{edges[i] / 1e3:.1f}", *bars)
    return grid


def bar(share: float, mark: str) -> str:
    """Draw a share of all calls: one half fills the width, any calls have at least one mark."""
    return mark * min(int(np.ceil(2 * share * BAR_WIDTH)), BAR_WIDTH)


def as_json(run: Run, latencies: Mapping[str, Latencies]) -> dict[str, Any]:
    """Return all results and conditions; times in nanoseconds."""
    return {
        "file": str(run.file),
        "rows": run.rows.shape[0],
        "vocabulary": run.rows.shape[1],
        "dtype": run.rows.dtype.name,
        "batch": run.batch,
        "parameters": stage_values(run.params),
        "draw": run.draw,
        "repeat": run.repeat,
        "isa": run.isa_in_use,
        "n_threads": run.n_threads,
        "reduction": run.reduction,
        "load_average": run.load,
        "busy": run.load > QUIET,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": info(),
        "nanoseconds": {
            state: {name: times_of(latency) for name, latency in of_state.items()}
            for state, of_state in latencies.items()
        },
    }


def times_of(latency: Latency) -> dict[str, Any]:
    """Return the statistics and the histogram of one name's times."""
    counts, edges = latency.histogram()
    return {
        "count": latency.count,
        **{name: getattr(latency, name) for name in TIMES},
        "histogram": {"counts": counts.tolist(), "edges": edges.tolist()},
    }
