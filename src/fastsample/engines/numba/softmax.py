"""Section 7: softmax, log_softmax and logsumexp of a row, each written at a temperature."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .filters import scale_of
from .logprobs import log_total
from .mass import write_log_softmax, write_powers
from .ordinal import ALL, key_parts
from .row import Row


def _write_one_hot(row: Row, hot: float, cold: float, out: NDArray[np.float32]) -> None:
    # Found first: `out` may be the row.
    _, token = key_parts(row.nth(1))
    out[:] = cold
    out[token] = hot


def softmax(row: Row, temperature: float, out: NDArray[np.float32]) -> None:
    """Write 2**y / W."""
    if temperature == 0:
        _write_one_hot(row, 1.0, 0.0, out[0])
        return
    scaling = row.top, scale_of(temperature)
    share = np.float32(row.top_mass / np.float64(row.mass(ALL, scaling)))
    write_powers(row.bits, scaling, out[0])
    out *= share


def log_softmax(row: Row, temperature: float, out: NDArray[np.float32]) -> None:
    """Write (x - m) / T - ln W."""
    if temperature == 0:
        _write_one_hot(row, 0.0, -np.inf, out[0])
        return
    total = log_total(row, temperature)
    write_log_softmax(row.bits, float(row.top), temperature, total, out[0])


def logsumexp(row: Row, temperature: float, out: NDArray[np.float64]) -> None:
    """Write m / T + ln W."""
    out[0] = float(row.top) / temperature + log_total(row, temperature)
