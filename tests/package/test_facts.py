"""Facts from published write-ups of sampling: figures that a reader can check by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.case_loop import each
from tests.support.engines import Engine, make_plan


def logits_of(*probabilities: float) -> np.ndarray:
    return np.log(np.array(probabilities, dtype=np.float64)).astype(np.float32)


THREE = np.array([4, 2, 1], dtype=np.float32)
SEVEN = logits_of(0.50, 0.20, 0.10, 0.08, 0.04, 0.01, 0.07)


def test_softmax_of_three_logits(engine: Engine):
    assert np.allclose(engine.shares(THREE), [0.84, 0.11, 0.04], atol=0.005)


@pytest.mark.parametrize(("temperature", "same_as"), [(0.5, [8, 4, 2]), (2.0, [2, 1, 0.5])])
def test_temperature_divides_the_logits(engine: Engine, temperature, same_as):
    cooled = engine.kept_set(THREE, temperature=temperature)[1]
    divided = engine.kept_set(np.array(same_as, dtype=np.float32))[1]
    assert np.array_equal(cooled, divided)


@each("temperature", [0.0, 1e-50, 1e-45, 1e-38, 1e-5])
def test_temperature_towards_0_is_argmax(engine: Engine, temperature):
    assert [engine.token(THREE, temperature=temperature, seed=s) for s in range(20)] == [0] * 20


@each("temperature", [1e9, 1e30, 3e38])
def test_temperature_towards_infinity_is_uniform(engine: Engine, temperature):
    assert engine.kept_set(THREE, temperature=temperature)[1].tolist() == [2**40] * 3


def test_top_k_and_top_p_keep_the_same_three(engine: Engine):
    assert engine.kept_set(SEVEN, top_k=3)[0].tolist() == [0, 1, 2]
    assert engine.kept_set(SEVEN, top_p=0.8)[0].tolist() == [0, 1, 2]


@pytest.mark.parametrize(("top", "top_p"), [(0.85, 0.8), (0.92, 0.9)])
def test_a_token_above_top_p_is_kept_alone(engine: Engine, top, top_p):
    row = logits_of(*[(1 - top) / 4] * 2, top, *[(1 - top) / 4] * 2)
    assert engine.kept_set(row, top_p=top_p)[0].tolist() == [2]


TOP_PROBABILITIES = (0.7804, 0.0446, 0.0224, 0.0151, 0.0150)
TOP_TOKENS = (70_000, 3, 151_935, 0, 149_000)


@pytest.fixture(scope="module")
def vocabulary_row() -> np.ndarray:
    """V = 151,936: five top tokens, 1,282 that share the rest evenly, and negligible ones.

    1,282 is the count at which temperature 2 leaves the first token 6.3 %.
    """
    row = np.full(151_936, -70, dtype=np.float32)
    row[1000 : 1000 + 1282] = logits_of((1 - sum(TOP_PROBABILITIES)) / 1282)
    row[list(TOP_TOKENS)] = logits_of(*TOP_PROBABILITIES)
    return row


def test_probabilities_of_the_top_tokens_without_filters(engine: Engine, vocabulary_row):
    shares = engine.shares(vocabulary_row)[list(TOP_TOKENS)]
    assert np.allclose(shares, TOP_PROBABILITIES, atol=1e-6)
    assert 66 < 1 / shares[4] < 67.5


def test_top_k_lifts_the_first(engine: Engine, vocabulary_row):
    shares = engine.shares(vocabulary_row, top_k=3)
    assert shares[TOP_TOKENS[0]] == pytest.approx(0.921, abs=5e-4)
    assert np.count_nonzero(shares) == 3


def test_top_p_keeps_two_so_the_fifth_is_never_drawn(engine: Engine, vocabulary_row):
    assert set(engine.kept_set(vocabulary_row, top_p=0.8)[0]) == set(TOP_TOKENS[:2])
    n_draws = 2000 if engine.is_native else 20
    rows = np.broadcast_to(vocabulary_row, (n_draws, len(vocabulary_row)))
    tokens, _ = engine.sample(rows, make_plan(n_draws, top_p=0.8, position=range(n_draws)))
    assert set(tokens) <= set(TOP_TOKENS[:2])


def test_the_fifth_is_drawn_about_once_in_67(engine: Engine, vocabulary_row):
    if not engine.is_native:
        pytest.skip("needs thousands of draws from a wide row; the reference's shares say the same")
    rows = np.broadcast_to(vocabulary_row, (4000, len(vocabulary_row)))
    tokens, _ = engine.sample(rows, make_plan(4000, seed=11, position=range(4000)))
    assert np.count_nonzero(tokens == TOP_TOKENS[4]) == pytest.approx(60, abs=5 * 60**0.5)


@pytest.mark.parametrize(("temperature", "share"), [(0.2, 1.0), (2.0, 0.063)])
def test_temperature_moves_the_first(engine: Engine, vocabulary_row, temperature, share):
    shares = engine.shares(vocabulary_row, temperature=temperature)
    assert shares[TOP_TOKENS[0]] == pytest.approx(share, abs=5e-4)


@each("temperature", [0.2, 0.7, 1.0, 2.0, 100.0])
def test_order_never_changes_with_temperature(engine: Engine, vocabulary_row, temperature):
    for k in range(1, 6):
        tokens, _ = engine.kept_set(vocabulary_row, temperature=temperature, top_k=k)
        assert set(tokens) == set(TOP_TOKENS[:k])
