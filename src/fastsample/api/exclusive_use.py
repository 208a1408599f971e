"""One use of a `Sampler` at a time."""

from __future__ import annotations

import os
import threading
import weakref
from typing import NoReturn


def refuse_use() -> NoReturn:
    """Raise the error for a use during another one."""
    raise RuntimeError(
        "this Sampler is in use, and serves one call at a time: it was used during a call, "
        "by another thread, a signal handler or an argument's own code (give each thread "
        "its own, or call `sample`, which keeps no state)"
    )


class ExclusiveUse:
    """A lock that refuses a second use instead of making it wait.

    ``with exclusive.begin():`` enters the `threading.Lock` itself, whose methods are C code. So no
    signal handler runs after the lock is taken and before the block begins, nor between the block
    and the release: an exception of a handler never leaves the lock taken.

    A prepared method does not take it: inside the block, `Step.suspend` says whether there is one.
    """

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        _ALL.add(self)

    def begin(self) -> threading.Lock:
        """Return the lock for a ``with`` statement; RuntimeError where it is taken."""
        if self.lock.locked():
            refuse_use()
        return self.lock


_ALL: weakref.WeakSet[ExclusiveUse] = weakref.WeakSet()


def _renew_locks() -> None:
    """In a forked child: a thread of the parent that has taken a lock is not here to release it."""
    for exclusive in _ALL:
        if exclusive.lock.locked():
            exclusive.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
