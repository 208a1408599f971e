"""Section 7: log-probabilities of some tokens of a row, which sort keys name."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastsample.engines.reference.mass import ln

from .filters import Kept, scale_of
from .ordinal import ALL, logits_of, sort_key
from .row import Row


def log_total(row: Row, temperature: float) -> float:
    """ln(W / 2**40) of a whole row at a temperature above 0."""
    total = row.mass(ALL, (row.top, scale_of(temperature)))
    return float(ln(float(total) / row.top_mass))


def row_logprobs(row: Row, temperature: float, keys: NDArray[np.int64]) -> NDArray[np.float64]:
    """(x - m) / T - ln(W / 2**40), T a float32 above 0."""
    gap = logits_of(keys).astype(np.float64) - float(row.top)
    logprobs: NDArray[np.float64] = gap / temperature - log_total(row, temperature)
    return logprobs


def kept_logprobs(kept: Kept, keys: NDArray[np.int64]) -> NDArray[np.float64]:
    """ln(mass) - ln(W) of the tokens that are kept, and -inf for the rest."""
    row, cut, scaling = kept.row, kept.cut, kept.scaling
    masses = row.masses(keys, scaling)
    is_kept = (keys >= sort_key(row.top_ordinal, 0)) & (keys <= cut) & (masses > 0)
    logprobs = np.full(len(keys), -np.inf)
    log_of_total = ln(float(row.mass(cut, scaling)))
    logprobs[is_kept] = ln(masses[is_kept].astype(np.float64)) - log_of_total
    return logprobs
