"""Properties that hold for every row and every setting, and a test of the drawn frequencies.

FASTSAMPLE_HYPOTHESIS=nightly searches longer, from fresh random starts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from fastsample.engines import reference
from tests.support import reference_rows
from tests.support.engines import Engine, make_plan, native
from tests.support.goodness_of_fit import ALPHA, chi_square_tail, g_statistic
from tests.support.hypothesis_rows import (
    DRAWS,
    FILTERS,
    FINITE,
    INTEGERS,
    MINUS_INF,
    PREFIX_FILTERS,
    PROFILE,
    ROWS,
    logits_of,
)


def kept_tokens(engine: Engine, row: np.ndarray, filters: dict[str, Any]) -> list[int]:
    return engine.kept_set(row, **filters)[0].tolist()


def same_kept(a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@PROFILE
@given(row=ROWS, filters=FILTERS, draw=DRAWS)
def test_the_token_is_kept_and_has_mass(engine, row, filters, draw):
    tokens, masses = engine.kept_set(row, **filters)
    token = engine.token(row, **filters, **draw)
    assert masses[tokens.tolist().index(token)] > 0
    assert row[token] > MINUS_INF


@PROFILE
@given(row=ROWS, filters=PREFIX_FILTERS)
def test_a_kept_set_is_a_prefix_of_the_order(engine, row, filters):
    tokens = kept_tokens(engine, row, filters)
    assert tokens == sorted(reference.order(row)[: len(tokens)].tolist())
    assert not np.any(row[tokens] == MINUS_INF)


@PROFILE
@given(row=ROWS, filters=FILTERS)
def test_a_kept_set_is_an_interval_of_the_order(engine, row, filters):
    tokens, masses = engine.kept_set(row, **filters)
    order = reference.order(row).tolist()
    first = min(map(order.index, tokens.tolist()))
    assert tokens.tolist() == sorted(order[first : first + len(tokens)])
    assert masses[tokens.tolist().index(order[first])] == masses.max() == 2**40


@PROFILE
@given(row=ROWS, filters=PREFIX_FILTERS)
def test_the_top_token_has_the_top_mass(engine, row, filters):
    tokens, masses = engine.kept_set(row, **filters)
    top = int(reference.order(row)[0])
    assert masses[tokens.tolist().index(top)] == masses.max() == 2**40


@PROFILE
@given(row=ROWS, filters=PREFIX_FILTERS, others=PREFIX_FILTERS)
@pytest.mark.parametrize("name", ["top_k", "top_p", "min_p"])
def test_kept_sets_are_nested(engine, name, row, filters, others):
    narrow, wide = sorted((filters[name], others[name]), reverse=name == "min_p")
    if name == "top_k" and narrow == 0:
        narrow, wide = wide, narrow
    inner = kept_tokens(engine, row, {**filters, name: narrow})
    outer = kept_tokens(engine, row, {**filters, name: wide})
    assert set(inner) <= set(outer)


@PROFILE
@given(row=ROWS, k=st.integers(1, 160), temperature=st.floats(0.01, 100))
def test_top_k_keeps_exactly_k(engine, row, k, temperature):
    tokens = kept_tokens(engine, row, {"temperature": temperature, "top_k": k})
    assert len(tokens) == min(k, np.count_nonzero(row > MINUS_INF))


@PROFILE
@given(row=ROWS, temperature=st.floats(0.01, 100), beyond=st.integers(0, 2**50))
def test_values_that_switch_filters_off(engine, row, temperature, beyond):
    off = engine.kept_set(row, temperature=temperature)
    same = {"top_k": len(row) + beyond, "top_p": 1.0, "min_p": 2.0**-60}
    assert same_kept(engine.kept_set(row, temperature=temperature, **same), off)
    assert np.array_equal(off[0], np.flatnonzero(row > MINUS_INF))


@PROFILE
@given(row=ROWS, filters=FILTERS, draw=DRAWS, padding=st.integers(1, 70))
def test_banned_tokens_at_the_end_change_nothing(engine, row, filters, draw, padding):
    longer = np.concatenate([row, np.full(padding, MINUS_INF)])
    assert same_kept(engine.kept_set(longer, **filters), engine.kept_set(row, **filters))
    assert engine.token(longer, **filters, **draw) == engine.token(row, **filters, **draw)


@PROFILE
@given(row=ROWS, filters=FILTERS)
def test_denormals_and_minus_zero_are_zero(engine, row, filters):
    tiny = np.where(np.abs(row) < 1e-3, np.float32(-1e-42), row)
    zero = np.where(np.abs(row) < 1e-3, np.float32(0), row)
    assert same_kept(engine.kept_set(tiny, **filters), engine.kept_set(zero, **filters))


@PROFILE
@given(row=logits_of(INTEGERS), filters=FILTERS, shift=st.integers(-1000, 1000))
def test_a_shift_without_rounding_changes_nothing(engine, row, filters, shift):
    shifted = row + np.float32(shift)
    assert same_kept(engine.kept_set(shifted, **filters), engine.kept_set(row, **filters))


@PROFILE
@given(row=logits_of(INTEGERS), filters=PREFIX_FILTERS, power=st.integers(-6, 6))
def test_a_power_of_two_moves_between_logits_and_temperature(engine, row, filters, power):
    if filters["temperature"] not in (1e-38, 1e30):
        scaled = {**filters, "temperature": filters["temperature"] * 2.0**power}
        expected = engine.kept_set(row, **filters)
        assert same_kept(engine.kept_set(np.ldexp(row, power), **scaled), expected)


@PROFILE
@given(row=ROWS, filters=FILTERS, data=st.data())
def test_a_permuted_vocabulary_keeps_the_permuted_tokens(engine, row, filters, data):
    values = np.unique(reference.read(row))
    permutation = np.array(data.draw(st.permutations(range(len(values)))))
    tokens, masses = engine.kept_set(values, **filters)
    moved, moved_masses = engine.kept_set(values[permutation], **filters)
    found = dict(zip(permutation[moved].tolist(), moved_masses.tolist(), strict=True))
    assert found == dict(zip(tokens.tolist(), masses.tolist(), strict=True))


@PROFILE
@given(
    rows=st_numpy.arrays(
        np.float32, st.tuples(st.integers(2, 9), st.integers(1, 70)), elements=FINITE
    ),
    filters=FILTERS,
    draw=DRAWS,
    data=st.data(),
)
def test_other_rows_and_their_order_change_nothing(engine, rows, filters, draw, data):
    n_rows = len(rows)
    plan = make_plan(n_rows, **filters, **draw)
    plan["stream"] ^= np.arange(n_rows, dtype=np.uint32)
    tokens = engine.sample(rows, plan)[0].tolist()
    permutation = np.array(data.draw(st.permutations(range(n_rows))))
    moved = engine.sample(rows[permutation], plan[permutation])[0].tolist()
    alone = [int(engine.sample(rows[[b]], plan[[b]])[0][0]) for b in range(n_rows)]
    assert moved == [tokens[b] for b in permutation]
    assert alone == tokens


@PROFILE
@given(row=ROWS, draws=st.lists(DRAWS, min_size=1, max_size=5))
def test_temperature_0_draws_nothing(engine, row, draws):
    top = int(reference.order(row)[0])
    assert {engine.token(row, temperature=0.0, top_p=0.5, **draw) for draw in draws} == {top}


# ---------------------------------------------------------------- drawn frequencies


@pytest.mark.parametrize("counted", ["seed", "position", "stream"])
def test_native_frequencies(counted):
    """A million draws in all; seed, position and stream each count up while the others rest."""
    if native is None:
        pytest.skip("fastsample._native is not built")
    engine = Engine("native", native.default_isa())
    n_draws = 340_000
    row = (np.random.default_rng(12).standard_normal(32) * 1.2).astype(np.float32)
    resting = {"seed": 42, "position": 7, "stream": 3}
    plan = make_plan(n_draws, temperature=0.9, **{**resting, counted: np.arange(n_draws)})
    tokens, status = engine.sample(np.broadcast_to(row, (n_draws, 32)), plan)
    assert not status.any()
    shares = engine.shares(row, temperature=0.9)
    statistic = g_statistic(np.bincount(tokens, minlength=32), shares)
    assert chi_square_tail(statistic, 31) > ALPHA


@pytest.mark.parametrize("counted", ["seed", "position", "stream"])
def test_reference_frequencies(counted):
    row = (np.random.default_rng(13).standard_normal(32) * 1.2).astype(np.float32)
    kept = reference_rows.kept_set(row)
    resting = {"seed": 42, "position": 7, "stream": 3}
    words = (reference.uniform(**{**resting, counted: n}) for n in range(20_000))
    counts = np.bincount([reference.draw(*kept, u) for u in words], minlength=32)
    statistic = g_statistic(counts, Engine("reference").shares(row))
    assert chi_square_tail(statistic, 31) > ALPHA
