"""Description of the installation: versions, instruction sets, threads, compiler."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

from fastsample._version import __version__
from fastsample.engines import ENGINES, installed, is_installed, resolve
from fastsample.engines.reference import RULE_VERSION


def info() -> dict[str, Any]:
    """Describe this installation, for bug reports and logs.

    Returns
    -------
    dict
        version : str
        rule_version : int, the version of the sampling rule; equal versions give equal tokens
        engine : str, the default engine
        engines : tuple of str, the installed engines; "triton" also needs a GPU
        numba, torch, triton : str or None, the version, None if the engine is not installed
        cpu : str, the name of the processor
        isa : str or None, the default instruction set; None without the compiled extension
        isa_compiled : tuple of str, the instruction sets of the extension
        isa_usable : tuple of str, those that this machine can run
        threads : int, the most that a call uses: FASTSAMPLE_NUM_THREADS or threadpoolctl's limit,
            else the processors that this thread may run on
        compiler : str or None
        flags : str or None, the flags of the compiler

    Examples
    --------
    >>> import fastsample
    >>> fastsample.info()["rule_version"]
    2
    """
    engines = installed()
    return {
        "version": __version__,
        "rule_version": RULE_VERSION,
        "engine": resolve().name,
        "engines": engines,
        **{
            record.package: package_version(record.package) if record.name in engines else None
            for record in ENGINES.values()
            if record.package is not None
        },
        "cpu": cpu_name(),
        **_kernels(),
    }


def package_version(name: str) -> str:
    """Read a version from its metadata: importing numba or torch takes a second or two."""
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        # The module may be in a package of another name, which is slow to find.
        others = metadata.packages_distributions().get(name)
        return metadata.version(others[0]) if others else "unknown"


def _kernels() -> dict[str, Any]:
    if not is_installed("native"):
        absent = {"isa": None, "isa_compiled": (), "isa_usable": (), "threads": 1}
        return {**absent, "compiler": None, "flags": None}
    from fastsample import _native

    return {
        "isa": _native.default_isa(),
        "isa_compiled": _native.isa_compiled(),
        "isa_usable": _native.isa_usable(),
        "threads": _native.most_threads(),
        "compiler": _native.compiler(),
        "flags": _native.flags(),
    }


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name on Linux, and its architecture elsewhere."""
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.is_file() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()
