"""benches/compare_builds.py: two builds in one process, and what it prints of them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import fastsample
from tests.support.engines import native

pytest.importorskip("typer")

import compare_builds
from compare_builds import Build, Case, Figures, Times

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(native is None, reason="fastsample._native is not built")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with a copy of the package, its extension included."""
    tree = tmp_path_factory.mktemp("tree")
    package = Path(fastsample.__file__).parent
    shutil.copytree(package, tree / "src" / "fastsample", ignore=shutil.ignore_patterns("*.pyc"))
    return tree


@pytest.fixture(scope="module")
def original() -> Path:
    """The tree of the package that the tests use."""
    tree = Path(fastsample.__file__).parents[2]
    if not (tree / "src" / "fastsample").is_dir():
        pytest.skip("fastsample is not imported from a source tree")
    return tree


def test_builds_are_separate_and_leave_the_loaded_package_alone(original: Path, copy: Path) -> None:
    before = dict(sys.modules)
    a, b = Build(original), Build(copy)
    with b.loaded():
        import fastsample as loaded
        from fastsample import _native as extension

        assert loaded is b.fastsample
        assert Path(extension.__file__).is_relative_to(copy)
    assert len({id(package) for package in (fastsample, a.fastsample, b.fastsample)}) == 3
    row = np.arange(50, dtype=np.float32)
    assert int(a.fastsample.Sampler(seed=3)(row)) == int(b.fastsample.Sampler(seed=3)(row))
    assert sys.modules["fastsample"] is fastsample
    names = [name for name in before if name.startswith("fastsample")]
    assert all(sys.modules[name] is before[name] for name in names)


def test_a_tree_without_the_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="fastsample must be in "):
        Build(tmp_path)


def test_builds_alternate_on_the_same_items(original: Path) -> None:
    build, calls = Build(original), []
    cases = [Case(lambda item, name=name: calls.append(name + item), "xyzw") for name in "AB"]
    found = compare_builds.interleave((build, build), cases, 2, None)
    assert "".join(calls) == "AxAyAzAwBxByBzBwBxByBzBwAxAyAzAw"
    assert [len(one) for one in found] == [8, 8]


def test_a_ratio_above_the_limit_is_marked() -> None:
    times = Times(10.0, 11.5, 1234.5)
    line = compare_builds.line_of("greedy", "hot", Figures((times, times), [1.0, 1.04, 9.0]))
    assert line[:5] == ["greedy", "hot", "10.00", "11.50", "1,234.50"]
    assert line[-1] == "1.040 !"
    assert compare_builds.line_of("", "", Figures((times, times), [1.03]))[-1] == "1.030"


def test_it_prints_calls_and_settings(
    original: Path, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare_builds.main(original, copy, "greedy", repeat=1, vocabulary=[2048], megabytes=1)
    printed = capsys.readouterr().out
    assert "calls: us per token" in printed
    assert "V = 2,048: us per token" in printed
    for line in ("sampler(row), greedy", "greedy, logprobs=20", "greedy, 32 rows", "greedy, fast"):
        assert printed.count(line) == 2, line
    assert f"A = {original}" in printed.replace("\n", "")
