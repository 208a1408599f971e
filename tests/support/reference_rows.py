"""One row through the reference: its kept set, a draw, and the threshold of `min_p`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastsample.engines import reference
from fastsample.engines.reference import filters as reference_filters


def kept_set(row: np.ndarray, **filters: Any) -> tuple[np.ndarray, np.ndarray]:
    """Tokens that the filters leave, ascending, and their masses."""
    return reference.by_token(reference.trace(row, **filters))


def sample_row(
    row: np.ndarray,
    *,
    seed: int,
    position: int,
    stream: int,
    reduction: str = "exact",
    **filters: Any,
) -> tuple[int, int]:
    """Draw a token from an adjusted row: -1 where nothing can be drawn; and the row's status."""
    status = reference.status(row)
    if status != reference.OK:
        return -1, status
    kept = kept_set(row, **filters, reduction=reduction)
    return reference.draw(*kept, reference.uniform(seed, position, stream), reduction), status


def threshold(v: float) -> float | None:
    """Least y that the op THRESHOLD keeps, or None where it keeps every token."""
    a = reference_filters._log2_share(v)
    return None if a is None else float(reference_filters._bounded(a))
