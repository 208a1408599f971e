"""Fixtures and settings of all tests: engines, threads, markers, FASTSAMPLE_LOGITS."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fastsample.engines import is_installed
from tests.support.case_loop import CaseLoop
from tests.support.engines import Engine, native, usable_engines

# Triton reads it when it is first loaded. On a machine with a GPU, TRITON_INTERPRET=0 takes that.
os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_configure() -> None:
    """Share the processors with other workers; stop where FASTSAMPLE_LOGITS names no rows."""
    share_processors()
    require_rows()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a worker of pytest-xdist report its count of cases."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["cases"] = CaseLoop.total


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add what a worker has counted."""
    CaseLoop.total += node.workeroutput.get("cases", 0) if hasattr(node, "workeroutput") else 0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count cases, which are many more than tests."""
    terminalreporter.write_line(f"{CaseLoop.total} cases in loops")


def share_processors() -> None:
    """Leave torch as many threads as one of pytest-xdist's workers may have of the processors.

    Its threads spin while they wait: those of two workers would keep each other from running.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        threads = max(1, (os.cpu_count() or 1) // workers)
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))


def require_rows() -> None:
    """Stop with one line where FASTSAMPLE_LOGITS names no file of rows."""
    path = os.environ.get("FASTSAMPLE_LOGITS")
    if not path:
        return
    wanted = "FASTSAMPLE_LOGITS must name a float32 .npy file of shape (rows, V)"
    try:
        rows = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"{wanted}, got {path}: {error}") from error
    if rows.dtype != np.float32 or rows.ndim != 2:
        raise pytest.UsageError(f"{wanted}, got {rows.dtype} of shape {rows.shape} in {path}")


def _engine_params() -> list[object]:
    """Every engine; a reason to skip those that cannot run here."""
    reasons = {
        Engine("reference"): "",
        Engine("numba"): "" if is_installed("numba") else "numba is not installed",
        Engine("torch"): "" if is_installed("torch") else "torch is not installed",
    }
    if native is None:
        reasons[Engine("native")] = "fastsample._native is not built"
    else:
        for isa in native.isa_compiled():
            usable = isa in native.isa_usable()
            reasons[Engine("native", isa)] = "" if usable else f"this machine cannot run {isa}"
    params: list[object] = []
    for engine, reason in reasons.items():
        # Numba compiles for each process: `--dist loadgroup` keeps its tests in one.
        marks = [pytest.mark.xdist_group("numba")] if engine.name == "numba" else []
        marks += [pytest.mark.skip(reason=reason)] if reason else []
        params.append(pytest.param(engine, id=str(engine), marks=marks))
    return params


@pytest.fixture(scope="session", params=_engine_params())
def engine(request: pytest.FixtureRequest) -> Engine:
    """Every engine, native once per instruction set."""
    return request.param


@pytest.fixture(
    params=[one for one in usable_engines() if one.is_native], ids=lambda engine: engine.isa
)
def native_engine(request: pytest.FixtureRequest) -> Engine:
    """The engine that prepares calls, on every instruction set."""
    return request.param


@pytest.fixture(scope="session", autouse=True)
def _more_threads_than_processors() -> Iterator[None]:
    """Let `n_threads` have what it asks for: a test of seven threads needs no seven processors."""
    if native is None:
        yield
        return
    native.limit_threads(16)
    yield
    native.limit_threads(native._limit_in(os.environ.get("FASTSAMPLE_NUM_THREADS", "")))
