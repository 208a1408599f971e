"""Threads for a whole process: threadpoolctl sees those of fastsample, and limits them.

    with threadpoolctl.threadpool_limits(1):
        sampler(logits)  # on the calling thread alone

Nothing has to be called for it, and either of the two may be imported first: fastsample announces
itself as soon as both are there, and never imports threadpoolctl itself. Its `user_api` and its
`internal_api` are "fastsample".

A limit holds for every call of the process, also for one that asks for more by `n_threads`. Without
one the limit is the number of processors that the calling thread may run on. The environment's
FASTSAMPLE_NUM_THREADS, read once when the kernels are loaded, is a limit from the start. Tokens and
all other answers are the same at every limit.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from ._version import __version__
from .engines import has_native

NAME = "threadpoolctl"


def register(threadpoolctl: Any) -> None:
    """Make fastsample known to the imported threadpoolctl.

    Parameters
    ----------
    threadpoolctl : module
        Before its version 3.2 it can know no other libraries, and nothing is done.

    Notes
    -----
    threadpoolctl goes through the libraries that are loaded, so the kernels are loaded here. Where
    they refuse the environment (FASTSAMPLE_ISA, say), nothing is done: the first call will tell.
    """
    if not has_native() or not hasattr(threadpoolctl, "register"):
        return
    try:
        from . import _native  # noqa: F401
    except (RuntimeError, ValueError):
        return

    class Controller(threadpoolctl.LibController):  # type: ignore[misc]
        user_api = internal_api = "fastsample"
        filename_prefixes = ("_native",)
        check_symbols = ("fastsample_get_num_threads", "fastsample_set_num_threads")

        def get_num_threads(self) -> int:
            return int(self.dynlib.fastsample_get_num_threads())

        def set_num_threads(self, num_threads: int) -> None:
            self.dynlib.fastsample_set_num_threads(num_threads)

        def get_version(self) -> str:
            return __version__

    threadpoolctl.register(Controller)


class _Announcer:
    """A finder that leads Python's own one to threadpoolctl, and has it registered with."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != NAME:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                register(module)

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def announce() -> None:
    """Register with threadpoolctl: now if it has been imported, else when it will be."""
    if NAME in sys.modules:
        register(sys.modules[NAME])
    else:
        sys.meta_path.insert(0, _Announcer())
