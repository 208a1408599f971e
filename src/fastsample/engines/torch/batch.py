"""From rows of logits to tokens, and what is told of them: the order of the steps."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fastsample.engines.reference.rows import EMPTY, INVALID, OK, require_rounding_to_nearest

from .filters import Ordered, kept_of
from .full_vocab_path import Whole
from .int64_math import uniform
from .logprobs import Kept, tell
from .mass import SCALE_OF_ONE
from .penalties import Adjustments, adjust
from .prepare_params import TEMPERATURE, Chain, Settings, beside, chain_of, settings_of
from .rows import Rows, rows_of, widened
from .topk_path import Head

_BAD_PARAM = 3


class Asked(NamedTuple):
    """Rows to draw from, and how.

    Attributes
    ----------
    values : float32, float16 or bfloat16 tensor of shape (B, columns)
    vocabulary : int
        How many columns are tokens.
    reals : float64 tensor of shape (B, 6)
        temperature, top_p, min_p and the penalties. On the CPU or beside the values, as `wholes`.
    wholes : int64 tensor of shape (B, 2)
        top_k and min_keep.
    place : int64 tensor of shape (B, 3)
        The bits of seed and position, and the stream; on the CPU or beside the values.
    bad : bool tensor of shape (B,), or None
        Rows to leave alone.
    adjustments : Adjustments
        Beside the values.
    stages : int
        As a plan has them.
    draws : int
    forms : tuple of int
        Laws to tell of, by their numbers in `tell.FORMS`.
    top_count : int
        Of how many first tokens.
    """

    values: Tensor
    vocabulary: int
    reals: Tensor
    wholes: Tensor
    place: Tensor
    bad: Tensor | None
    adjustments: Adjustments
    stages: int
    draws: int
    forms: tuple[int, ...]
    top_count: int


class Answer(NamedTuple):
    """What `SampleOutput` has, as tensors beside the values."""

    tokens: Tensor
    status: Tensor
    kept_count: Tensor
    logprobs: Tensor
    ranks: Tensor
    top_tokens: Tensor
    top_logprobs: Tensor


def known_chain(asked: Asked) -> Chain:
    """What may act, by the numbers that the host has."""
    seen = (part if part.is_cpu else None for part in (asked.reals, asked.wholes))
    return chain_of(asked.stages, *seen)


def prepared(asked: Asked) -> tuple[Settings, Chain, Tensor]:
    """Work out settings beside the values, what may act, and the rows with a bad parameter.

    Raises
    ------
    RuntimeError
        When the processor does not round to nearest; threads of torch begin with its mode.
    """
    require_rounding_to_nearest()
    device = asked.values.device
    reals, wholes = asked.reals, asked.wholes
    if not (reals.is_cpu and wholes.is_cpu):
        reals, wholes = (part.to(device, non_blocking=True) for part in (reals, wholes))
    settings, bad = settings_of(reals, wholes)
    bad = beside(bad, device)
    if asked.bad is not None:
        bad = bad | beside(asked.bad, device).unsqueeze(1)
    return settings.to(device), known_chain(asked), bad


def adjusted(asked: Asked, settings: Settings) -> tuple[Rows, Rows]:
    """Rows as they came, and as they are drawn from: the same ones where nothing adjusts them."""
    logits = widened(asked.values, asked.vocabulary)
    rows = rows_of(logits)
    if asked.adjustments.are_none:
        return rows, rows
    changed = logits.clone()
    adjust(changed, asked.adjustments, settings)
    return rows, rows_of(changed)


def status_of(rows: Rows, bad: Tensor) -> Tensor:
    """The status of each row, uint8 of shape (B, 1)."""
    found = torch.full_like(rows.top, OK, dtype=torch.uint8)
    found.masked_fill_(~(rows.top < torch.inf), INVALID)
    found.masked_fill_(rows.top == -torch.inf, EMPTY)
    return found.masked_fill_(bad, _BAD_PARAM)


def scale_kept(chain: Chain, settings: Settings) -> Tensor:
    """s of the masses that are drawn from: without the stage, temperature is 1."""
    is_tempered = TEMPERATURE in chain.stages
    return settings.scale if is_tempered else torch.full_like(settings.scale, SCALE_OF_ONE)


def ordered(rows: Rows, chain: Chain) -> Ordered:
    """The tokens of the rows, as many of them as a draw needs."""
    return Head(rows, chain.head) if chain.head else Whole(rows)


def sample(asked: Asked) -> Answer:
    """Draw for every row."""
    settings, chain, bad = prepared(asked)
    came, rows = adjusted(asked, settings)
    status = status_of(rows, bad)
    is_bad = status != OK
    tokens = ordered(rows, chain)
    kept, scale = kept_of(tokens, chain, settings)
    if isinstance(tokens, Head) and tokens.count == 1:
        drawn, total = tokens.only(asked.draws)
    else:
        drawn, total = tokens.draw(kept, scale, _words(asked))
    told = tell(
        *(came, rows, Kept(kept, scale, total), settings),
        *(drawn[:, :1], asked.forms, asked.top_count, is_bad),
    )
    return Answer(
        drawn.masked_fill(is_bad, -1), status[:, 0], kept.masked_fill(is_bad, 0)[:, 0], *told
    )


def _words(asked: Asked) -> tuple[Tensor, Tensor]:
    """U of every draw, worked out where its place lies."""
    seed, position, stream = asked.place.unsqueeze(2).unbind(1)
    streams = stream + torch.arange(asked.draws, device=stream.device)
    device = asked.values.device
    high, low = (word.to(device, non_blocking=True) for word in uniform(seed, position, streams))
    return high, low
