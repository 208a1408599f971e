"""Section 7 of the rule: log-probabilities and ranks of drawn tokens and of the top tokens."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .mass import SCALE_OF_ONE, Scaling, exponent2, ln, masses
from .ordinal import Rows, ranks_of, top_tokens
from .prepare_params import RowParams
from .select import KeptSet

Logprobs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
"""The tensors of a `LogprobResult`: those of draws, top tokens and given tokens."""


class LogprobTokens(NamedTuple):
    """Whose log-probabilities are wanted.

    Attributes
    ----------
    modes : tuple of str
        Of "raw", "tempered" and "processed".
    draws : int
        Of how many draws of each row: of all, or of none.
    top_count : int
        Of how many top tokens.
    given : int64 tensor of shape (B, K), or None
        Tokens of the caller's choice, -1 for none; on the device of the values.
    """

    modes: tuple[str, ...] = ()
    draws: int = 0
    top_count: int = 0
    given: Tensor | None = None


NO_LOGPROBS = LogprobTokens()


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
    """Some tokens of each row: the draws, the given ones and the top ones, of shape (B, D + K + N).

    -1 is no token.
    """

    tokens: Tensor
    logits: Tensor
    ranks: Tensor


def logprobs(
    raw: Rows,
    rows: Rows,
    drawn: Drawn,
    params: RowParams,
    wanted: LogprobTokens,
) -> Logprobs:
    """Compute log-probabilities and ranks.

    Parameters
    ----------
    raw, rows : Rows
        Before and after the logits processors: one object where there are none.
    drawn : Drawn
    params : RowParams
    wanted : LogprobTokens
    """
    if not wanted.modes:
        return empty_logprobs(drawn.tokens, wanted)
    chosen = drawn.tokens[:, : wanted.draws]
    if wanted.given is not None:
        chosen = torch.cat([chosen, wanted.given], 1)
    listed: dict[bool, _Listed] = {}
    results = []
    for mode in wanted.modes:
        is_raw = mode == "raw" and raw is not rows
        its_rows = raw if is_raw else rows
        if is_raw not in listed:
            listed[is_raw] = _listed(its_rows, chosen, wanted.top_count)
        results.append(_of_mode(mode, its_rows, listed[is_raw], drawn, params))
    counts = (wanted.draws, chosen.shape[1] - wanted.draws, wanted.top_count)

    def stacked(field: int, part: int) -> Tensor:
        # In memory of its own, as the results of an operator must be.
        return torch.stack([mode[field].split(counts, 1)[part] for mode in results])

    return (
        stacked(1, 0),
        stacked(2, 0),
        stacked(0, 2),
        stacked(1, 2),
        stacked(1, 1),
        stacked(2, 1),
    )


def empty_logprobs(tokens: Tensor, wanted: LogprobTokens) -> Logprobs:
    """Tensors of the shapes of a result."""
    shape = (len(wanted.modes), tokens.shape[0])
    counts = (wanted.draws, wanted.top_count, 0 if wanted.given is None else wanted.given.shape[1])
    draws, top, given = (tokens.new_empty((*shape, count)) for count in counts)
    floats = [torch.empty_like(one, dtype=torch.float64) for one in (draws, top, given)]
    return floats[0], draws, top, floats[1], floats[2], given


def _listed(rows: Rows, chosen: Tensor, count: int) -> _Listed:
    at = chosen.clamp_min(0)
    logits = rows.logits.gather(1, at)
    ranks = ranks_of(rows, at, logits)
    if not count:
        return _Listed(chosen, logits, ranks)
    tokens, top_logits = top_tokens(rows, count)
    places = torch.arange(1, count + 1, device=chosen.device).expand_as(tokens)
    return _Listed(
        torch.cat([chosen, tokens], 1),
        torch.cat([logits, top_logits], 1),
        torch.cat([ranks, places], 1),
    )


def _of_mode(
    mode: str, rows: Rows, listed: _Listed, drawn: Drawn, params: RowParams
) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, log-probabilities and ranks of what is listed."""
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
    absent = absent | (listed.tokens < 0)
    return (
        listed.tokens.masked_fill(absent, -1),
        found.masked_fill(absent, torch.nan),
        listed.ranks.masked_fill(absent, 0),
    )


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
