"""Limits of the number of threads through threadpoolctl.

    fastsample.threads.register()
    with threadpoolctl.threadpool_limits(1):
        sampler(logits)  # on the calling thread

If threadpoolctl is imported before fastsample, this call is not needed. Its `user_api` and its
`internal_api` are "fastsample".

A limit applies to every call of the process, also to one with a larger `n_threads`. The default is
the number of processors that the calling thread may run on. The environment variable
FASTSAMPLE_NUM_THREADS, read once when the kernels are loaded, is an initial limit. Results do not
depend on it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from threading import Lock

from fastsample._version import __version__
from fastsample.engines import is_installed


@cache
def register() -> None:
    """Register fastsample with threadpoolctl. Further calls do nothing.

    The extension is loaded here, because threadpoolctl looks for libraries that are loaded.
    ImportError where one of both is not installed; threadpoolctl must be 3.2 or later.

    Examples
    --------
    >>> import fastsample, threadpoolctl
    >>> fastsample.threads.register()
    >>> with threadpoolctl.threadpool_limits({"fastsample": 1}):
    ...     fastsample.info()["threads"]
    1
    """
    import threadpoolctl

    from fastsample import _native  # noqa: F401

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


def register_if_imported() -> None:
    """Register if threadpoolctl has been imported; an error must not fail the import."""
    if "threadpoolctl" in sys.modules:
        with suppress(Exception):
            register()


_lock = Lock()
_limits: list[int] = []
"""The limit before, once for each `threads_allowed` that is entered."""


@contextmanager
def threads_allowed(threads: int) -> Iterator[None]:
    """Let calls use at least so many threads, on fewer processors too.

    The last one that is left restores the limit that the first one found.
    """
    if not is_installed("native"):
        yield
        return
    from fastsample import _native

    with _lock:
        before = _limits[0] if _limits else _native.most_threads()
        _limits.append(before)
        _native.limit_threads(max(before, threads))
    try:
        yield
    finally:
        with _lock:
            _limits.pop()
            if not _limits:
                _native.limit_threads(before)
