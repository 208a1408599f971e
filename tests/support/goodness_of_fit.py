"""How far counts and numbers may stray from a distribution by chance: statistics and limits.

In plain formulas. A test that looks at many statistics divides ALPHA by their number. Seeds are
fixed, so a test that passes once passes for ever: alpha says how rarely a right engine would have
failed on the seeds that were picked.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

ALPHA = 1e-9


def chi_square_tail(x: float, degrees: int) -> float:
    """Probability that chi-square exceeds x, exactly: the series is finite."""
    half = x / 2
    if half <= 0:
        return 1.0
    start = 0.5 if degrees % 2 else 0.0
    powers = (start + j for j in range(degrees // 2))
    logs = (power * math.log(half) - half - math.lgamma(power + 1) for power in powers)
    rest = math.erfc(math.sqrt(half)) if degrees % 2 else 0.0
    return rest + math.fsum(math.exp(log) for log in logs)


def softmax64(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Shares of logits, in float64; the temperature is rounded as the rule does."""
    weights = np.exp((logits.astype(np.float64) - logits.max()) / float(np.float32(temperature)))
    shares: np.ndarray = weights / math.fsum(weights)
    return shares


def total_variation(one: np.ndarray, other: np.ndarray) -> float:
    """The most by which two distributions differ in any event's probability."""
    return 0.5 * math.fsum(np.abs(one - other))


def g_statistic(counts: np.ndarray, shares: np.ndarray) -> float:
    """Twice the log-likelihood ratio of counts under shares: chi-square where the shares hold."""
    seen = counts > 0
    expected = counts.sum() * shares
    return 2 * float(np.sum(counts[seen] * np.log(counts[seen] / expected[seen])))


def pool(counts: np.ndarray, shares: np.ndarray, least: float) -> tuple[np.ndarray, np.ndarray]:
    """Counts and shares of neighbours added up, in cells that expect `least` counts or more."""
    starts, expected = [0], 0.0
    for end, share in enumerate((shares * counts.sum()).tolist(), 1):
        expected += share
        if expected >= least:
            starts.append(end)
            expected = 0.0
    starts = starts[:-1] or starts  # what is left over joins the last cell
    return np.add.reduceat(counts, starts), np.add.reduceat(shares, starts)


def chi_square(counts: np.ndarray, shares: np.ndarray | float) -> float:
    """Pearson's statistic of counts under shares, one for all cells or one each."""
    expected = counts.sum() * shares
    return float(np.sum((counts - expected) ** 2 / expected))


def z_limit(tests: int = 1, alpha: float = ALPHA) -> float:
    """What a standard normal number stays under, in size, in each of some tests."""
    return NormalDist().inv_cdf(1 - alpha / (2 * tests))


def kolmogorov(numbers: np.ndarray) -> float:
    """Kolmogorov and Smirnov's distance from the uniform distribution on [0, 1), times sqrt(n)."""
    ranked, n = np.sort(numbers), len(numbers)
    above = np.arange(1, n + 1) / n - ranked
    below = ranked - np.arange(n) / n
    return float(max(above.max(), below.max())) * math.sqrt(n)


def kolmogorov_limit(tests: int = 1, alpha: float = ALPHA) -> float:
    """Upper quantile of that distance: the first term of its series, which is all at this alpha."""
    return math.sqrt(-math.log(alpha / tests / 2) / 2)


def poisson_tails(count: int, mean: float) -> tuple[float, float]:
    """Probabilities of at most, and of at least, this many rare events."""
    logs = [k * math.log(mean) - mean - math.lgamma(k + 1) for k in range(count + 1)]
    at_most = math.fsum(math.exp(log) for log in logs)
    return min(at_most, 1.0), max(1 - at_most + math.exp(logs[-1]), 0.0)
