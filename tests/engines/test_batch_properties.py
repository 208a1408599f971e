"""Properties of whole batches under any parameters, and equality of all engines on them.

Rows mix ties, denormals, infinities and nan; they lie apart in memory; parameters stand on their
borders and next to them. FASTSAMPLE_HYPOTHESIS=nightly searches longer, from fresh random starts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from fastsample import filter_logits, sample
from tests.support.engines import (
    SHARED_STAGES,
    TESTED_ENGINES,
    Engine,
    SampleRequest,
    differing,
    make_output,
    make_plan,
    make_request,
    needs_tested_engine,
    sha256,
)
from tests.support.hypothesis_rows import DRAWS, LATER, PROFILE
from tests.support.random_requests import MODES

F32 = np.float32
MAX = float(np.finfo(F32).max)
EDGES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 130, 255, 257)
POOL = (0.0, -0.0, 1.0, 1.5, -2.0, 1e-45, -1e-38, 2.0**-126, MAX, -MAX, -np.inf)
BAD = (np.nan, np.inf)


def around(*borders: float) -> list[float]:
    """Borders and their float32 neighbours in [0, 1]."""
    near = [
        float(np.nextafter(F32(x), F32(towards))) for x in borders for towards in (-np.inf, np.inf)
    ]
    return [x for x in (*borders, *near) if 0 <= x <= 1]


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
ELEMENTS = st.one_of(st.sampled_from(POOL), st.floats(-30, 30, width=32), FLOATS)
SHARES = st.one_of(st.sampled_from(around(0.0, 0.5, 0.9, 1.0)), st.floats(0, 1))
TEMPERATURES = st.one_of(
    st.sampled_from([0.0, 1e-45, 1e-38, 3e38, *around(1.0)]), st.floats(0.01, 100)
)
PARAMS = st.fixed_dictionaries(
    {
        "temperature": TEMPERATURES,
        "top_k": st.one_of(st.sampled_from([0, 1, 2**40]), st.integers(0, 300)),
        "top_p": SHARES,
        "min_p": SHARES,
        **LATER,
        "min_keep": st.sampled_from([1, 1, 1, 2, 64, 2**40]),
        "stages": st.permutations(SHARED_STAGES).map(tuple),
    }
)


@st.composite
def batches(draw: Any, bad: bool = True) -> np.ndarray:
    """Rows at a stride of one to three tokens and with a gap; some with nan or +inf in them."""
    size = draw(st.sampled_from(EDGES))
    n_rows, step = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    elements = (
        st.one_of(ELEMENTS, st.sampled_from(BAD)) if bad and draw(st.booleans()) else ELEMENTS
    )
    wide = draw(st_numpy.arrays(F32, (n_rows, size * step + 1), elements=elements))
    rows = wide[:, 1::step]
    if not bad:
        rows[:, draw(st.integers(0, size - 1))] = draw(st.floats(-30, 30, width=32))
    rows.flags.writeable = False
    return rows


def settings_of_rows(params: list[dict[str, Any]], n_rows: int, draw: dict[str, int]) -> np.ndarray:
    """A plan in which each row has parameters of its own."""
    plan = [make_plan(1, **params[b % len(params)], **draw) for b in range(n_rows)]
    return np.concatenate(plan)


def everything(engine: Engine, request: SampleRequest) -> list[Any]:
    """Tokens with all log-probabilities, and kept sets."""
    out = make_output(len(request.values), modes=MODES, top_count=min(3, request.vocabulary))
    return [engine.run(request, out), engine.kept_sets(request)]


@needs_tested_engine
@settings(PROFILE, max_examples=10 * PROFILE.max_examples)
@given(rows=batches(), params=st.lists(PARAMS, min_size=1, max_size=4), draw=DRAWS)
def test_all_engines_are_the_reference(rows, params, draw):
    before = sha256(rows)
    request = make_request(rows, settings_of_rows(params, len(rows), draw))
    expected = everything(Engine("reference"), request)
    # A call of torch costs as much as a hundred of native's: it gets one example in ten.
    every_tenth = int(before[:8], 16) % 10 == 0
    for engine in (one for one in TESTED_ENGINES if every_tenth or one.name != "torch"):
        for one, other in zip(expected, everything(engine, request), strict=True):
            assert differing(one, other) == [], engine
    assert sha256(rows) == before


@PROFILE
@given(rows=batches(bad=False), params=PARAMS, draw=DRAWS, data=st.data())
def test_a_mask_is_minus_inf(engine, rows, params, draw, data):
    allowed = data.draw(st_numpy.arrays(bool, rows.shape))
    some = np.flatnonzero(np.isfinite(rows).all(0))[0]
    allowed[:, some] = True
    plan = settings_of_rows([params], len(rows), draw)
    masked = make_request(rows, plan, mask=allowed)
    banned = make_request(np.where(allowed, rows, F32(-np.inf)), plan)
    for one, other in zip(everything(engine, masked), everything(engine, banned), strict=True):
        # "raw" is of the row as it came, before the mask.
        assert set(differing(one, other)) <= {"logprobs", "ranks", "top_tokens", "top_logprobs"}
        if hasattr(one, "logprobs"):
            assert one.logprobs.logprobs[1:].tobytes() == other.logprobs.logprobs[1:].tobytes()
            assert one.logprobs.ranks[1:].tobytes() == other.logprobs.ranks[1:].tobytes()


@PROFILE
@given(rows=batches(bad=False), k=st.integers(1, 300), min_p=SHARES, temperature=TEMPERATURES)
def test_filters_that_look_at_the_top_alone_are_idempotent(engine, rows, k, min_p, temperature):
    how = {"temperature": temperature, "engine": engine.name, "isa": engine.isa}
    for filters in ({"top_k": min(k, rows.shape[1])}, {"min_p": min_p}):
        once = filter_logits(rows, **filters, **how)
        assert filter_logits(once, **filters, **how).tobytes() == once.tobytes()


@PROFILE
@given(rows=batches(bad=False), params=PARAMS, draw=DRAWS)
def test_arguments_do_not_change_and_the_token_is_kept(engine, rows, params, draw):
    before = sha256(rows)
    by = {"engine": engine.name, "isa": engine.isa}
    result = sample(rows, **params, **draw, **by, kept_count=True)
    kept = filter_logits(rows, **params, **by)
    assert sha256(rows) == before
    assert np.all(kept[np.arange(len(rows)), result.tokens] > -np.inf)
    assert result.kept_count.tolist() == np.count_nonzero(kept > -np.inf, axis=1).tolist()
