"""The reference engine: the readable rule behind the door that every engine has, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample import reference


def run(
    rows: NDArray[np.float32],
    plan: NDArray[Any],
    tokens: NDArray[np.int64],
    status: NDArray[np.uint8],
    *,
    isa: str | None = None,
    n_threads: int | None = None,
) -> None:
    """Draw one token per row.

    Parameters
    ----------
    rows : float32 array of shape (B, V)
        Read only.
    plan : structured array of shape (B,)
        One record of settings per row.
    tokens : int64 array of shape (B,)
        Written: the token drawn, -1 for a row from which nothing can be drawn.
    status : uint8 array of shape (B,)
        Written: 0 for a token, 1 for an invalid row, 2 for an empty one.
    isa, n_threads : ignored
        Here for the shape of the door: this engine has no kernels and no threads.
    """
    for b, settings in enumerate(plan):
        tokens[b], status[b] = reference.sample_row(
            rows[b],
            temperature=float(settings["temperature"]),
            top_k=int(settings["top_k"]),
            top_p=float(settings["top_p"]),
            min_p=float(settings["min_p"]),
            seed=int(settings["seed"]),
            position=int(settings["position"]),
            stream=int(settings["stream"]),
        )
