"""Threads for a whole process: threadpoolctl sees those of fastsample, and limits them.

    fastsample.threads.register()
    with threadpoolctl.threadpool_limits(1):
        sampler(logits)  # on the calling thread alone

Where threadpoolctl has been imported before fastsample, nothing has to be called. fastsample never
imports it unasked, and does not watch for its import either: whoever limits threads writes so in a
program of their own, and has a place there for one line. Its `user_api` and its `internal_api` are
"fastsample".

A limit holds for every call of the process, also for one that asks for more by `n_threads`. Without
one the limit is the number of processors that the calling thread may run on. The environment's
FASTSAMPLE_NUM_THREADS, read once when the kernels are loaded, is a limit from the start. Tokens and
all other answers are the same at every limit.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cache

from fastsample._version import __version__


@cache
def register() -> None:
    """Make fastsample known to threadpoolctl; once is enough, and more do no harm.

    Raises
    ------
    ImportError
        threadpoolctl is not installed, or the kernels are not.
    AttributeError
        threadpoolctl is older than 3.2: it can know no other libraries.
    ValueError, RuntimeError
        The kernels refuse the environment: FASTSAMPLE_ISA or FASTSAMPLE_NUM_THREADS.

    Notes
    -----
    threadpoolctl goes through the libraries that are loaded, so the kernels are loaded here.

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
    """Register where threadpoolctl has been imported; what hinders it must not stop an import."""
    if "threadpoolctl" in sys.modules:
        with suppress(Exception):
            register()
