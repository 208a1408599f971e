"""The engines. Each is a module with one door, ``run``, and all give the same bits.

    run(job, out, *, isa=None, n_threads=None) -> None

An engine reads a `Job`, writes an `Outcome`, and raises for nothing that a row holds.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Protocol

from fastsample.job import Job, Outcome


class Run(Protocol):
    """An engine's door."""

    def __call__(
        self, job: Job, out: Outcome, *, isa: str | None = None, n_threads: int | None = None
    ) -> None:
        """Draw for every row of the job."""


@cache
def has_native() -> bool:
    """Tell whether the compiled extension is installed."""
    return find_spec("fastsample._native") is not None


def resolve(name: str | None = None, isa: str | None = None) -> Run:
    """Find an engine's ``run`` by name.

    Parameters
    ----------
    name : str or None
        "native", "reference", or None or "auto": native where the extension is installed.
    isa : str or None
        The instruction set that will be asked for; only the native engine has any.

    Raises
    ------
    ValueError
        An unknown name, or an `isa` for the reference engine.
    RuntimeError
        The native engine where the extension is not installed.
    """
    if name is None or name == "auto":
        name = "native" if isa is not None or has_native() else "reference"
    if name == "native":
        return _native_run()
    if name != "reference":
        raise ValueError(
            f"`engine` must be 'native', 'reference', 'auto' or None, got {name!r} "
            "(None takes the fastest one)"
        )
    if isa is not None:
        raise ValueError(
            f"`isa` must be None for engine 'reference', which has no kernels, got {isa!r} "
            "(leave one of the two out)"
        )
    return _reference_run()


@cache
def _native_run() -> Run:
    if not has_native():
        raise RuntimeError(
            "engine 'native' needs the compiled extension, which is not installed (install "
            "fastsample where a C++ compiler is, or pass engine='reference' without `isa`)"
        )
    from .native import run

    return run


@cache
def _reference_run() -> Run:
    from .reference import run

    return run
