"""The sampler that is written first, in NumPy: it sorts the whole row. Ours is measured against it.

It draws from the law that the parameters name, as floating-point sums have it, with random numbers
of NumPy's own: its tokens are not those of `sample`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample import SamplingParams


class NaiveSampler:
    """Sort a row if a filter asks for it, cut it, take the softmax, draw.

    Parameters
    ----------
    params : SamplingParams
        Temperature, top_k, top_p, min_p and the seed, in the default order of stages; penalties
        are not looked at.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsample import SamplingParams
    >>> sampler = NaiveSampler(SamplingParams(temperature=0.8, top_k=2, seed=7))
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
            return drawn(softmax(row / np.float32(params.temperature)), self._rng)
        ranked = np.argsort(row)[::-1]
        kept = softmax(row[ranked[: params.top_k or None]] / np.float32(params.temperature))
        kept = kept[: np.searchsorted(np.cumsum(kept), params.top_p) + 1]
        kept = kept[kept >= params.min_p * kept[0]]
        return int(ranked[drawn(kept, self._rng)])


def softmax(logits: NDArray[Any]) -> NDArray[Any]:
    """Turn logits into probabilities."""
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def drawn(weights: NDArray[Any], rng: np.random.Generator) -> int:
    """Draw an index by weights, which need not add up to 1."""
    running = np.cumsum(weights)
    place = np.searchsorted(running, rng.random() * running[-1], side="right")
    return min(int(place), len(weights) - 1)
