"""Frequencies of tokens without replacement against successive sampling; wrong laws fail.

Successive sampling draws each token in proportion to the masses that are left: the order of its
tokens is Plackett and Luce's.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from tests.support.engines import Engine, make_output, make_plan, make_request, native
from tests.support.goodness_of_fit import ALPHA, chi_square_tail, g_statistic, pool
from tests.support.oracle import REFERENCE

pytestmark = pytest.mark.skipif(native is None, reason="fastsample._native is not built")

ROWS = 200_000
LEAST_EXPECTED = 200


def draw(row: np.ndarray, n: int, rows: int = ROWS, **settings: Any) -> np.ndarray:
    """Tokens of shape (rows, n), each row at a position of its own."""
    plan = make_plan(rows, seed=2026, draw="race", **settings)
    plan["position"] = np.arange(rows)
    values = np.broadcast_to(row, (rows, len(row)))
    request = make_request(values, plan)._replace(replacement=False)
    return Engine("native", native.default_isa()).run(request, make_output(rows, n)).tokens


def successive(shares: np.ndarray, n: int) -> dict[tuple[int, ...], float]:
    """The probability of each sequence of n distinct tokens."""
    found = {}
    for tokens in permutations(np.flatnonzero(shares).tolist(), n):
        probability, left = 1.0, float(shares.sum())
        for token in tokens:
            probability *= shares[token] / left
            left -= shares[token]
        found[tokens] = probability
    return found


def tail_of(drawn: np.ndarray, law: dict[tuple[int, ...], float]) -> float:
    """The tail of a G-test of sequences, pooled in cells of similar probabilities."""
    sequences, counts = np.unique(drawn, axis=0, return_counts=True)
    found = dict(zip(map(tuple, sequences.tolist()), counts.tolist(), strict=True))
    assert found.keys() <= law.keys()
    order = sorted(law, key=lambda tokens: (-law[tokens], tokens))
    cells = pool(
        np.array([found.get(tokens, 0) for tokens in order]),
        np.array([law[tokens] for tokens in order]),
        LEAST_EXPECTED,
    )
    return chi_square_tail(g_statistic(*cells), len(cells[0]) - 1)


LAWS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "all of 4": (4, 4, {}),
    "3 of 5": (5, 3, {"temperature": 0.7}),
    "3 of 5, listed": (5, 3, {"temperature": 1.2, "top_k": 4}),
    "2 of 33, with a tail": (33, 2, {"top_p": 0.95}),
}


@pytest.mark.parametrize("name", LAWS)
def test_sequences_are_those_of_successive_sampling(name: str) -> None:
    size, n, settings = LAWS[name]
    row = np.random.default_rng(size).normal(0, 1, size).astype(np.float32)
    shares = REFERENCE.shares(row, **settings)
    drawn = draw(row, n, **settings)
    assert tail_of(drawn, successive(shares, n)) > ALPHA
    # Negative controls: a temperature that is 5 % off, and the same sets in another order.
    flatter = successive(shares ** (1 / 1.05) * (shares > 0), n)
    backwards = {tokens[::-1]: p for tokens, p in successive(shares, n).items()}
    for wrong in (flatter, backwards):
        assert tail_of(drawn, wrong) < ALPHA


def heavy_row() -> np.ndarray:
    """Five tokens that come first, by their clocks or by the tail, and then six light ones."""
    row = np.full(1024, -np.inf, np.float32)
    row[[1, 200, 500, 600, 1023]] = [0, -0.5, 0.25, 0.5, -1]
    row[[0, 50, 100, 300, 800, 900]] = [-15, -15.5, -16, -14.5, -15.25, -16.5]
    return row


def test_heads_and_the_inverse_method_keep_the_law() -> None:
    """Of 11 tokens five are heavy; arrivals end before the light ones, which inverse draws."""
    row = heavy_row()
    shares = REFERENCE.shares(row)
    drawn = draw(row, 8, 30_000)
    heavy = shares * (shares > 1e-3)
    light = shares * (shares <= 1e-3)
    is_usual = np.isin(drawn[:, :5], np.flatnonzero(heavy)).all(axis=1)
    assert is_usual.mean() > 0.999
    usual = drawn[is_usual]
    assert tail_of(usual[:, :2], successive(heavy / heavy.sum(), 2)) > ALPHA
    last = usual[:, 5:7]
    assert tail_of(last, successive(light / light.sum(), 2)) > ALPHA
    flatter = light ** (1 / 1.25) * (light > 0)
    assert tail_of(last, successive(flatter / flatter.sum(), 2)) < ALPHA
