"""The NumPy sampler that people write first, which sorts the row: `fastsample bench` times it.

It samples from the same distribution, up to rounding, with NumPy's random numbers: its tokens are
not those of `sample`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample import SamplingParams

STAGES = ("temperature", "top_k", "top_p", "min_p")
"""The stages that the baseline has."""


class BaselineSampler:
    """Sort the row if a filter is on, truncate it, take the softmax, draw.

    Parameters
    ----------
    params : SamplingParams
        The stages above, in this order, and the seed. Other parameters are ignored.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsample import SamplingParams
    >>> sampler = BaselineSampler(SamplingParams(temperature=0.8, top_k=2, seed=7))
    >>> {sampler(np.float32([1.0, 3.0, 2.0])) for _ in range(40)} == {1, 2}
    True
    """

    def __init__(self, params: SamplingParams) -> None:
        self._params = params
        self._rng = np.random.default_rng(params.seed)

    def __call__(self, row: NDArray[Any]) -> int:
        """Draw a token from a row of shape (V,)."""
        params = self._params
        if params.temperature == 0:
            return int(np.argmax(row))
        if not params.top_k and params.top_p == 1 and params.min_p == 0:
            return draw_index(softmax(row / np.float32(params.temperature)), self._rng)
        ranked = np.argsort(row)[::-1]
        kept = softmax(row[ranked[: params.top_k or None]] / np.float32(params.temperature))
        kept = kept[: np.searchsorted(np.cumsum(kept), params.top_p) + 1]
        kept = kept[kept >= params.min_p * kept[0]]
        return int(ranked[draw_index(kept, self._rng)])


def softmax(logits: NDArray[Any]) -> NDArray[Any]:
    """Return the probabilities of logits."""
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def draw_index(weights: NDArray[Any], rng: np.random.Generator) -> int:
    """Draw an index with probability proportional to its weight."""
    running = np.cumsum(weights)
    index = np.searchsorted(running, rng.random() * running[-1], side="right")
    return min(int(index), len(weights) - 1)
