"""The engines and instruction sets of this machine: which are checked, and why others are not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from fastsample.engines import ENGINES, is_installed, resolve

THREADS = (1, 2, 3, 8)
FULL_EVERY, FULL_FROM = 6, 1
"""In a quick run the worker checks all invariants in one case of so many, as a call of torch takes
milliseconds; from the second case on, so that a sequence is among them."""

Engine = tuple["str | None", "str | None"]
"""Its name, and an instruction set.

Engines of tensors are checked in a forked process, the worker: torch takes seconds to load, its
threads do not survive a fork, and how many it has is the user's choice.
"""


def find_engines(quick: bool) -> tuple[list[Engine], dict[str, str]]:
    """Return what is checked against the reference, and what is not, and why.

    Of each engine the default instruction set comes first.
    """
    engines: list[Engine] = []
    not_covered = {}
    for name, record in ENGINES.items():
        if why := why_not(name, quick):
            not_covered[name] = why
        elif name != "reference":
            isas = resolve(name).isas[::-1] if record.has_isas else ()
            engines += [(name, isa) for isa in isas or (None,)]
            if quick and record.takes_tensors:
                not_covered[name] = (
                    "a quick run gives it no random cases, few large rows, and all invariants in "
                    f"one case of {FULL_EVERY}, else the first"
                )
    return engines, not_covered


def why_not(name: str, quick: bool) -> str:
    """Return why an engine is not checked; empty where it is."""
    if not is_installed(name):
        return refusal(name)
    if name == "numba" and quick and is_installed("native"):
        return "left out of a quick run, as it compiles for seconds"
    if name == "triton":
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            return "this process has its GPU in use, which a forked process cannot use"
        if os.environ.get("TRITON_INTERPRET") == "1":
            return "left out where it is interpreted, as that takes minutes"
    return ""


def refusal(name: str) -> str:
    """Load an engine; return why it cannot be used, empty where it can."""
    try:
        resolve(name)
    except RuntimeError as error:
        return str(error)
    return ""


_lock = Lock()
_limits: list[int] = []
"""The limit before, once for each run in progress."""


@contextmanager
def threads_allowed() -> Iterator[None]:
    """Let calls use as many threads as THREADS has, on fewer processors too.

    The last of several runs at once restores the limit that the first one found.
    """
    if not is_installed("native"):
        yield
        return
    from fastsample import _native

    with _lock:
        before = _limits[0] if _limits else _native.most_threads()
        _limits.append(before)
        _native.limit_threads(max(before, *THREADS))
    try:
        yield
    finally:
        with _lock:
            _limits.pop()
            if not _limits:
                _native.limit_threads(before)
