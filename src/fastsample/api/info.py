"""What this installation is: versions, instruction sets, threads, how it was compiled."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

from fastsample._version import __version__
from fastsample.engines import has_native, installed, resolve
from fastsample.engines.reference import RULE_VERSION

_VERSIONED = ("numba", "torch", "triton")
"""Engines whose bits another package has a part in."""


def info() -> dict[str, Any]:
    """Describe this installation; the first thing to put into a bug report.

    Returns
    -------
    dict
        version : str
        rule_version : int, the version of the sampling rule; equal numbers mean equal tokens
        engine : str, the engine that calls use unless they name another
        engines : tuple of str, those that are installed; "triton" needs a GPU as well
        numba, torch, triton : str or None, the version of each, where that engine is installed
        isa : str or None, the instruction set that calls use unless they name another; None where
            the compiled extension, which alone has any, is not installed
        isa_compiled : tuple of str, those in the extension
        isa_usable : tuple of str, those of them that this machine can run
        threads : int, the most that a call uses: FASTSAMPLE_NUM_THREADS or threadpoolctl's limit,
            else the processors that this thread may run on
        compiler : str or None
        flags : str or None, the compiler's

    Examples
    --------
    >>> import fastsample
    >>> fastsample.info()["rule_version"]
    1
    """
    engines = installed()
    return {
        "version": __version__,
        "rule_version": RULE_VERSION,
        "engine": resolve().name,
        "engines": engines,
        **{name: package_version(name) if name in engines else None for name in _VERSIONED},
        **_kernels(),
    }


def package_version(name: str) -> str:
    """A version as its package tells it: importing numba or torch takes a second or two."""
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        # The module may come in a package of another name, and such are slow to look for.
        others = metadata.packages_distributions().get(name)
        return metadata.version(others[0]) if others else "unknown"


def _kernels() -> dict[str, Any]:
    if not has_native():
        return {
            "isa": None,
            "isa_compiled": (),
            "isa_usable": (),
            "threads": 1,
            "compiler": None,
            "flags": None,
        }
    from fastsample import _native

    return {
        "isa": _native.default_isa(),
        "isa_compiled": _native.isa_compiled(),
        "isa_usable": _native.isa_usable(),
        "threads": _native.most_threads(),
        "compiler": _native.compiler(),
        "flags": _native.flags(),
    }


def cpu_name(told: Path = Path("/proc/cpuinfo")) -> str:
    """Name the processor as Linux does, and elsewhere at least its kind."""
    lines = told.read_text(errors="replace").splitlines() if told.is_file() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()
