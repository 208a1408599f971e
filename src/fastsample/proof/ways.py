"""Which engines and instruction sets are there to be held, and which are not, and why.

`ENGINES` is the table: an engine that comes gets a line here, and every invariant is asked of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from fastsample.engines import has_native, has_numba

from .answers import Doors, Way

MOST_THREADS = 8

Found = tuple[tuple[str | None, ...], str]
"""Instruction sets that an engine can be asked for, none where it is not there; and why not."""


def _native(_quick: bool) -> Found:
    if not has_native():
        return (), "the compiled extension is not installed"
    from fastsample import _native

    usable = _native.isa_usable()
    beyond = [isa for isa in _native.isa_compiled() if isa not in usable]
    return usable, f"this machine cannot run {', '.join(beyond)}" if beyond else ""


def _numba(quick: bool) -> Found:
    if not has_numba():
        return (), "numba is not installed"
    if quick and has_native():
        return (), "left out for a quick run: it compiles for seconds first"
    return (None,), ""


def _torch(_quick: bool) -> Found:
    return (), "not asked: it has exact alone, and tests of its own hold it to native"


ENGINES: dict[str, Callable[[bool], Found]] = {
    "native": _native,
    "numba": _numba,
    "torch": _torch,
}
"""Every engine but the reference, which gives the answers that these are held to."""


def engines_here(quick: bool) -> tuple[list[tuple[str, str | None]], dict[str, str]]:
    """Engines with their instruction sets, the default first; and for the rest why they are not.

    Where none but the reference is there, the invariants are asked of that.
    """
    here: list[tuple[str, str | None]] = []
    absent = {}
    for name, look in ENGINES.items():
        isas, why = look(quick)
        here += [(name, isa) for isa in reversed(isas)]
        if why:
            absent[name] = why
    return here or [("reference", None)], absent


def default_way(doors: Doors, reduction: str) -> Way:
    """What is asked where no engine is named."""
    return Way(doors, None, None, reduction)


def ways(doors: Doors, engines: list[tuple[str, str | None]], reduction: str) -> list[Way]:
    """The ways to ask in one reduction mode."""
    return [Way(doors, name, isa, reduction) for name, isa in engines]


_lock = Lock()
_limits: list[int] = []
"""The limit that holds outside, as often as proofs go on."""


@contextmanager
def threads_allowed() -> Iterator[None]:
    """Let calls have as many threads as they ask for, on a machine with fewer processors too.

    The last of several proofs that go on at once gives back what the first one found.
    """
    if not has_native():
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
