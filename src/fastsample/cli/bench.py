"""`fastsample bench`: what a token costs on your own rows, next to naive NumPy and to `np.max`."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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
from fastsample.api.info import cpu_name

from .baseline import NaiveSampler
from .files import read_rows
from .interleave import QUIET, Call, in_turns, load_average
from .plots import draw_latencies, require_matplotlib, shares

OURS, NAIVE, FLOOR = "fastsample", "naive NumPy", "np.max"
TIMES = ("p50", "p90", "p99", "max")
BARS, BAR_WIDTH = 18, 20
HALF_FLOOR = f"{FLOOR} of float16 is slow, and no floor here: read the microseconds"


@dataclass(frozen=True)
class Run:
    """A measurement: what was timed, on what, on which machine, and what came out."""

    file: Path
    shape: tuple[int, int]
    dtype: str
    batch: int
    params: SamplingParams
    repeat: int
    isa: str
    n_threads: int | None
    reduction: str
    load: float
    latencies: dict[str, Latency]


def bench(
    file: Annotated[
        Path, typer.Argument(help="An .npy file of float32 or float16 logits, (V,) or (B, V).")
    ],
    temperature: Annotated[float, typer.Option(help="0 takes the top token.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Keep this many tokens; 0 is off.")] = 0,
    top_p: Annotated[float, typer.Option(help="Keep this share of the mass; 1 is off.")] = 1.0,
    min_p: Annotated[
        float, typer.Option(help="Least share of the top token's probability; 0 is off.")
    ] = 0.0,
    repeat: Annotated[int, typer.Option(help="How many times each row is timed.")] = 20,
    isa: Annotated[
        str | None, typer.Option(help="The instruction set; `fastsample info` lists the usable.")
    ] = None,
    batch: Annotated[
        int, typer.Option(help="How many rows are drawn from in one call; times are of a token.")
    ] = 1,
    threads: Annotated[
        int | None,
        typer.Option(
            help="The most threads that the rows of a batch are spread over; left out, picked by "
            "rows x vocabulary."
        ),
    ] = None,
    reduction: Annotated[
        str, typer.Option(help='How masses add up: "exact", "fixed" or "fast".')
    ] = "exact",
    svg: Annotated[Path | None, typer.Option(help="Draw the histogram to this file.")] = None,
    png: Annotated[Path | None, typer.Option(help="Draw the histogram to this file.")] = None,
    naive: Annotated[
        bool, typer.Option("--naive/--no-naive", help="Time naive NumPy: it takes the longest.")
    ] = True,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all figures to this file.")
    ] = None,
) -> None:
    """Time a draw from every row of a file, next to naive NumPy and to one np.max of the row."""
    check_outputs(file, {"--svg": svg, "--png": png, "--json": json_file})
    pictures = {kind: path for kind, path in (("svg", svg), ("png", png)) if path is not None}
    if pictures:
        require_matplotlib()
    if repeat < 1:
        raise ValueError(f"--repeat must be at least 1, got {repeat} (times that a row is timed)")
    if threads is not None and batch == 1:
        raise ValueError(
            f"--threads {threads} needs a --batch above 1: rows are spread over threads, one row "
            "never is (give --batch, or leave --threads out)"
        )
    params = SamplingParams(temperature, top_k, top_p, min_p, seed=0)
    run = measure(file, params, repeat, isa, batch, threads, reduction, naive)
    # Before anything is printed: whoever reads along may leave, and the figures would be lost.
    if json_file is not None:
        with naming(json_file):
            json_file.write_text(json.dumps(as_json(run), indent=2) + "\n", encoding="utf-8")
    for kind, path in pictures.items():
        with naming(path):
            draw_latencies(run.latencies, caption(run), {kind: path})
    report(Console(), run)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of writing name its file, which only one of opening does."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def check_outputs(file: Path, paths: Mapping[str, Path | None]) -> None:
    """Refuse before the measurement what could not, or should not, be written after it."""
    taken = {file.resolve(): "the file of the rows"}
    for option, path in paths.items():
        if path is None:
            continue
        if path.is_dir() or not path.parent.is_dir():
            raise ValueError(f"{option} must name a file in a folder that is there, got {path}")
        if path.resolve() in taken:
            raise ValueError(
                f"{option} must name a file of its own, got {path}, {taken[path.resolve()]} (it "
                "would be written over)"
            )
        taken[path.resolve()] = f"the file of {option}"


def measure(
    file: Path,
    params: SamplingParams,
    repeat: int,
    isa: str | None,
    batch: int,
    n_threads: int | None,
    reduction: str,
    naive: bool,
) -> Run:
    """Time a draw and `np.max` in turns on the rows of a file, then naive NumPy, if asked, alone.

    A sort of the row leaves caches that no call of ours would meet in a loop without it.
    """
    rows = read_whole_batches(file, batch)
    load = load_average()
    sampler = Sampler(params, isa=isa, n_threads=n_threads, reduction=reduction)
    refuse_bad_rows(rows)
    items = rows if batch == 1 else rows.reshape(-1, batch, rows.shape[1])
    latencies = in_turns({OURS: sampler, FLOOR: by_row(np.max, batch)}, items, repeat, batch)
    if naive:
        sorts, wide = by_row(NaiveSampler(params), batch), items.astype(np.float32, copy=False)
        latencies |= in_turns({NAIVE: sorts}, wide, repeat, batch)
    facts, dtype = info(), rows.dtype.name
    used = isa or facts["isa"] or facts["engine"]
    how = params, repeat, used, n_threads, reduction, load
    return Run(file, rows.shape, dtype, batch, *how, latencies)


def read_whole_batches(file: Path, batch: int) -> NDArray[Any]:
    """Read rows of shape (B, V); those that do not fill a last batch are left out."""
    rows = read_rows(file, ("float32", "float16"))
    if not len(rows):
        raise ValueError(f"{file} must hold a row at least, got shape {rows.shape}")
    if not 1 <= batch <= len(rows):
        raise ValueError(f"--batch must be in [1, {len(rows)}], the rows of {file}, got {batch}")
    return np.array(rows[: len(rows) // batch * batch])


def by_row(call: Call, batch: int) -> Call:
    """Give a call of one row the form that is timed: of a row, or of each row of a batch."""
    return call if batch == 1 else lambda rows: [call(row) for row in rows]


def refuse_bad_rows(rows: NDArray[Any]) -> None:
    """Raise for the first row that nothing can be drawn from, and name it."""
    sample(rows, temperature=0)


def report(console: Console, run: Run) -> None:
    """Print figures and histogram, and what a reader has to know to judge them."""
    if run.load > QUIET:
        typer.echo(
            f"fastsample: this machine is busy (load average {run.load:.2f}): for figures to keep, "
            "run it again when nothing else runs",
            err=True,
        )
    count, vocabulary = run.shape
    threads = "threads as picked" if run.n_threads is None else f"{run.n_threads} thread(s)"
    size = count * vocabulary * np.dtype(run.dtype).itemsize / 1e6
    then = (
        f", then {NAIVE}, which sorts the row if a filter is on" if NAIVE in run.latencies else ""
    )
    lines = (
        asked(run),
        f"{count} row(s) of {vocabulary:,} logits ({run.dtype}, {size:.1f} MB), {run.batch} in a "
        f"call, each {run.repeat} time(s) after one pass that warms up and is not counted; {OURS} "
        f"and {FLOOR} in turns{then}",
        f"{run.isa}, {threads}, {cpu_name()}, numpy {np.__version__}, load average {run.load:.2f}",
        *((HALF_FLOOR,) if run.dtype == "float16" else ()),
    )
    for line in lines:
        console.print(Text(line))
    console.print(figures(run.latencies))
    console.print(Text("how often a token took how long; a full bar is half of all calls"))
    console.print(histogram(run.latencies, "#" if console.options.ascii_only else "█"))


def caption(run: Run) -> str:
    """Tell in two lines what a picture has to be read with, for it may travel alone."""
    count, vocabulary = run.shape
    busy = f", BUSY: load average {run.load:.2f}" if run.load > QUIET else ""
    batch = f", {run.batch} in a call" if run.batch > 1 else ""
    return (
        f"{asked(run)}, V = {vocabulary:,}\n"
        f"{count} row(s) of {run.dtype}{batch}, {run.isa}, {cpu_name()}{busy}"
    )


def asked(run: Run) -> str:
    """Name what was drawn with: the parameters, and the reduction where it is not the usual one."""
    mode = "" if run.reduction == "exact" else f", reduction {run.reduction}"
    return described(run.params) + mode


def described(params: SamplingParams) -> str:
    """Name temperature and filters with their values in one line."""
    return ", ".join(f"{name} {value}" for name, value in filters(params).items())


def filters(params: SamplingParams) -> dict[str, Any]:
    """Name what decides the probabilities, as keywords."""
    names = ("temperature", "top_k", "top_p", "min_p")
    return {name: getattr(params, name) for name in names}


def figures(latencies: Mapping[str, Latency]) -> Table:
    """Lay out the percentiles of each, in microseconds, and medians in `np.max` of the rows."""
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for name in ("us a token", *TIMES, "p50 in np.max"):
        grid.add_column(name, justify="left" if name == "us a token" else "right", no_wrap=True)
    for name, latency in latencies.items():
        times = (f"{getattr(latency, time) / 1e3:.1f}" for time in TIMES)
        grid.add_row(name, *times, f"{latency.p50 / latencies[FLOOR].p50:.2f}")
    return grid


def histogram(latencies: Mapping[str, Latency], mark: str) -> Table:
    """Lay out a bar per range of times and name, on one logarithmic scale."""
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
    """Draw a share of all calls: half of them fill the width, a few have one mark at least."""
    return mark * min(int(np.ceil(2 * share * BAR_WIDTH)), BAR_WIDTH)


def as_json(run: Run) -> dict[str, Any]:
    """Lay out all that was measured, and where, for a file; times in nanoseconds."""
    return {
        "file": str(run.file),
        "rows": run.shape[0],
        "vocabulary": run.shape[1],
        "dtype": run.dtype,
        "batch": run.batch,
        "parameters": filters(run.params),
        "repeat": run.repeat,
        "isa": run.isa,
        "n_threads": run.n_threads,
        "reduction": run.reduction,
        "load_average": run.load,
        "busy": run.load > QUIET,
        "cpu": cpu_name(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": info(),
        "nanoseconds": {name: times_of(latency) for name, latency in run.latencies.items()},
    }


def times_of(latency: Latency) -> dict[str, Any]:
    """Lay out one name's times."""
    counts, edges = latency.histogram()
    return {
        "count": latency.count,
        **{name: getattr(latency, name) for name in ("mean", *TIMES)},
        "histogram": {"counts": counts.tolist(), "edges": edges.tolist()},
    }
