"""Rule 7: log-probabilities and ranks of what was drawn, and of the first tokens."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .mass import SCALE_OF_ONE, gaps, ln, masses
from .prepare_params import Settings
from .rows import Rows, first, rank_of

FORMS = ("raw", "tempered", "processed")
"""The laws, by their numbers."""

_RAW, _TEMPERED = 0, 1


class Kept(NamedTuple):
    """The kept sets of a batch: tensors of shape (B, 1).

    Attributes
    ----------
    count : int64
    scale : float32
        s of their masses.
    total : int64
        W.
    """

    count: Tensor
    scale: Tensor
    total: Tensor


class _Some(NamedTuple):
    """Some tokens of each row, the drawn one first: tensors of shape (B, 1 + N)."""

    tokens: Tensor
    logits: Tensor
    ranks: Tensor


def tell(
    came: Rows,
    rows: Rows,
    kept: Kept,
    settings: Settings,
    drawn: Tensor,
    forms: tuple[int, ...],
    count: int,
    is_bad: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tell of a draw by the laws of the forms.

    Parameters
    ----------
    came, rows : Rows
        Before and after adjusting.
    kept : Kept
    settings : Settings
    drawn : int64 tensor of shape (B, 1)
    forms : tuple of int
    count : int
        How many first tokens to tell of.
    is_bad : bool tensor of shape (B, 1)
        Rows that nothing is told of.

    Returns
    -------
    logprobs, ranks : float64 and int64 tensors of shape (F, B)
    top_tokens, top_logprobs : int64 and float64 tensors of shape (F, B, N)
    """
    told = []
    somes: dict[bool, _Some] = {}
    for form in forms:
        is_raw = form == _RAW and came is not rows
        law_of = came if is_raw else rows
        if is_raw not in somes:
            somes[is_raw] = _some(law_of, drawn, count)
        some = somes[is_raw]
        if form == _RAW:
            scale = torch.full_like(settings.scale, SCALE_OF_ONE)
            logprobs = _whole(law_of, some, torch.ones_like(settings.temperature), scale)
        elif form == _TEMPERED:
            logprobs = _whole(rows, some, settings.temperature, settings.scale)
            hot = torch.zeros_like(logprobs).masked_fill_(some.ranks != 1, -torch.inf)
            logprobs = torch.where(settings.is_greedy, hot, logprobs)
        else:
            logprobs = _of_kept(rows, some, kept)
        silent = is_bad | ~(law_of.top < torch.inf) | (law_of.top == -torch.inf)
        logprobs = logprobs.masked_fill(silent, torch.nan)
        ranks = some.ranks.masked_fill(silent, 0)
        tokens = some.tokens.masked_fill(silent, -1)
        told.append((logprobs[:, 0], ranks[:, 0], tokens[:, 1:], logprobs[:, 1:]))
    if not told:
        return nothing(drawn, count)
    logprobs, ranks, top_tokens, top_logprobs = map(torch.stack, zip(*told, strict=True))
    return logprobs, ranks, top_tokens, top_logprobs


def nothing(drawn: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `tell` gives of no form."""
    some, many = (0, len(drawn)), (0, len(drawn), count)
    reals = [drawn.new_empty(shape, dtype=torch.float64) for shape in (some, many)]
    return reals[0], drawn.new_empty(some), drawn.new_empty(many), reals[1]


def _some(rows: Rows, drawn: Tensor, count: int) -> _Some:
    logits = rows.logits.gather(1, drawn)
    ranks = rank_of(rows, drawn, logits)
    if not count:
        return _Some(drawn, logits, ranks)
    tokens, of_first = first(rows, count)
    places = torch.arange(1, count + 1, device=drawn.device).expand_as(tokens)
    return _Some(
        torch.cat([drawn, tokens], 1),
        torch.cat([logits, of_first], 1),
        torch.cat([ranks, places], 1),
    )


def _whole(rows: Rows, some: _Some, temperature: Tensor, scale: Tensor) -> Tensor:
    """(x - m) / T - ln(W / 2**40), over whole rows."""
    gap = some.logits.to(torch.float64) - rows.top.to(torch.float64)
    return gap / temperature - log_total(rows, scale)


def log_total(rows: Rows, scale: Tensor) -> Tensor:
    """ln(W / 2**40) of whole rows: float64 of shape (B, 1)."""
    return ln(total_of(rows, scale).to(torch.float64) * 2.0**-40)


def total_of(rows: Rows, scale: Tensor) -> Tensor:
    """W of whole rows: int64 of shape (B, 1)."""
    return masses(gaps(rows.logits, rows.top, scale)).sum(1, keepdim=True)


def _of_kept(rows: Rows, some: _Some, kept: Kept) -> Tensor:
    mass = masses(gaps(some.logits, rows.top, kept.scale))
    counts = (some.ranks <= kept.count) & (mass > 0)
    law = ln(mass.clamp_min(1).to(torch.float64)) - ln(kept.total.to(torch.float64))
    return law.masked_fill(~counts, -torch.inf)
