"""Hypothesis: the profiles, and strategies of rows, filters and draws.

FASTSAMPLE_HYPOTHESIS=nightly searches longer, from fresh random starts.
"""

from __future__ import annotations

import math
import os

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from fastsample.params.table import STAGE_PARAMETERS
from tests.support.engines import SHARED_STAGES

settings.register_profile("ci", deadline=None, derandomize=True, max_examples=60, database=None)
settings.register_profile(
    "nightly",
    deadline=None,
    max_examples=600,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
PROFILE = settings.get_profile(os.environ.get("FASTSAMPLE_HYPOTHESIS", "ci"))

MINUS_INF = np.float32(-np.inf)


def logits_of(elements: st.SearchStrategy[float], most: int = 140) -> st.SearchStrategy[np.ndarray]:
    """Rows that hold at least one finite logit."""
    sizes = st.integers(1, most)
    rows = st_numpy.arrays(np.float32, sizes, elements=elements)
    return rows.filter(lambda row: bool(np.any(row > MINUS_INF)))


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
USUAL = st.floats(-20, 20, width=32)
INTEGERS = st.integers(-40, 40).map(float)
ROWS = st.one_of(
    logits_of(FINITE),
    logits_of(USUAL),
    logits_of(INTEGERS),
    logits_of(st.one_of(USUAL, st.just(-math.inf))),
)
TEMPERATURES = st.one_of(st.sampled_from([0.0, 1e-38, 1.0, 1e30]), st.floats(0.01, 100))
TOP_KS = st.integers(0, 160)
TOP_PS = st.one_of(st.sampled_from([0.0, 0.5, 0.9, 1.0]), st.floats(0, 1))
MIN_PS = st.one_of(st.sampled_from([0.0, 0.05, 1.0]), st.floats(0, 1))
WORDS = st.integers(0, 2**64 - 1)
PREFIX = {"temperature": TEMPERATURES, "top_k": TOP_KS, "top_p": TOP_PS, "min_p": MIN_PS}
LATER = {
    one.name: st.one_of(st.just(one.off[0]), st.floats(0, min(4.0, math.floor(one.high))))
    for one in STAGE_PARAMETERS
    if one.name in SHARED_STAGES and one.name not in PREFIX
}
"""The other filters that all engines have: off, or anywhere in their range."""
PREFIX_FILTERS = st.fixed_dictionaries(PREFIX)
"""Filters that keep a prefix of the order, and a smaller one the smaller they are."""
FILTERS = st.fixed_dictionaries(PREFIX | LATER)
DRAWS = st.fixed_dictionaries(
    {"seed": WORDS, "position": WORDS, "stream": st.integers(0, 2**32 - 1)}
)
