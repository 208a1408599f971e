"""Run a task in a forked process."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

PATIENCE = 60.0
"""Seconds to wait for a short task."""


class NoForkError(Exception):
    """The system has no fork, or refuses one."""


@contextmanager
def forked(task: Callable[[], Any]) -> Iterator[Callable[[float], Any]]:
    """Run `task` in a forked process, which is killed where it outlives the `with` block.

    Yields a function that waits so many seconds for the result, or raises RuntimeError.
    """
    source, sink = multiprocessing.Pipe(duplex=False)
    try:
        fork = multiprocessing.get_context("fork")
        process = fork.Process(target=_send, args=(task, source, sink))
        with warnings.catch_warnings():
            # Python warns that threads do not survive; that calls work all the same is checked.
            warnings.simplefilter("ignore")
            process.start()
    except (ValueError, OSError) as error:
        raise NoForkError(f"the system cannot fork: {error}") from error
    sink.close()
    try:
        yield partial(_receive, source)
    finally:
        process.kill()
        process.join()
        source.close()


def run_forked(task: Callable[[], Any]) -> Any:
    """Return what `task` returns in a forked process."""
    with forked(task) as result:
        return result(PATIENCE)


def why_no_fork() -> str:
    """Return why this system cannot fork; empty where it can."""
    try:
        run_forked(int)
    except NoForkError as reason:
        return str(reason)
    except RuntimeError:
        pass  # A forked process that fails is a mismatch, which the invariant reports.
    return ""


def _send(task: Callable[[], Any], source: Any, sink: Any) -> None:
    source.close()  # Else a large result would wait for ever for a parent that was killed.
    try:
        sink.send((task(), ""))
    except Exception as error:
        sink.send((None, repr(error)))


def _receive(source: Any, seconds: float) -> Any:
    if not source.poll(seconds):
        raise RuntimeError(f"a forked process sent no result for {seconds:.0f} s")
    try:
        result, error = source.recv()
    except (EOFError, OSError):
        raise RuntimeError("a forked process ended without a result") from None
    if error:
        raise RuntimeError(f"a forked process raised {error}")
    return result
