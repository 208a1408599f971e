"""Figures, drawn by matplotlib, which is loaded only here and only when one is requested."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample import Latency

BINS = 60


def require_matplotlib() -> None:
    """Raise RuntimeError if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise RuntimeError(
            "figures need matplotlib: pip install matplotlib "
            "(or pip install '.[plot]' in fastsample's repository)"
        )


def shares(
    latencies: Mapping[str, Latency], n_bins: int
) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Convert histograms to one logarithmic scale.

    Returns
    -------
    edges : float64 array of shape (n_bins + 1,)
        Nanoseconds, from the fastest call of all to the slowest.
    shares : float64 arrays of shape (n_bins,), by name
        The share of that name's calls between two edges.
    """
    histograms = {name: latency.histogram() for name, latency in latencies.items()}
    least = min(edges[0] for _, edges in histograms.values())
    most = max(edges[-1] for _, edges in histograms.values())
    common = np.geomspace(max(least, 1.0), max(most, 2.0), n_bins + 1)
    found = {}
    for name, (counts, edges) in histograms.items():
        middles = np.clip((edges[:-1] + edges[1:]) / 2, common[0], common[-1])
        found[name] = np.histogram(middles, common, weights=counts / counts.sum())[0]
    return common, found


def draw_latencies(latencies: Mapping[str, Latency], title: str, paths: Mapping[str, Path]) -> None:
    """Plot the distribution of times, one curve per name, and write the figure.

    Parameters
    ----------
    latencies : dict of Latency, by name, each with at least one call
    title : str
    paths : dict of Path, by format, "svg" or "png"
        Existing files are overwritten.

    Raises
    ------
    RuntimeError
        matplotlib is not installed.
    OSError
        A path cannot be written.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    edges, found = shares(latencies, BINS)
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes: Any = figure.subplots()
    for name, latency in latencies.items():
        label = f"{name}: p50 {latency.p50 / 1e3:.1f}, p99 {latency.p99 / 1e3:.1f} us"
        line = axes.stairs(found[name] * 100, edges / 1e3, fill=True, alpha=0.5, label=label)
        axes.axvline(latency.p50 / 1e3, color=line.get_facecolor(), linestyle=":")
    axes.set_xscale("log")
    axes.set_xlabel("microseconds per token")
    axes.set_ylabel("% of calls")
    axes.set_title(title, fontsize="medium")
    axes.legend()
    for kind, path in paths.items():
        figure.savefig(path, format=kind)
