"""How often tokens are drawn, and whether a distribution explains it."""

from __future__ import annotations

import numpy as np

from fastsample.engines.contract import SampleRequest
from tests.support.engines import Engine, make_output
from tests.support.goodness_of_fit import chi_square_tail, g_statistic, pool

AT_ONCE = 2_500_000
LEAST_EXPECTED = 500
"""So many draws are expected in each cell of a test of many tokens."""


def count_draws(engine: Engine, request: SampleRequest, n_draws: int) -> np.ndarray:
    """How often each token of a row is drawn, on many streams at each of a few positions."""
    counts = np.zeros(request.vocabulary, dtype=np.int64)
    for start in range(0, n_draws, AT_ONCE):
        out = make_output(1, draws=min(AT_ONCE, n_draws - start), has_count=False)
        counts += np.bincount(engine.run(request, out).tokens[0], minlength=request.vocabulary)
        request.plan["position"] += 1
    return counts


def tails(counts: np.ndarray, shares: np.ndarray) -> tuple[float, float]:
    """Tails of two G-tests: of cells of tokens of similar shares, and of cells of neighbours.

    Both are uniform where the shares hold. No token of share 0 may have been drawn.
    """
    assert counts[shares == 0].sum() == 0
    kept = np.flatnonzero(shares)
    tests = []
    for order in (kept[np.argsort(-shares[kept], kind="stable")], kept):
        cells = pool(counts[order], shares[order], LEAST_EXPECTED)
        tests.append(chi_square_tail(g_statistic(*cells), len(cells[0]) - 1))
    return tests[0], tests[1]
