"""A forked child that answers a question: what it inherits must not change what it says."""

from __future__ import annotations

import os
import pickle
import select
import signal
import warnings
from collections.abc import Callable
from typing import Any

PATIENCE = 60.0


def can_fork() -> bool:
    """Whether this system has fork."""
    return hasattr(os, "fork")


def in_child(ask: Callable[[], Any]) -> Any:
    """What `ask` returns in a forked child.

    Raises
    ------
    RuntimeError
        The child raised, or ended before it answered, or was too slow.
    """
    source, sink = os.pipe()
    with warnings.catch_warnings():
        # Python warns of threads that a child lacks; that it answers all the same is what is tried.
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        _answer(ask, sink)
    os.close(sink)
    try:
        answer = _read(source, child)
    finally:
        os.close(source)
        os.waitpid(child, 0)
    if not answer:
        raise RuntimeError(f"a forked child ended, or said nothing for {PATIENCE:.0f} s")
    said = pickle.loads(answer)
    if isinstance(said, Exception):
        raise RuntimeError(f"a forked child raised {said!r}")
    return said


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
            os.kill(child, signal.SIGKILL)
            return b""
        piece = os.read(source, 1 << 16)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
