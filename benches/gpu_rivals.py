"""The rivals of draws on a GPU: each takes rows (B, V) on the device and leaves tokens there.

None guarantees the same token again. All may do less work than fastsample, never more: without
top_k the first draws from the entire row, whatever other filters are set; FlashInfer's omit min_p
with top_k or top_p, for which it has no kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import torch
from settings import Setting
from torch import Tensor

Draw = Callable[[Tensor], object]

SOFTMAX, TOPK, FLASHINFER = "softmax + multinomial", "topk + multinomial", "FlashInfer"


def softmax_draw(setting: Setting) -> Draw | None:
    """Softmax and multinomial of the whole row, no filter; argmax where greedy."""
    temperature = setting.params.get("temperature", 1.0)
    if temperature == 0:
        return lambda rows: rows.argmax(1)
    return lambda rows: torch.multinomial(torch.softmax(rows / temperature, 1), 1)


def topk_draw(setting: Setting) -> Draw | None:
    """Topk, then the other filters and multinomial among those; None where there is no top_k."""
    params = setting.params
    temperature, top_p, min_p = (
        params.get(name, off) for name, off in (("temperature", 1.0), ("top_p", 1), ("min_p", 0))
    )
    if not params.get("top_k"):
        return None

    def draw(rows: Tensor) -> Tensor:
        logits, tokens = torch.topk(rows, params["top_k"], dim=1)
        weights = torch.softmax(logits / temperature, 1)
        if top_p < 1:
            weights = weights.masked_fill(weights.cumsum(1) - weights > top_p, 0)
        if min_p > 0:
            weights = weights.masked_fill(weights < min_p * weights[:, :1], 0)
        return tokens.gather(1, torch.multinomial(weights, 1))

    return draw


def flashinfer_draw(setting: Setting) -> Draw | None:
    """FlashInfer's kernel for the setting; None where it is not installed, or nothing is drawn."""
    params = setting.params
    if find_spec("flashinfer") is None or params.get("temperature") == 0:
        return None
    from flashinfer import sampling

    temperature, top_k, top_p, min_p = (
        params.get(name, off)
        for name, off in (("temperature", 1.0), ("top_k", 0), ("top_p", 1.0), ("min_p", 0.0))
    )

    def draw(rows: Tensor) -> object:
        logits = rows / temperature
        if top_k and top_p < 1:
            return sampling.top_k_top_p_sampling_from_logits(logits, top_k, top_p)
        probabilities = torch.softmax(logits, 1)
        if top_k:
            return sampling.top_k_sampling_from_probs(probabilities, top_k)
        if top_p < 1:
            return sampling.top_p_sampling_from_probs(probabilities, top_p)
        if min_p > 0:
            return sampling.min_p_sampling_from_probs(probabilities, min_p)
        return sampling.sampling_from_probs(probabilities)

    return draw


RIVALS: dict[str, Callable[[Setting], Draw | None]] = {
    SOFTMAX: softmax_draw,
    TOPK: topk_draw,
    FLASHINFER: flashinfer_draw,
}
