"""One at a time: what keeps a second thread out of a `Sampler`."""

from __future__ import annotations

import os
import threading
import weakref


class Turn:
    """One user of a sampler at a time: a second is refused, not kept waiting.

    Attributes
    ----------
    owner : dict
        Always the same one; empty while nobody has the turn.
    """

    __slots__ = ("__weakref__", "owner")

    def __init__(self) -> None:
        # One entry, the thread whose turn it is. A dict takes it or shows it in a single step: with
        # a lock and its owner's name there is a moment between the two, for a thread or a signal.
        self.owner: dict[str, int] = {}
        _TURNS.add(self)

    def __enter__(self) -> None:
        me = threading.get_ident()
        # Its own turn it may take again: one that Ctrl-C or a signal cut short never ended.
        if self.owner.setdefault("thread", me) != me:
            raise RuntimeError(
                "this Sampler is being used by another thread, and a sampler serves one at a time "
                "(give each thread its own, or call `sample`, which keeps no state)"
            )

    def __exit__(self, *_: object) -> None:
        # A turn that was taken twice, or in the parent of a forked child, may have ended already.
        if self.owner.get("thread") == threading.get_ident():
            self.owner.clear()


_TURNS: weakref.WeakSet[Turn] = weakref.WeakSet()


def _free_turns() -> None:
    """In a forked child: the threads that had a turn in the parent are not here to end it."""
    for turn in _TURNS:
        turn.owner.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_turns)
