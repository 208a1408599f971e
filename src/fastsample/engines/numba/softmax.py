"""Rule 7: log-probabilities of some tokens of a row, given by their keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastsample.engines.reference import mass as reference

from .ordinal import ALL, logits_of
from .row import Law, Row, scale_of


def log_total(row: Row, temperature: float) -> float:
    """ln(W / 2**40) of a whole row at a temperature above 0."""
    total = row.mass(ALL, (row.top, scale_of(temperature)))
    return float(reference.ln(float(total) / row.top_mass))


def whole_law(row: Row, temperature: float, keys: NDArray[np.int64]) -> NDArray[np.float64]:
    """(x - m) / T - ln(W / 2**40), T a float32 above 0."""
    gap = logits_of(keys).astype(np.float64) - float(row.top)
    law: NDArray[np.float64] = gap / temperature - log_total(row, temperature)
    return law


def kept_law(row: Row, cut: int, law: Law, keys: NDArray[np.int64]) -> NDArray[np.float64]:
    """ln(mass) - ln(W) of what a cut keeps, and -inf for the rest."""
    masses = row.masses(keys, law)
    drawable = (keys <= cut) & (masses > 0)
    logprobs = np.full(len(keys), -np.inf)
    log_of_total = reference.ln(float(row.mass(cut, law)))
    logprobs[drawable] = reference.ln(masses[drawable].astype(np.float64)) - log_of_total
    return logprobs
