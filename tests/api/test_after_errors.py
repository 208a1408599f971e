"""A call that fails is as if it had not been made: logits, samplers, memory stay as they were."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fastsample import Sampler, filter_logits, kept_set, sample, softmax
from tests.support.engines import native, sha256
from tests.support.sampler_steps import PARAMS, STEPS

ROWS = np.ascontiguousarray(STEPS[0])
SPOILT = ROWS.copy()
SPOILT[2, 40] = np.nan
MISTAKES: dict[str, Callable[[Sampler], Any]] = {
    "sample(bad row)": lambda _: sample(SPOILT, seed=1),
    "sample(top_p=2)": lambda _: sample(ROWS, top_p=2.0),
    "sample(mask of other rows)": lambda _: sample(ROWS, mask=np.ones((2, 200), bool)),
    "sampler(bad row)": lambda sampler: sampler(SPOILT),
    "sampler(other number of rows)": lambda sampler: sampler(ROWS[:2]),
    "kept_set(bad row)": lambda _: kept_set(SPOILT, top_k=5),
    "filter_logits(bad row)": lambda _: filter_logits(SPOILT, top_p=0.5),
    "softmax(bad row)": lambda _: softmax(SPOILT),
}


def fail(mistake: Callable[[Sampler], Any], sampler: Sampler) -> None:
    try:
        mistake(sampler)
    except ValueError:
        return
    pytest.fail("the mistake was not noticed")


@pytest.mark.skipif(native is None, reason="fastsample._native is not built")
@pytest.mark.parametrize("name", MISTAKES)
def test_errors_leave_nothing_behind(name: str) -> None:
    sampler = Sampler(PARAMS, stream="row")
    sampler(ROWS)
    before = sha256(ROWS, SPOILT)
    for _ in range(2_500):  # more than Python's free lists hold
        fail(MISTAKES[name], sampler)
    tracemalloc.start()
    try:
        for _ in range(2_000):
            fail(MISTAKES[name], sampler)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after < 8_192
    assert sha256(ROWS, SPOILT) == before
    assert sampler.position == 1
