"""Figures of latencies: their scale, and that they are written."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from fastsample.cli import plots
from tests.support.engines import latency_of


def test_shares_of_each_name_add_up_to_1_on_one_scale() -> None:
    latencies = {"a": latency_of([900, 1_000, 1_000, 30_000]), "b": latency_of([2_000_000])}
    edges, found = plots.shares(latencies, 10)
    assert edges[0] <= 900 and edges[-1] >= 2_000_000
    assert np.allclose(np.diff(np.log(edges)), np.log(edges[1] / edges[0]))
    assert [share.sum() for share in found.values()] == pytest.approx([1, 1])
    assert found["a"][0] == 0.75 and found["b"][-1] == 1


@pytest.mark.parametrize("times", [(0,), (0, 0, 1), (5,), (2**40, 2**40)])
def test_shares_of_times_that_hardly_differ(times: tuple[int, ...]) -> None:
    edges, found = plots.shares({"a": latency_of(times)}, 4)
    assert (np.diff(edges) > 0).all()
    assert found["a"].sum() == pytest.approx(1)


def test_figures_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    latencies = {"ours": latency_of([10, 20, 30]), "np.max": latency_of([5, 5, 6])}
    paths = {"svg": tmp_path / "a.svg", "png": tmp_path / "no suffix"}
    plots.draw_latencies(latencies, "a title", paths)
    text = paths["svg"].read_text(encoding="utf-8")
    assert text.startswith("<?xml") and "</svg>" in text
    assert paths["png"].read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(RuntimeError, match="figures need matplotlib: pip install matplotlib"):
        plots.draw_latencies({"a": latency_of([1])}, "", {})
