"""Compare two builds of fastsample, interleaved in one process: is one slower than the other?

Each build is a source tree with its extension built in place (`python setup.py build_ext --inplace`
in that tree). The package is loaded twice, under separate sets of modules; A and B take passes
over the same rows in alternating order, so that a slow moment of the machine affects both.

    python benches/compare_builds.py /path/to/old/tree /path/to/new/tree
    python benches/compare_builds.py OLD NEW --only "usual chain" --repeat 5

Rows are generated, 151,936 and 49,152 logits wide, and call overhead is measured on rows of 16
tokens as benches/call.py does. Settings are those of benches/settings.py, alone and with
log-probabilities, in float16, in batches of 32, and in the reductions. Every case is timed

- hot: one call after the other, each on the next of 16 rows; call overhead in loops of 100 calls;
- cold: before each call, a buffer larger than the caches is read and other code runs, as between
  two steps of a model.

A line has the median, mean and 99th percentile of each build in microseconds, and the ratio of the
medians, B to A: the middle one of `--repeat` measurements. Ratios above 1.03 are marked with "!".
Only an idle machine gives ratios that can be trusted: comparing a tree with a copy of itself shows
how far they stray.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

LIMIT = 1.03
"""Ratios above this are marked."""

VOCABULARIES = (151_936, 49_152)
N_ROWS = 16
BATCH = 32
LOOP = 100
SECONDS = 0.3
"""How long the hot passes of both builds take at most; a slow case has a few passes anyway."""

FEWEST, MOST, COLD = 4, 200, 4
"""Passes over the rows, and rounds of a pass: at least; passes at most, and where cold."""

BENCHES = Path(__file__).resolve().parent
Call = Callable[[Any], object]
Items = Sequence[Any] | NDArray[Any]


class Build:
    """A tree's package, with modules of its own.

    Parameters
    ----------
    tree : Path
        The source tree: its package is in ``tree/src``.
    """

    def __init__(self, tree: Path) -> None:
        self._source = str(tree.resolve() / "src")
        self._modules: dict[str, ModuleType] = {}
        if not Path(self._source, "fastsample", "__init__.py").is_file():
            raise ValueError(f"fastsample must be in {self._source}, which has no such package")
        with self.loaded():
            self.fastsample: Any = importlib.import_module("fastsample")

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Make this build the one that `import fastsample` finds."""
        others, path = take_modules(), list(sys.path)
        sys.modules.update(self._modules)
        sys.path.insert(0, self._source)
        try:
            yield
        finally:
            sys.path[:] = path
            self._modules = take_modules()
            sys.modules.update(others)

    def bench_module(self, name: str) -> Any:
        """Load a module of benches/ that uses this build."""
        spec = importlib.util.spec_from_file_location(f"{name}_of_a_build", BENCHES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with self.loaded():
            # A dataclass looks its module up.
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        return module


def take_modules() -> dict[str, ModuleType]:
    """Remove fastsample's modules from `sys.modules`, and return them."""
    names = [name for name in sys.modules if name.partition(".")[0] == "fastsample"]
    return {name: sys.modules.pop(name) for name in names}


# ---------------------------------------------------------------- cases


@dataclass(frozen=True)
class Case:
    """A call of a build.

    Attributes
    ----------
    call : callable of one item
    items : sequence
        Rows, or batches of rows.
    tokens : int
        How many tokens a call returns.
    loop : int
        How many calls are timed together where the caches are hot.
    """

    call: Call
    items: Items
    tokens: int = 1
    loop: int = 1


def generated_rows(vocabulary: int) -> NDArray[np.float32]:
    """Make rows that look like a language model's."""
    from generator import make_row

    return np.stack([make_row(vocabulary, seed) for seed in range(N_ROWS)])


class Arrays(NamedTuple):
    """What both builds read and write: where memory lies changes times by tens of percent."""

    rows: NDArray[np.float32]
    half: NDArray[np.float16]
    batch: NDArray[np.float32]
    out: NDArray[np.float32]

    @classmethod
    def of(cls, rows: NDArray[np.float32]) -> Arrays:
        """Make the arrays from rows."""
        batch = np.concatenate([rows] * (BATCH // N_ROWS))[None]
        return cls(rows, rows.astype(np.float16), batch, np.empty_like(rows[0]))


def setting_cases(build: Build, arrays: Arrays) -> dict[str, Case]:
    """Return every setting, and its variants: log-probabilities, dtype, batch and reduction."""
    fastsample = build.fastsample
    settings = build.bench_module("settings")
    rows, half, batch, out = arrays
    cases = {"softmax": Case(lambda row: fastsample.softmax(row, out=out, n_threads=1), rows)}

    def sampler(setting: Any, **options: Any) -> Call:
        made: Call = fastsample.Sampler(setting.sampling(), n_threads=1, **options)
        return made

    def batch_sampler(setting: Any) -> Call:
        params = [setting.sampling(seed=i) for i in range(BATCH)]
        made: Call = fastsample.Sampler(params, n_threads=1)
        return made

    def with_logprobs(setting: Any) -> Call:
        options = {**setting.params, "seed": 1, "position": 0, "n_threads": 1, "logprobs": 20}
        return lambda row: fastsample.sample(row, **options)

    for setting in (*settings.SETTINGS, *settings.edges(rows.shape[1])):
        name = setting.name
        cases[name] = Case(sampler(setting), rows)
        cases[f"{name}, logprobs=20"] = Case(with_logprobs(setting), rows)
        cases[f"{name}, float16"] = Case(sampler(setting), half)
        cases[f"{name}, {BATCH} rows"] = Case(batch_sampler(setting), batch, BATCH)
        for reduction in ("fixed", "fast"):
            cases[f"{name}, {reduction}"] = Case(sampler(setting, reduction=reduction), rows)
    return cases


def call_cases(build: Build) -> dict[str, Case]:
    """Return the calls of benches/call.py: rows of 16 tokens, so that overhead is all there is."""
    rows = np.random.default_rng(0).normal(size=(BATCH, 16)).astype(np.float32)
    calls: dict[str, Callable[[], object]] = build.bench_module("call").forms_of(rows)
    return {name: Case(ignoring_its_item(call), (None,), loop=LOOP) for name, call in calls.items()}


def ignoring_its_item(call: Callable[[], object]) -> Call:
    """Give a call without arguments the one that `Case` passes."""
    return lambda _: call()


def cases_of(build: Build, make: Callable[..., dict[str, Case]], *rows: Any) -> dict[str, Case]:
    """Make cases while the build is loaded: it imports its engines when they are first used."""
    with build.loaded():
        return make(build, *rows)


# ---------------------------------------------------------------- timing


@dataclass(frozen=True)
class Times:
    """Microseconds per token of one build."""

    median: float
    mean: float
    p99: float


def times_of(nanoseconds: list[int], tokens: int) -> Times:
    """Summarize the times of a case."""
    us = np.array(nanoseconds) / 1e3 / tokens
    return Times(float(np.median(us)), float(us.mean()), float(np.percentile(us, 99)))


class Chill:
    """Put the caches into the state in which another program leaves them."""

    def __init__(self, megabytes: int) -> None:
        self._buffer = np.ones(megabytes * 2**17)
        self._matrix = np.random.default_rng(1).normal(size=(64, 64))

    def __call__(self) -> None:
        self._buffer.sum()
        np.sort(self._matrix @ self._matrix, axis=None)


def time_pass(build: Build, case: Case, rounds: int, chill: Chill | None) -> list[int]:
    """Time a case on its items, in so many rounds: nanoseconds of each.

    A round is `case.loop` calls, or one where the caches are chilled before it.
    """
    clock, loop, found = time.perf_counter_ns, 1 if chill else case.loop, []
    with build.loaded():
        for number in range(rounds):
            item = case.items[number % len(case.items)]
            if chill is not None:
                chill()
            start = clock()
            for _ in repeat(None, loop):
                case.call(item)
            found.append((clock() - start) // loop)
    return found


def interleave(
    builds: Sequence[Build], cases: Sequence[Case], passes: int, chill: Chill | None
) -> tuple[list[int], ...]:
    """Time passes over the items of a case, of one build and the other, in alternating order."""
    found: tuple[list[int], ...] = tuple([] for _ in builds)
    for number in range(passes):
        for step in range(len(builds)):
            which = (number + step) % len(builds)
            rounds = max(len(cases[which].items), FEWEST)
            found[which].extend(time_pass(builds[which], cases[which], rounds, chill))
    return found


@dataclass(frozen=True)
class Figures:
    """Times of both builds in one case, and the ratios of their medians."""

    times: tuple[Times, ...]
    ratios: list[float]

    @property
    def ratio(self) -> float:
        """The middle ratio."""
        return median(self.ratios)


def compare(
    builds: Sequence[Build], cases: Sequence[Case], measurements: int, chill: Chill | None
) -> Figures:
    """Time a case of both builds several times; the times are those of all rounds together."""
    start = time.perf_counter()
    interleave(builds, cases, 1, None)
    seconds = time.perf_counter() - start
    passes = COLD if chill else min(MOST, max(FEWEST, int(SECONDS / seconds)))
    ratios: list[float] = []
    everything: tuple[list[int], ...] = tuple([] for _ in builds)
    for _ in range(measurements):
        found = interleave(builds, cases, passes, chill)
        a, b = (median(one) for one in found)
        ratios.append(b / a)
        for total, one in zip(everything, found, strict=True):
            total += one
    return Figures(tuple(times_of(one, cases[0].tokens) for one in everything), ratios)


# ---------------------------------------------------------------- output


def line_of(name: str, state: str, figures: Figures) -> list[str]:
    """Lay out a line of the table."""
    cells = [f"{getattr(times, part):,.2f}" for times in figures.times for part in PARTS]
    mark = " !" if figures.ratio > LIMIT else ""
    return [name, state, *cells, f"{figures.ratio:.3f}{mark}"]


PARTS = ("median", "mean", "p99")
HEADER = ("case", "", *(f"{build} {part}" for build in "AB" for part in PARTS), "B / A")


def main(
    a: Annotated[Path, typer.Argument(help="source tree of build A, the one to compare with")],
    b: Annotated[Path, typer.Argument(help="source tree of build B")],
    only: Annotated[str, typer.Option(help="cases whose name contains this")] = "",
    repeat: Annotated[int, typer.Option(min=1, help="measurements of a case")] = 3,
    vocabulary: Annotated[list[int] | None, typer.Option(help="widths of the rows")] = None,
    megabytes: Annotated[int, typer.Option(min=1, help="read before a cold call")] = 64,
) -> None:
    """Print a table for the calls and one for each vocabulary, and count what is slower."""
    sys.path.insert(0, str(BENCHES))
    builds = (Build(a), Build(b))
    chill, console, slower = Chill(megabytes), Console(width=120), 0
    groups: dict[str, list[dict[str, Case]]] = {
        "calls": [cases_of(one, call_cases) for one in builds]
    }
    for width in vocabulary or VOCABULARIES:
        arrays = Arrays.of(generated_rows(width))
        groups[f"V = {width:,}"] = [cases_of(one, setting_cases, arrays) for one in builds]
    for title, cases in groups.items():
        table = Table(*HEADER, title=f"{title}: us per token")
        for name in (name for name in cases[0] if only in name and name in cases[1]):
            for state, before in (("hot", None), ("cold", chill)):
                figures = compare(builds, [one[name] for one in cases], repeat, before)
                slower += figures.ratio > LIMIT
                table.add_row(*line_of(name, state, figures))
        if table.rows:
            console.print(table)
    console.print(
        f"A = {a}, B = {b}, load average {os.getloadavg()[0]:.2f}; {slower} above {LIMIT}"
    )


if __name__ == "__main__":
    typer.run(main)
