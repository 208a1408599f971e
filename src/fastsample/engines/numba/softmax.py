"""Section 7: softmax, log_softmax and logsumexp of a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .filters import scale_of
from .logprobs import log_total
from .mass import write_log_softmax
from .ordinal import key_parts
from .row import Row


def _write_one_hot(row: Row, hot: float, cold: float, out: NDArray[np.float32]) -> None:
    # Found first: `out` may be the row.
    _, token = key_parts(row.nth(1))
    out[:] = cold
    out[token] = hot


def _write_softmax(row: Row, temperature: float, out: NDArray[np.float32]) -> None:
    if temperature == 0:
        _write_one_hot(row, 1.0, 0.0, out[0])
        return
    total = row.write_powers((row.top, scale_of(temperature)), out[0])
    out *= np.float32(row.top_mass / total)


def _write_log_softmax(row: Row, temperature: float, out: NDArray[np.float32]) -> None:
    if temperature == 0:
        _write_one_hot(row, 0.0, -np.inf, out[0])
        return
    total = log_total(row, temperature)
    write_log_softmax(row.bits, float(row.top), temperature, total, out[0])


def _write_logsumexp(row: Row, temperature: float, out: NDArray[np.float64]) -> None:
    out[0] = float(row.top) / temperature + log_total(row, temperature)


WRITERS: dict[str, Callable[[Row, float, NDArray[Any]], None]] = {
    "softmax": _write_softmax,
    "log_softmax": _write_log_softmax,
    "logsumexp": _write_logsumexp,
}
"""Each writes the result of one row at a temperature."""
