"""The samplers that fastsample is compared with. Each takes a row and returns a token.

They sample from the same distribution as `fastsample.sample`, up to their floating-point sums, with
their own random numbers. All are written for speed but the full sort, which is what people write
first.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample import SamplingParams
from fastsample.cli.baseline import BaselineSampler, draw_index, softmax

Draw = Callable[[NDArray[np.float32]], int]

OURS, INVERSE, ARGMAX = "fastsample", 'fastsample, draw="inverse"', "np.argmax"
FULL_SORT, NUMPY, TORCH = "NumPy, full sort", "NumPy, argpartition", "torch"
FIRST_TRY = 1_024
"""The nucleus is searched among this many tokens first, then among 8 times as many, and so on."""


def full_sort(params: SamplingParams) -> Draw:
    """Sort the row, as in fastsample/cli/baseline.py."""
    return BaselineSampler(params)


def numpy_draw(params: SamplingParams) -> Draw:
    """NumPy without a sort of the row.

    Greedy: argmax. top_k: argpartition. min_p: a threshold. top_p: argpartition of ever more tokens
    until their mass suffices. No filter: softmax, running sum, search.
    """
    rng = np.random.default_rng(params.seed)
    temperature = np.float32(params.temperature)
    baseline = BaselineSampler(params)

    def of_a_part(row: NDArray[np.float32]) -> int:
        part = np.argpartition(row, -params.top_k)[-params.top_k :]
        return int(part[baseline(row[part])])

    def above(row: NDArray[np.float32]) -> int:
        least = row.max() + temperature * np.log(np.float32(params.min_p))
        part = np.flatnonzero(row >= least)
        return int(part[draw_index(softmax(row[part] / temperature), rng)])

    def nucleus(row: NDArray[np.float32]) -> int:
        weights = np.exp((row - row.max()) / temperature)
        need, count = params.top_p * weights.sum(), FIRST_TRY
        while True:
            count = min(count, row.size)
            part = np.argpartition(weights, -count)[-count:]
            if count == row.size or weights[part].sum() >= need:
                break
            count *= 8
        ranked = part[np.argsort(weights[part])[::-1]]
        kept = ranked[: np.searchsorted(np.cumsum(weights[ranked]), need) + 1]
        return int(kept[draw_index(weights[kept], rng)])

    if params.temperature == 0 or not _filters(params):
        return baseline
    return of_a_part if params.top_k else nucleus if params.top_p < 1 else above


def torch_draw(params: SamplingParams) -> Draw:
    """Torch's own operations, in transformers' order: topk or sort, softmax, multinomial."""
    import torch

    generator = torch.Generator().manual_seed(params.seed or 0)

    def draw(row: NDArray[np.float32]) -> int:
        logits = torch.from_numpy(row)
        if params.temperature == 0:
            return int(logits.argmax())
        tokens = None
        if params.top_k:
            logits, tokens = torch.topk(logits, params.top_k)
        elif params.top_p < 1:
            logits, tokens = torch.sort(logits, descending=True)
        weights = torch.softmax(logits / params.temperature, 0)
        if params.top_p < 1:
            weights[weights.cumsum(0) - weights > params.top_p] = 0
        if params.min_p > 0:
            weights[weights < params.min_p * weights.max()] = 0
        place = torch.multinomial(weights, 1, generator=generator)
        return int(place if tokens is None else tokens[place])

    return draw


RIVALS: dict[str, Callable[[SamplingParams], Draw]] = {
    FULL_SORT: full_sort,
    NUMPY: numpy_draw,
    TORCH: torch_draw,
}


def rivals_of(params: SamplingParams) -> list[str]:
    """List the rivals that differ for these parameters: without a filter, no rival sorts."""
    return [name for name in RIVALS if name != FULL_SORT or _filters(params)]


def is_installed(name: str) -> bool:
    """Whether a rival's library is installed."""
    return name != TORCH or find_spec("torch") is not None


def numpy_softmax(row: NDArray[np.float32], out: NDArray[np.float32]) -> Any:
    """Softmax of a row into `out`, without temporaries."""
    np.subtract(row, row.max(), out=out)
    np.exp(out, out=out)
    return np.divide(out, out.sum(), out=out)


def torch_softmax(row: NDArray[np.float32], out: NDArray[np.float32]) -> Any:
    """Softmax of a row into `out`."""
    import torch

    return torch.softmax(torch.from_numpy(row), 0, out=torch.from_numpy(out))


def _filters(params: SamplingParams) -> bool:
    on = bool(params.top_k) or params.top_p < 1 or params.min_p > 0
    return params.temperature > 0 and on
