"""Seeds that nobody gave: a forked child has others, or workers would draw the same tokens.

A fresh seed is kept combined with a number of the process. Each child draws that number anew, and
so replaces all fresh seeds at once: equal ones, of continuations and of copies, stay equal.
"""

from __future__ import annotations

import os

from fastsample.params.parameters import fresh_seed

from .compiled import native

_mask = 0
_generation = 0


def generation() -> int:
    """Return how many forks lie between this process and the one that imported this module."""
    return _generation


def masked(seed: int) -> int:
    """Return the kept form of a fresh seed; or of its kept form the seed in this process."""
    return seed ^ _mask


def _begin_child() -> None:
    global _mask, _generation
    _mask ^= fresh_seed()
    _generation += 1
    if native is not None:
        native.begin_child(_mask)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_child)
