"""The native engine: the compiled kernels behind the door that every engine has."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastsample import _native


def run(
    rows: NDArray[np.float32],
    plan: NDArray[np.void],
    tokens: NDArray[np.int64],
    status: NDArray[np.uint8],
    *,
    isa: str | None = None,
    n_threads: int | None = None,
) -> None:
    """Draw one token per row, with the GIL released.

    Parameters
    ----------
    rows : float32 array of shape (B, V)
        Column stride 4 bytes, any row stride and alignment; read only.
    plan : array of SETTINGS, shape (B,)
    tokens : int64 array of shape (B,)
        Written: the token drawn, -1 for a bad row.
    status : uint8 array of shape (B,)
        Written: 0 for a token, 1 for an invalid row, 2 for an empty one.
    isa : str or None
        The instruction set; None takes the process's own.
    n_threads : int or None
        None lets the kernels choose. The tokens are the same for every number.
    """
    _native.sample_rows(rows, plan, tokens, status, isa, 0 if n_threads is None else n_threads)
