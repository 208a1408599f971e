"""The native engine: the compiled kernels, in the form of every engine's functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample import _native

from .contract import KeptSets, SampleOutput, SampleRequest

ISAS = _native.isa_usable()
make_step = _native.Step
make_draw = _native.Draw


def run(
    request: SampleRequest,
    out: SampleOutput,
    *,
    isa: str | None = None,
    n_threads: int | None = None,
) -> None:
    """Draw for every row. The GIL is released unless the call is brief.

    A brief call has at most 2,048 logits and draws, all rows together, and no token histories.

    Parameters
    ----------
    request : SampleRequest
    out : SampleOutput
        Written.
    isa : str or None
        The instruction set; None takes the default of the process.
    n_threads : int or None
        None lets the kernels choose. The results are the same for every number.
    """
    _native.sample(request, out, isa, n_threads or 0)


def write_softmax(
    name: str,
    request: SampleRequest,
    out: NDArray[Any],
    status: NDArray[np.uint8],
    *,
    isa: str | None = None,
    n_threads: int | None = None,
) -> None:
    """Write a function of each row at its temperature, as `WriteSoftmax` specifies."""
    _native.softmax(name, request, out, status, isa, n_threads or 0)


def kept_sets(
    request: SampleRequest,
    status: NDArray[np.uint8],
    *,
    isa: str | None = None,
    n_threads: int | None = None,
) -> KeptSets:
    """Find the kept set of each row, as `FindKeptSets` specifies."""
    return KeptSets(*_native.kept_sets(request, status, isa, n_threads or 0))
