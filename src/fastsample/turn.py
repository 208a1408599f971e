"""One at a time: what keeps a second thread out of a `Sampler`."""

from __future__ import annotations

import os
import threading
import weakref


class Turn:
    """One user of a sampler at a time: a second is refused, not kept waiting."""

    __slots__ = ("__weakref__", "_lock", "_owner")

    def __init__(self) -> None:
        self.renew()
        _TURNS.add(self)

    def renew(self) -> None:
        """Start anew, whoever had the turn."""
        self._lock = threading.Lock()
        self._owner = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        # A turn of this very thread was cut short, by Ctrl-C or a signal, before it could end.
        if not self._lock.acquire(False) and self._owner != me:
            raise RuntimeError(
                "this Sampler is being used by another thread, and a sampler serves one at a time "
                "(give each thread its own, or call `sample`, which keeps no state)"
            )
        self._owner = me

    def __exit__(self, *_: object) -> None:
        # A child that was forked inside its own turn finds the lock renewed.
        if self._lock.locked():
            self._lock.release()


_TURNS: weakref.WeakSet[Turn] = weakref.WeakSet()


def _free_turns() -> None:
    """In a forked child: the threads that had a turn in the parent are not here to end it."""
    for turn in _TURNS:
        turn.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_turns)
