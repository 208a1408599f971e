"""Whether this machine is idle enough to publish figures, and its description."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import cpuinfo
import numpy as np

import fastsample
from fastsample.cli.interleave import QUIET, load_average

HOPELESS = 2.0
"""A load average above this will not settle in the time that is waited."""

ZEN4_MODELS = (range(0x10, 0x20), range(0x60, 0xB0))
"""Models of AMD's family 19h that are Zen 4; the others are Zen 3."""


class BusyError(RuntimeError):
    """Other work runs on this machine, which would distort the figures."""


def settled_load(
    patience: float,
    load: Callable[[], float] = load_average,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """Wait until the machine is idle, for at most `patience` seconds; return the load average.

    A build just before leaves a load average above the bound for a minute. A line on standard error
    says that it waits.

    Raises
    ------
    BusyError
        The machine stayed busy.
    """
    pause, waited = 5.0, 0.0
    while (found := load()) > QUIET:
        if waited >= patience or found > HOPELESS:
            raise BusyError(
                f"the load average of the last minute is {found:.2f}, above {QUIET}: nothing is "
                "published (stop what else runs, or mark the figures: make bench NOISY=1, or "
                "--noisy)"
            )
        if not waited:
            print(
                f"the load average of the last minute is {found:.2f}: waiting until it is at most "
                f"{QUIET}, for {patience:.0f} seconds at most",
                file=sys.stderr,
                flush=True,
            )
        sleep(pause)
        waited += pause
    return found


def versions() -> dict[str, str]:
    """Return the versions of everything that is timed; torch where it is installed."""
    found = {"python": platform.python_version(), "fastsample": fastsample.__version__}
    for name in ("numpy", "torch"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def facts() -> dict[str, Any]:
    """Describe the machine: recorded with every figure."""
    cpu = cpuinfo.get_cpu_info()
    return {
        "cpu": cpu.get("brand_raw") or platform.machine(),
        "zen4": is_zen4(cpu),
        "cores": fastsample.info()["threads"],
        "versions": versions(),
        "numpy_simd": _numpy_simd(),
    }


def is_zen4(cpu: dict[str, Any]) -> bool:
    """Whether a processor, as cpuinfo describes it, is AMD's Zen 4, for which the goals are."""
    if cpu.get("vendor_id_raw") != "AuthenticAMD" or cpu.get("family") != 0x19:
        return False
    return any(cpu.get("model") in models for models in ZEN4_MODELS)


def _numpy_simd() -> list[str]:
    """Return the instruction sets that NumPy uses: they decide how fast `np.max` is."""
    config: Any = np.show_config(mode="dicts")
    return list(config.get("SIMD Extensions", {}).get("found", []))
