"""Section 7 of the rule: log-probabilities and ranks of drawn tokens and of the top tokens."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .mass import SCALE_OF_ONE, Scaling, exponent2, ln, masses
from .ordinal import Rows, rank_of, top_tokens
from .prepare_params import RowParams
from .select import KeptSet

Logprobs = tuple[Tensor, Tensor, Tensor, Tensor]
"""The tensors of a `LogprobResult`: logprobs, ranks, top tokens and their logprobs."""


class Drawn(NamedTuple):
    """The draws of a batch.

    Attributes
    ----------
    tokens : int64 tensor of shape (B, n)
    kept : KeptSet
    total : int64 tensor of shape (B, 1)
        W of the kept set.
    is_bad : bool tensor of shape (B, 1)
        Rows from which nothing can be drawn.
    """

    tokens: Tensor
    kept: KeptSet
    total: Tensor
    is_bad: Tensor


class _Listed(NamedTuple):
    """Some tokens of each row, the drawn one first: tensors of shape (B, 1 + N)."""

    tokens: Tensor
    logits: Tensor
    ranks: Tensor


def logprobs(
    raw: Rows,
    rows: Rows,
    drawn: Drawn,
    params: RowParams,
    modes: tuple[str, ...],
    top_count: int,
) -> Logprobs:
    """Compute the log-probabilities of the first draw and of the top tokens.

    Parameters
    ----------
    raw, rows : Rows
        Before and after the logits processors: one object where there are none.
    drawn : Drawn
    params : RowParams
    modes : tuple of str
        Of "raw", "tempered" and "processed".
    top_count : int
    """
    if not modes:
        return empty_logprobs(drawn.tokens, 0, top_count)
    listed: dict[bool, _Listed] = {}
    results = []
    for mode in modes:
        is_raw = mode == "raw" and raw is not rows
        its_rows = raw if is_raw else rows
        if is_raw not in listed:
            listed[is_raw] = _listed(its_rows, drawn.tokens[:, :1], top_count)
        results.append(_of_mode(mode, its_rows, listed[is_raw], drawn, params))
    found, ranks, top_tokens, top_logprobs = map(torch.stack, zip(*results, strict=True))
    return found, ranks, top_tokens, top_logprobs


def empty_logprobs(tokens: Tensor, n_modes: int, top_count: int) -> Logprobs:
    """Tensors of the shapes of a result."""
    shape = (n_modes, tokens.shape[0])
    return (
        tokens.new_empty(shape, dtype=torch.float64),
        tokens.new_empty(shape),
        tokens.new_empty((*shape, top_count)),
        tokens.new_empty((*shape, top_count), dtype=torch.float64),
    )


def _listed(rows: Rows, drawn: Tensor, count: int) -> _Listed:
    logits = rows.logits.gather(1, drawn)
    ranks = rank_of(rows, drawn, logits)
    if not count:
        return _Listed(drawn, logits, ranks)
    tokens, top_logits = top_tokens(rows, count)
    places = torch.arange(1, count + 1, device=drawn.device).expand_as(tokens)
    return _Listed(
        torch.cat([drawn, tokens], 1),
        torch.cat([logits, top_logits], 1),
        torch.cat([ranks, places], 1),
    )


def _of_mode(mode: str, rows: Rows, listed: _Listed, drawn: Drawn, params: RowParams) -> Logprobs:
    """A row of each field of the result."""
    if mode == "raw":
        scale = torch.full_like(params.scale, SCALE_OF_ONE)
        found = _of_row(rows, listed, torch.ones_like(params.temperature), scale)
    elif mode == "tempered":
        found = _of_row(rows, listed, params.temperature, params.scale)
        one_hot = torch.zeros_like(found).masked_fill_(listed.ranks != 1, -torch.inf)
        found = torch.where(params.is_greedy, one_hot, found)
    else:
        found = _of_kept(listed, drawn)
    absent = drawn.is_bad | ~(rows.top < torch.inf) | (rows.top == -torch.inf)
    found = found.masked_fill(absent, torch.nan)
    ranks = listed.ranks.masked_fill(absent, 0)
    tokens = listed.tokens.masked_fill(absent, -1)
    return found[:, 0], ranks[:, 0], tokens[:, 1:], found[:, 1:]


def _of_row(rows: Rows, listed: _Listed, temperature: Tensor, scale: Tensor) -> Tensor:
    """(x - m) / T - ln(W / 2**40), over entire rows."""
    gap = listed.logits.to(torch.float64) - rows.top.to(torch.float64)
    return gap / temperature - log_total(rows, scale)


def log_total(rows: Rows, scale: Tensor) -> Tensor:
    """ln(W / 2**40) of entire rows: float64 of shape (B, 1)."""
    return ln(total_mass(rows, scale).to(torch.float64) * 2.0**-40)


def total_mass(rows: Rows, scale: Tensor) -> Tensor:
    """W of entire rows: int64 of shape (B, 1)."""
    return masses(exponent2(rows.logits, Scaling(rows.top, scale))).sum(1, keepdim=True)


def _of_kept(listed: _Listed, drawn: Drawn) -> Tensor:
    """ln(mass) - ln(W), -inf for tokens that are not kept or have mass 0."""
    kept = drawn.kept
    mass = masses(exponent2(listed.logits, kept.scaling))
    is_kept = (listed.ranks > kept.begin) & (listed.ranks <= kept.end) & (mass > 0)
    found = ln(mass.clamp_min(1).to(torch.float64)) - ln(drawn.total.to(torch.float64))
    return found.masked_fill(~is_kept, -torch.inf)
