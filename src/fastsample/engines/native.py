"""The native engine: the compiled kernels.

The GIL is released unless a call is brief: no token histories, and at most 2,048 logits and draws,
all rows together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastsample import _native

from .contract import KeptSets, SampleRequest

ISAS = _native.isa_usable()
run = _native.sample
write_softmax = _native.softmax
make_step = _native.Step
make_draw = _native.Draw


def kept_sets(
    request: SampleRequest,
    status: NDArray[np.uint8],
    *,
    isa: str | None = None,
    n_threads: int | None = None,
) -> KeptSets:
    """Find the kept set of each row."""
    return KeptSets(*_native.kept_sets(request, status, isa, n_threads))
