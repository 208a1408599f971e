"""Which engines and instruction sets are there to be held, and which are not, and why.

`ENGINES` is the table: an engine that comes gets a line here, and every invariant is asked of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import NamedTuple

from fastsample.engines import TENSOR_ENGINES, is_installed, resolve

from .calls import Doors, Way

MOST_THREADS = 8

Found = tuple[tuple[str | None, ...], str]
"""Instruction sets that an engine can be asked for, none where it is not there; and why not."""


def _native(_quick: bool) -> Found:
    if not is_installed("native"):
        return (), "the compiled extension is not installed"
    from fastsample import _native

    usable = _native.isa_usable()
    beyond = [isa for isa in _native.isa_compiled() if isa not in usable]
    return usable, f"this machine cannot run {', '.join(beyond)}" if beyond else ""


def _numba(quick: bool) -> Found:
    if quick and is_installed("native") and is_installed("numba"):
        return (), "left out for a quick run: it compiles for seconds first"
    return _other("numba")(quick)


def _other(name: str) -> Callable[[bool], Found]:
    """How an engine without instruction sets is looked for; where it is there, it is not loaded."""

    def look(_quick: bool) -> Found:
        return ((None,), "") if is_installed(name) else ((), _refusal(name))

    return look


def _triton(quick: bool) -> Found:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return (), "this process has its GPU in use, and a forked child cannot use that"
    if os.environ.get("TRITON_INTERPRET") == "1":
        return (), "left out where it is interpreted: that takes minutes"
    return _other("triton")(quick)


def _refusal(name: str) -> str:
    try:
        resolve(name)
    except RuntimeError as error:
        return str(error)
    return ""


ENGINES: dict[str, Callable[[bool], Found]] = {
    "native": _native,
    "numba": _numba,
    "torch": _other("torch"),
    "triton": _triton,
}
"""Every engine but the reference, which gives the answers that these are held to."""

IN_FULL, IN_FULL_FROM = 6, 1
"""Of so many cases a quick run holds one in full by the engines beside: a call of theirs takes
milliseconds, however small its rows; from the second on, so that
a sequence is among them."""
IN_PART = (
    "a quick run asks it no random cases, few large rows, and all lines in one case of "
    f"{IN_FULL}, else the first"
)


class Engines(NamedTuple):
    """Engines with their instruction sets, the default first; and what is not asked, and why.

    Engines of tensors are asked in a forked child, which goes on beside: torch takes seconds to
    load, its threads do not survive a fork, and how many it has is the user's to say. Where none
    but the reference can be asked in this process, the invariants are asked of that.
    """

    here: list[tuple[str, str | None]]
    beside: list[tuple[str, str | None]]
    not_asked: dict[str, str]

    def without_child(self, reason: str) -> Engines:
        """The same where there is no child to ask some of them in."""
        why = f"it is asked in a forked child, and {reason}"
        return self._without({name: why for name, _ in self.beside})

    def that_run(self) -> Engines:
        """The same once those beside are loaded: one may be there, and have nothing to run on."""
        refusals = {name: _refusal(name) for name, _ in self.beside}
        return self._without({name: why for name, why in refusals.items() if why})

    def _without(self, refusals: dict[str, str]) -> Engines:
        beside = [(name, isa) for name, isa in self.beside if name not in refusals]
        return Engines(self.here, beside, {**self.not_asked, **refusals})


def engines_here(quick: bool) -> Engines:
    """Look for every engine of the table."""
    found = Engines([], [], {})
    for name, look in ENGINES.items():
        isas, why = look(quick)
        asked = found.beside if name in TENSOR_ENGINES else found.here
        asked += [(name, isa) for isa in reversed(isas)]
        if asked is found.beside and isas and quick:
            why = why or IN_PART
        if why:
            found.not_asked[name] = why
    return found._replace(here=found.here or [("reference", None)])


def settle_in() -> None:
    """In a child, before anything is asked: give torch one thread, the only one that is left."""
    import torch

    torch.set_num_threads(1)


def default_way(doors: Doors, reduction: str) -> Way:
    """What is asked where no engine is named."""
    return Way(doors, None, None, reduction)


def ways(doors: Doors, engines: list[tuple[str, str | None]], reduction: str) -> list[Way]:
    """The ways to ask in one reduction mode, by engines that have it."""
    return [
        Way(doors, name, isa, reduction)
        for name, isa in engines
        if reduction == "exact" or name not in TENSOR_ENGINES
    ]


_lock = Lock()
_limits: list[int] = []
"""The limit that holds outside, as often as proofs go on."""


@contextmanager
def threads_allowed() -> Iterator[None]:
    """Let calls have as many threads as they ask for, on a machine with fewer processors too.

    The last of several proofs that go on at once gives back what the first one found.
    """
    if not is_installed("native"):
        yield
        return
    from fastsample import _native

    with _lock:
        before = _limits[0] if _limits else _native.most_threads()
        _limits.append(before)
        _native.limit_threads(max(before, MOST_THREADS))
    try:
        yield
    finally:
        with _lock:
            _limits.pop()
            if not _limits:
                _native.limit_threads(before)
