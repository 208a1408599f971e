"""How the benches run: as smoke tests unless timing is requested, published only when idle.

pytest benches                                    tries each bench on a small vocabulary
pytest benches --benchmark-only                   times them
pytest benches --benchmark-only --benchmark-json=FILE
                                                  for others to see: refused on a busy machine
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from rows import WARM_SECONDS, RowSet, of_the_package, rows_of

import fastsample
from fastsample.cli.interleave import Call

if find_spec("pytest_benchmark") is None:
    collect_ignore_glob = ["bench_*.py"]
else:
    import machine
    from interleave import Interleaved, Times

SMOKE_VOCABULARY = 2_048


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what the refusal needs to know."""
    group = parser.getgroup("benches of fastsample")
    group.addoption("--noisy", action="store_true", help="publish all the same, marked as noisy")
    group.addoption(
        "--patience", type=float, default=120, help="seconds to wait for a quiet machine"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Decide between trying and timing, and refuse to publish from a busy machine."""
    option = config.option
    if not hasattr(option, "benchmark_only"):
        return
    if not (option.benchmark_only or option.benchmark_enable):
        option.benchmark_disable = True
    load = machine.load_average()
    if option.benchmark_json or option.benchmark_save or option.benchmark_autosave:
        load = load if option.noisy else quiet_load(option.patience)
    config.stash[LOAD] = load


LOAD: pytest.StashKey[float] = pytest.StashKey()


def quiet_load(patience: float) -> float:
    """Return the load average, or end the session with one line."""
    try:
        return machine.settled_load(patience, machine.load_average)
    except machine.BusyError as error:
        raise pytest.UsageError(str(error)) from error


def is_noisy(config: pytest.Config) -> bool:
    """Whether the figures must not be published: the machine is, or may be, busy."""
    return bool(config.option.noisy) or config.stash[LOAD] > machine.QUIET


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: Any) -> None:
    """Mark the JSON as a whole."""
    machine_info["load_average_before"] = config.stash[LOAD]
    machine_info["noisy"] = is_noisy(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what would be tried twice: other sets of rows shrink to the same small ones."""
    if not getattr(config.option, "benchmark_disable", False):
        return
    twice = [item for item in items if _rows_of(item) not in (None, *of_the_package())]
    config.hook.pytest_deselected(items=twice)
    items[:] = [item for item in items if item not in set(twice)]


def _rows_of(item: pytest.Item) -> RowSet | None:
    spec = getattr(item, "callspec", None)
    rows = spec.params.get("rows") if spec else None
    return rows if isinstance(rows, RowSet) else None


@pytest.fixture(scope="session")
def facts(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What each figure has to be read with."""
    load = request.config.stash[LOAD]
    return {**machine.facts(), "load_average": load, "noisy": is_noisy(request.config)}


@dataclass(frozen=True)
class Bench:
    """Rows for a bench, and its interleaved timing, recorded in the JSON."""

    benchmark: Any
    facts: dict[str, Any]

    @property
    def warm_seconds(self) -> float:
        """For how long rows are read when they are new."""
        return WARM_SECONDS if self.benchmark.enabled else 0

    def rows(self, rows: RowSet, shape: str | None = None) -> np.ndarray:
        """Rows of a set; small ones where the bench is only tried."""
        if not self.benchmark.enabled:
            rows = RowSet(rows.source, min(rows.vocabulary, SMOKE_VOCABULARY))
        return rows_of(rows, shape, self.warm_seconds)

    def compare(
        self,
        call: Call,
        items: Sequence[Any],
        other: Call = np.max,
        other_items: Sequence[Any] | None = None,
        *,
        tokens: int = 1,
        partner: str = "np.max",
        **about: Any,
    ) -> None:
        """Time `call` on each item, interleaved with another call, and record both.

        Parameters
        ----------
        call, items, other, other_items
            As in `Interleaved`; the other call gets the same items by default.
        tokens : int
            How many tokens a call of either gives.
        partner : str
            What the other is called in tables.
        **about
            Columns of the table: table, contender, setting, source, vocabulary, limit, and isa,
            threads, batch, dtype where they differ from the defaults.
        """
        interleaved = Interleaved(call, items, other, items if other_items is None else other_items)
        columns = {"isa": fastsample.info()["isa"], "threads": 1, "batch": 1, "dtype": "float32"}
        columns.update({"partner": partner, **about})
        self.benchmark.group = " | ".join(
            str(columns[name])
            for name in ("table", "setting", "source", "vocabulary", "batch", "dtype")
        )
        outcome = interleaved.run(self.benchmark, tokens)
        if outcome is None:
            return
        self.benchmark.extra_info.update(
            **self.facts,
            **columns,
            **microseconds(outcome.call),
            **microseconds(outcome.partner, "partner_"),
            ratio=outcome.call.median / outcome.partner.median,
            bytes_per_second=items[0].nbytes / tokens / outcome.call.median,
        )


def microseconds(times: Times, prefix: str = "") -> dict[str, float]:
    """Name the figures of a call's times, or of its partner's."""
    return {
        f"{prefix}us": times.median * 1e6,
        f"{prefix}mean_us": times.mean * 1e6,
        f"{prefix}p99_us": times.p99 * 1e6,
    }


@pytest.fixture
def bench(benchmark: Any, facts: dict[str, Any]) -> Bench:
    """The way for a bench to compare."""
    return Bench(benchmark, facts)


@pytest.fixture(scope="session")
def one_torch_thread() -> Iterator[None]:
    """Torch on one thread, as all that it is compared with."""
    if find_spec("torch") is None:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
