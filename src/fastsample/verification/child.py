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
_ALIVE = b"."
"""No pickle starts with it."""


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
    """What `ask` returns in a forked child; raises as `Child` and its answer do."""
    with Child(lambda _: ask()) as child:
        return child.answer()


class Child:
    """A forked child that works on a question until it is asked for the answer.

    It has ended at the end of the `with`, whatever it was doing.

    Parameters
    ----------
    ask : callable
        Called in the child; what it returns is pickled. It is given a function to call now and
        then where it takes long: a child that says nothing is not waited for.

    Raises
    ------
    NoChildError
        The system has no fork, or refuses one.
    """

    def __init__(self, ask: Callable[[Callable[[], Any]], Any]) -> None:
        self._source, sink, self._number = _fork()
        if not self._number:
            # Else a child would not learn that whoever asked it is gone.
            os.close(self._source)
            _answer(ask, sink)
        os.close(sink)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._source)
        # Where SIGCHLD is ignored, or somebody else waits, there may be no child left to wait for,
        # and its number another's.
        with suppress(ChildProcessError, ProcessLookupError):
            if os.waitpid(self._number, os.WNOHANG) == (0, 0):
                os.kill(self._number, signal.SIGKILL)
                os.waitpid(self._number, 0)

    def answer(self) -> Any:
        """Wait for the answer, once.

        Raises
        ------
        RuntimeError
            The child raised, or ended before it answered, or was too slow.
        """
        answer = _read(self._source)
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


def _answer(ask: Callable[[Callable[[], Any]], Any], sink: int) -> None:
    """In the child: write the answer and leave, past everything that the parent has yet to do."""
    try:
        try:
            said = ask(lambda: os.write(sink, _ALIVE))
        except Exception as error:
            said = RuntimeError(repr(error))
        with os.fdopen(sink, "wb") as file:
            pickle.dump(said, file)
    finally:
        os._exit(0)


def _read(source: int) -> bytes:
    pieces: list[bytes] = []
    while True:
        ready, _, _ = select.select([source], [], [], PATIENCE)
        if not ready:
            return b""
        piece = os.read(source, 1 << 16)
        if not piece:
            return b"".join(pieces).lstrip(_ALIVE)
        pieces.append(piece)
