"""A forked child that answers a question: what it inherits must not change what it says."""

from __future__ import annotations

import os
import pickle
import select
import signal
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

PATIENCE = 60.0


class NoChildError(Exception):
    """There is no child to be asked: nothing can be said of one."""


def why_no_child() -> str:
    """Why a child cannot be asked here; empty where one answers."""
    try:
        in_child(lambda: 0)
    except NoChildError as reason:
        return str(reason)
    except RuntimeError:
        pass  # A child that does not answer is the invariant's to tell of.
    return ""


def in_child(ask: Callable[[], Any]) -> Any:
    """What `ask` returns in a forked child.

    Raises
    ------
    NoChildError
        The system has no fork, or refuses one.
    RuntimeError
        The child raised, or ended before it answered, or was too slow.
    """
    source, sink, child = _fork()
    if not child:
        _answer(ask, sink)
    os.close(sink)
    try:
        answer = _read(source, child)
    finally:
        os.close(source)
        # Where SIGCHLD is ignored, or somebody else waits, there may be no child left to wait for.
        with suppress(ChildProcessError):
            os.waitpid(child, 0)
    if not answer:
        raise RuntimeError(f"a forked child ended, or said nothing for {PATIENCE:.0f} s")
    said = pickle.loads(answer)
    if isinstance(said, Exception):
        raise RuntimeError(f"a forked child raised {said!r}")
    return said


def _fork() -> tuple[int, int, int]:
    """Both ends of a pipe, and the child's number, which is 0 in the child."""
    if not hasattr(os, "fork"):
        raise NoChildError("this system has no fork")
    source, sink = os.pipe()
    try:
        with warnings.catch_warnings():
            # Python warns of threads that a child lacks; that it answers all the same is tried.
            warnings.simplefilter("ignore")
            return source, sink, os.fork()
    except OSError as error:
        os.close(source)
        os.close(sink)
        raise NoChildError(f"the system refuses it: {error}") from error


def _answer(ask: Callable[[], Any], sink: int) -> None:
    """In the child: write the answer and leave, past everything that the parent has yet to do."""
    try:
        try:
            said = ask()
        except Exception as error:
            said = RuntimeError(repr(error))
        with os.fdopen(sink, "wb") as file:
            pickle.dump(said, file)
    finally:
        os._exit(0)


def _read(source: int, child: int) -> bytes:
    pieces: list[bytes] = []
    while True:
        ready, _, _ = select.select([source], [], [], PATIENCE)
        if not ready:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            return b""
        piece = os.read(source, 1 << 16)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
