"""From rows of logits to tokens: the launches in order. What is told of a draw is torch's."""

from __future__ import annotations

import torch

from fastsample.engines.reference.rows import OK, require_rounding_to_nearest
from fastsample.engines.torch import batch as by_torch
from fastsample.engines.torch.batch import Answer, Asked
from fastsample.engines.torch.logprobs import Kept, nothing, tell

from . import full_vocab_path as whole
from . import topk_path as head
from .block_max import block_ranks
from .launch import bits_of, check_device
from .param_table import Drawn, blank
from .prepare_params import settle


def sample(asked: Asked) -> Answer:
    """Draw for every row, as torch's `batch.sample`; without rows there is nothing to launch."""
    check_device(asked.values.device)
    if not len(asked.values):
        return by_torch.sample(asked)
    if asked.adjustments.are_none and not asked.forms:
        drawn = draw(asked, asked.values)
        return Answer(*drawn[:3], *nothing(drawn.tokens, asked.top_count))
    settings, chain, _ = by_torch.prepared(asked)
    came, rows = by_torch.adjusted(asked, settings)
    drawn = draw(asked, asked.values if rows is came else rows.logits)
    scale = by_torch.scale_kept(chain, settings)
    kept = Kept(drawn.kept_count.unsqueeze(1), scale, drawn.total.unsqueeze(1))
    told = tell(
        *(came, rows, kept, settings, drawn.tokens[:, :1].clamp_min(0)),
        *(asked.forms, asked.top_count, (drawn.status != OK).unsqueeze(1)),
    )
    return Answer(*drawn[:3], *told)


def draw(asked: Asked, logits: torch.Tensor) -> Drawn:
    """Draw from logits that are adjusted."""
    require_rounding_to_nearest()
    chain = by_torch.known_chain(asked)
    table = settle(asked.reals, asked.wholes, asked.place, asked.bad, logits.device)
    values = bits_of(logits)
    ranks = block_ranks(values, asked.vocabulary)
    out = blank(len(logits), asked.draws, logits.device)
    room = head if 0 < chain.head <= head.MOST else whole
    room.draw(values, asked.vocabulary, ranks, table, chain, out)
    return out
