"""Every setting on every set of rows: both ways to draw, and rivals, interleaved with `np.max`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rivals import ARGMAX, INVERSE, OURS, RIVALS, is_installed, rivals_of
from rows import GENERATOR, RowSet, compared, of_the_file, of_the_package
from settings import SETTINGS, VOCABULARIES, Setting

import fastsample

if TYPE_CHECKING:
    from conftest import Bench

GENERATED = [RowSet(GENERATOR, size) for size in VOCABULARIES]
SETS = tuple(dict.fromkeys((*of_the_file(), *of_the_package(), *GENERATED)))

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def contenders(rows: RowSet, setting: Setting) -> list[str]:
    """List what draws with a setting: rivals on some sets only, as they take long."""
    inverse = [INVERSE] if setting.params.get("temperature") != 0 else []
    return [OURS, *inverse, *(rivals_of(setting.sampling()) if rows in compared() else ())]


CONTESTS = [
    pytest.param(rows, setting, contender, id=f"{rows.name}-{setting.name}-{contender}")
    for rows in SETS
    for setting in SETTINGS
    for contender in contenders(rows, setting)
]


def call_of(setting: Setting, contender: str) -> Any:
    """Make what is timed: a row in, a token out."""
    if contender == OURS:
        return fastsample.Sampler(setting.sampling(), n_threads=1)
    if contender == INVERSE:
        return fastsample.Sampler(setting.sampling(draw="inverse"), n_threads=1)
    return RIVALS[contender](setting.sampling())


@pytest.mark.parametrize(("rows", "setting", "contender"), CONTESTS)
def test_draw(bench: Bench, rows: RowSet, setting: Setting, contender: str) -> None:
    """One row, one thread, one token."""
    if not is_installed(contender):
        pytest.skip(f"{contender} is not installed")
    bench.compare(
        call_of(setting, contender),
        bench.rows(rows),
        table="settings",
        contender=contender,
        setting=setting.name,
        source=rows.source,
        vocabulary=rows.vocabulary,
        limit=rows.goal(setting) if contender == OURS else None,
    )


@pytest.mark.parametrize("rows", SETS, ids=lambda rows: rows.name)
def test_argmax(bench: Bench, rows: RowSet) -> None:
    """NumPy's argmax, which greedy must not be slower than."""
    about = {"source": rows.source, "vocabulary": rows.vocabulary, "limit": None}
    about |= {"table": "settings", "contender": ARGMAX, "setting": ARGMAX}
    bench.compare(np.argmax, bench.rows(rows), **about)
