"""Checks in a forked child."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable


def fork() -> int:
    """`os.fork`, without the warning that the process has threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def holds_in_a_child(check: Callable[[], bool]) -> bool:
    """Whether a check holds in a forked child, which has a minute for it."""
    child = fork()
    if child == 0:
        failed = True
        try:
            signal.alarm(60)
            failed = not check()
        finally:
            os._exit(failed)
    return os.waitpid(child, 0)[1] == 0
