"""The cost of options: each one against its alternative, on recorded and on generated rows."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rivals import OURS, numpy_softmax, torch_softmax
from rows import RowSet, as_dtype, compared, of_the_file, of_the_package
from settings import SETTINGS, SOFTMAX_GOALS, Setting, by_name, on_avx2, with_logprobs

import fastsample

if TYPE_CHECKING:
    from conftest import Bench

GENERATED, WIDE = of_the_package()[-1], compared()[-1]
"""Generated rows, and the widest ones that rivals are timed on: recorded ones where there are."""

SETS = (*of_the_file(), GENERATED)
SPEED_OF_TWO = 1.8
AVX2 = "x86-64-v3"
DRAWS = 1_000

each_set = pytest.mark.parametrize("rows", SETS, ids=lambda rows: rows.name)
each_setting = pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
pytestmark = pytest.mark.usefixtures("one_torch_thread")


def about(rows: RowSet, **columns: Any) -> dict[str, Any]:
    """Name the columns of a figure on these rows."""
    return {"contender": OURS, "source": rows.source, "vocabulary": rows.vocabulary, **columns}


def sampler_of(setting: Setting, n_threads: int = 1, isa: str | None = None) -> Any:
    """Make a sampler of a setting."""
    return fastsample.Sampler(setting.sampling(), stream="row", n_threads=n_threads, isa=isa)


def sample_of(setting: Setting, **options: Any) -> Any:
    """Make a call of `sample` with options."""
    params = {**setting.params, "seed": 1, "position": 0, "stream": 0, "n_threads": 1, **options}
    return lambda row: fastsample.sample(row, **params)


@each_setting
@each_set
def test_logprobs(bench: Bench, rows: RowSet, setting: Setting) -> None:
    """With the raw log-probability of the token."""
    columns = about(rows, table="logprobs", setting=setting.name, logprobs=0)
    goal = rows.goal(with_logprobs(setting))
    bench.compare(sample_of(setting, logprobs=0), bench.rows(rows), **columns, limit=goal)


def test_top_logprobs(bench: Bench) -> None:
    """With the raw log-probabilities of the token and of the 20 first ones."""
    setting = by_name("usual chain")
    columns = about(WIDE, table="logprobs", setting=f"{setting.name}, logprobs=20", logprobs=20)
    bench.compare(sample_of(setting, logprobs=20), bench.rows(WIDE), **columns, limit=None)


@pytest.mark.parametrize("contender", [OURS, "NumPy", "torch"])
def test_softmax(bench: Bench, contender: str) -> None:
    """Softmax of a row into an array that is there."""
    if contender == "torch" and find_spec("torch") is None:
        pytest.skip("torch is not installed")
    rows = bench.rows(WIDE)
    out = np.empty_like(rows[0])

    def ours(row: np.ndarray) -> Any:
        return fastsample.softmax(row, out=out, n_threads=1)

    rivals = {"NumPy": numpy_softmax, "torch": torch_softmax}
    call = ours if contender == OURS else lambda row: rivals[contender](row, out)
    setting = Setting(contender, SOFTMAX_GOALS)
    goal = WIDE.goal(setting) if contender == OURS else None
    columns = about(WIDE, table="softmax", setting=setting.name) | {"contender": contender}
    bench.compare(call, rows, **columns, limit=goal)


@pytest.mark.skipif(AVX2 not in fastsample.info()["isa_usable"], reason=f"this is no {AVX2}")
@each_setting
@each_set
def test_avx2(bench: Bench, rows: RowSet, setting: Setting) -> None:
    """On AVX2, where NumPy's maximum may still have AVX-512."""
    columns = about(rows, table="AVX2", setting=setting.name, isa=AVX2)
    goal = rows.goal(on_avx2(setting))
    bench.compare(sampler_of(setting, isa=AVX2), bench.rows(rows), **columns, limit=goal)


@pytest.mark.parametrize("draw", ["race", "inverse"])
@pytest.mark.parametrize("name", ["T .8", "usual chain"])
def test_draws(bench: Bench, name: str, draw: str) -> None:
    """Many draws of one row in a call, against as many calls."""
    columns = about(WIDE, table="draws", setting=name, draw=draw, partner="one draw, race")
    one = sample_of(by_name(name), draw="race")
    bench.compare(
        sample_of(by_name(name), draw=draw, n=DRAWS),
        bench.rows(WIDE),
        lambda row: [one(row) for _ in range(DRAWS)],
        tokens=DRAWS,
        **columns,
        limit=None,
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@each_setting
def test_half_width(bench: Bench, setting: Setting, dtype: str) -> None:
    """Rows of 16-bit floats against the same rows in float32."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    rows = bench.rows(WIDE)
    half = as_dtype(rows, dtype, bench.warm_seconds)
    columns = about(WIDE, table="dtype", setting=setting.name, dtype=dtype, partner="float32 rows")
    bench.compare(sampler_of(setting), half, sampler_of(setting), rows, **columns, limit=1.0)


@pytest.mark.parametrize("batch", [8, 32])
@each_setting
def test_batch(bench: Bench, setting: Setting, batch: int) -> None:
    """A batch in one call against its rows one by one."""
    rows = bench.rows(GENERATED)
    batches = rows.reshape(-1, batch, rows.shape[1])
    alone = sampler_of(setting)
    columns = about(GENERATED, table="batch", setting=setting.name, batch=batch)
    bench.compare(
        sampler_of(setting),
        batches,
        lambda rows: [alone(row) for row in rows],
        tokens=batch,
        **columns,
        partner="row by row",
        limit=1.0,
    )


@pytest.mark.skipif(fastsample.info()["threads"] < 2, reason="one core")
@each_setting
def test_two_threads(bench: Bench, setting: Setting) -> None:
    """Two threads against one, a batch of 32 rows: threads share rows out, and never cut one."""
    rows = bench.rows(GENERATED)
    columns = about(GENERATED, table="threads", setting=setting.name, batch=32, threads=2)
    bench.compare(
        sampler_of(setting, n_threads=2),
        rows.reshape(-1, 32, rows.shape[1]),
        sampler_of(setting),
        tokens=32,
        **columns,
        partner="one thread",
        limit=1 / SPEED_OF_TWO,
    )
