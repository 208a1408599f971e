"""Every setting on every set of rows: fastsample and its rivals, interleaved with `np.max`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rivals import OURS, RIVALS, is_installed, rivals_of
from rows import GENERATOR, RowSet, of_the_file, published
from settings import SETTINGS, Setting

import fastsample

if TYPE_CHECKING:
    from conftest import Bench

WIDE = 128_000
"""Targets apply from this vocabulary size on: below, call overhead dominates."""

SETS = (*published(), *of_the_file(), RowSet(GENERATOR, 32_000), RowSet(GENERATOR, 262_144))
"""Each vocabulary of 32,000, 49,152, 151,936 and 262,144 is among them."""

pytestmark = pytest.mark.usefixtures("one_torch_thread")


CONTESTS = [
    pytest.param(setting, contender, id=f"{setting.name}-{contender}")
    for setting in SETTINGS
    for contender in (OURS, *rivals_of(setting.sampling()))
]


@pytest.mark.parametrize("rows", SETS, ids=lambda rows: rows.name)
@pytest.mark.parametrize(("setting", "contender"), CONTESTS)
def test_draw(bench: Bench, rows: RowSet, setting: Setting, contender: str) -> None:
    """One row, one thread, one token."""
    params = setting.sampling()
    if contender == OURS:
        call = fastsample.Sampler(params, n_threads=1)
    elif is_installed(contender):
        call = RIVALS[contender](params)
    else:
        pytest.skip(f"{contender} is not installed")
    bench.compare(
        call,
        bench.rows(rows),
        table="settings",
        contender=contender,
        setting=setting.name,
        source=rows.source,
        vocabulary=rows.vocabulary,
        limit=setting.limit if contender == OURS and rows.vocabulary >= WIDE else None,
    )
