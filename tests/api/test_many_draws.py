"""Draws from wide rows: each token's turn comes, no residue is favoured, tails keep their share."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.support.engines import Engine, make_output, make_plan, make_request, native
from tests.support.goodness_of_fit import ALPHA, chi_square, chi_square_tail, poisson_tails, z_limit

pytestmark = pytest.mark.skipif(native is None, reason="fastsample._native is not built")
DRAWS_PER_TOKEN = 20
GAPS = (10, 15, 18, 20, 22, 24)


def draw_many(row: np.ndarray, n_draws: int, seed: int) -> np.ndarray:
    """Tokens on the first streams of a seed."""
    assert native is not None
    request = make_request(row[np.newaxis], make_plan(1, seed=seed))
    engine = Engine("native", native.default_isa())
    return engine.run(request, make_output(1, draws=n_draws)).tokens[0]


@pytest.mark.parametrize("size", [8192, 151_936])
def test_a_flat_row_gives_every_token(size):
    tokens = draw_many(np.zeros(size, dtype=np.float32), DRAWS_PER_TOKEN * size, seed=61)
    counts = np.bincount(tokens, minlength=size)
    assert len(counts) == size
    assert counts.min() > 0
    assert chi_square_tail(chi_square(counts, 1 / size), size - 1) > ALPHA


@pytest.mark.parametrize("size", [8192, 151_936])
def test_a_flat_row_favours_no_residue_and_no_range(size):
    tokens = draw_many(np.zeros(size, dtype=np.float32), DRAWS_PER_TOKEN * size, seed=62)
    powers = [2**k for k in range(1, 13)]
    for modulus in powers:
        of_token = np.arange(size) % modulus
        for cells in (of_token, np.sort(of_token)):  # residues; then ranges of as many tokens
            shares = np.bincount(cells) / size
            counts = np.bincount(cells[tokens], minlength=modulus)
            tail = chi_square_tail(chi_square(counts, shares), modulus - 1)
            assert tail > ALPHA / (2 * len(powers)), modulus


@pytest.mark.parametrize(
    "n_draws", [1_000_000, pytest.param(50_000_000, marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("gap", GAPS)
def test_a_tail_keeps_its_share(gap, n_draws):
    """One token stands this far above all others, which share what is left."""
    size, head = 131_072, 70_001
    row = np.full(size, -gap, dtype=np.float32)
    row[head] = 0
    tokens = draw_many(row, n_draws, seed=63)
    tail = tokens[tokens != head]
    share = (size - 1) * math.exp(-gap) / (1 + (size - 1) * math.exp(-gap))
    mean = n_draws * share
    if mean < 1000:
        assert min(poisson_tails(len(tail), mean)) > ALPHA / (2 * len(GAPS))
    else:
        z = (len(tail) - mean) / math.sqrt(mean * (1 - share))
        assert abs(z) < z_limit(2 * len(GAPS))
    if mean > 640:
        counts = np.bincount(tail * 64 // size, minlength=64)
        assert chi_square_tail(chi_square(counts, 1 / 64), 63) > ALPHA / (2 * len(GAPS))
