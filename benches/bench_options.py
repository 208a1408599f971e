"""The cost of options: each one against its alternative, on generated rows."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rivals import OURS, numpy_softmax, torch_softmax
from rows import GENERATOR, RowSet, as_dtype
from settings import AVX2_MARGIN, SETTINGS, SOFTMAX_LIMIT, Setting, with_logprobs

import fastsample

if TYPE_CHECKING:
    from conftest import Bench

ROWS = RowSet(GENERATOR, 151_936)
ABOUT = {"contender": OURS, "source": ROWS.source, "vocabulary": ROWS.vocabulary}
SPEED_OF_TWO = 1.8
AVX2 = "x86-64-v3"

each_setting = pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
pytestmark = pytest.mark.usefixtures("one_torch_thread")


def sampler_of(setting: Setting, n_threads: int = 1, isa: str | None = None) -> Any:
    """Make a sampler of a setting."""
    return fastsample.Sampler(setting.sampling(), n_threads=n_threads, isa=isa)


@each_setting
def test_logprobs(bench: Bench, setting: Setting) -> None:
    """With the token's raw log-probability and the 20 first ones."""
    params = {**setting.params, "seed": 1, "position": 0, "stream": 0, "n_threads": 1}

    def call(row: np.ndarray) -> Any:
        return fastsample.sample(row, logprobs=20, **params)

    limit = with_logprobs(setting)
    name = f"{setting.name}, logprobs=20"
    bench.compare(call, bench.rows(ROWS), **ABOUT, table="logprobs", setting=name, limit=limit)


@pytest.mark.parametrize("contender", [OURS, "NumPy", "torch"])
def test_softmax(bench: Bench, contender: str) -> None:
    """Softmax of a row into an array that is there."""
    if contender == "torch" and find_spec("torch") is None:
        pytest.skip("torch is not installed")
    rows = bench.rows(ROWS)
    out = np.empty_like(rows[0])

    def ours(row: np.ndarray) -> Any:
        return fastsample.softmax(row, out=out, n_threads=1)

    rivals = {"NumPy": numpy_softmax, "torch": torch_softmax}
    call = ours if contender == OURS else lambda row: rivals[contender](row, out)
    limit = SOFTMAX_LIMIT if contender == OURS else None
    about = {**ABOUT, "contender": contender}
    bench.compare(call, rows, **about, table="softmax", setting="softmax into out", limit=limit)


@pytest.mark.skipif(AVX2 not in fastsample.info()["isa_usable"], reason=f"this is no {AVX2}")
@each_setting
def test_avx2(bench: Bench, setting: Setting) -> None:
    """On AVX2, where NumPy's maximum may still have AVX-512."""
    call, limit = sampler_of(setting, isa=AVX2), setting.limit * AVX2_MARGIN
    about = {"table": "AVX2", "setting": setting.name, "limit": limit, "isa": AVX2}
    bench.compare(call, bench.rows(ROWS), **ABOUT, **about)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@each_setting
def test_half_width(bench: Bench, setting: Setting, dtype: str) -> None:
    """Rows of 16-bit floats against the same rows in float32."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    rows = bench.rows(ROWS)
    half = as_dtype(rows, dtype, bench.warm_seconds)
    bench.compare(
        sampler_of(setting),
        half,
        sampler_of(setting),
        rows,
        **ABOUT,
        table="dtype",
        setting=setting.name,
        dtype=dtype,
        partner="float32 rows",
        limit=1.0,
    )


@pytest.mark.parametrize("batch", [8, 32])
@each_setting
def test_batch(bench: Bench, setting: Setting, batch: int) -> None:
    """A batch in one call against its rows one by one."""
    rows = bench.rows(ROWS)
    batches = rows.reshape(-1, batch, rows.shape[1])
    alone = sampler_of(setting)
    bench.compare(
        sampler_of(setting),
        batches,
        lambda rows: [alone(row) for row in rows],
        tokens=batch,
        **ABOUT,
        table="batch",
        setting=setting.name,
        batch=batch,
        partner="row by row",
        limit=1.0,
    )


@pytest.mark.skipif(fastsample.info()["threads"] < 2, reason="one core")
@each_setting
def test_two_threads(bench: Bench, setting: Setting) -> None:
    """Two threads against one, a batch of 32 rows: threads share rows out, and never cut one."""
    rows = bench.rows(ROWS)
    bench.compare(
        sampler_of(setting, n_threads=2),
        rows.reshape(-1, 32, rows.shape[1]),
        sampler_of(setting),
        tokens=32,
        **ABOUT,
        table="threads",
        setting=setting.name,
        batch=32,
        threads=2,
        partner="one thread",
        limit=1 / SPEED_OF_TWO,
    )
