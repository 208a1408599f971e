"""What is asked for, as the steps take it: one column per parameter, worked out where it lies."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fastsample.engines.reference.mass import LOG2_E

from .mass import ln, scale_of, to_float32

TEMPERATURE, TOP_K, TOP_P, MIN_P = 1, 2, 3, 4
"""Stages, by their codes in a plan."""

MOST_IN_HEAD = 4096
"""The most tokens that the filters may leave for a draw that looks at the first tokens alone."""


class Settings(NamedTuple):
    """Parameters of a batch: tensors of shape (B, 1).

    Attributes
    ----------
    is_greedy : bool
    temperature : float64
        1 where it is 0.
    scale : float32
        s of rule 4 at the temperature.
    top_k : int64
        0 is off.
    share : int64
        P of rule 5; -1 is off.
    threshold : float32
        Least y that min_p keeps; -inf keeps all.
    min_keep : int64
    penalties : tuple of float64
        Repetition, frequency, presence.
    """

    is_greedy: Tensor
    temperature: Tensor
    scale: Tensor
    top_k: Tensor
    share: Tensor
    threshold: Tensor
    min_keep: Tensor
    penalties: tuple[Tensor, Tensor, Tensor]

    def to(self, device: torch.device) -> Settings:
        """Take the columns to a device, without waiting for it."""
        *columns, penalties = self
        r, f, s = (beside(column, device) for column in penalties)
        return Settings._make((*(beside(column, device) for column in columns), (r, f, s)))


def beside(column: Tensor, device: torch.device) -> Tensor:
    """Take a column of numbers, without NaN, to a device, without waiting for it.

    What all rows of the host share is written there: a CUDA graph takes no copy of the host's
    memory, which may be others' when it is replayed.
    """
    if column.device == device:
        return column
    if column.is_cpu and len(column) and bool((column == column[0]).all()):
        return torch.full(column.shape, column[0].item(), dtype=column.dtype, device=device)
    return column.to(device, non_blocking=True)


class Chain(NamedTuple):
    """What may act in some row, as the host knows it.

    Attributes
    ----------
    stages : tuple of int
        The order of the stages; a filter that is off in every row is left out.
    greedy : bool
        Whether a row may have temperature 0.
    head : int
        How many first tokens of a row are enough to draw from it, 0 where that is not known.
    min_keep : bool
        Whether a row may have to keep more than one token.
    """

    stages: tuple[int, ...]
    greedy: bool
    head: int
    min_keep: bool


def settings_of(reals: Tensor, wholes: Tensor) -> tuple[Settings, Tensor]:
    """Work out the columns, and find the rows with a number out of range.

    Parameters
    ----------
    reals : float64 tensor of shape (B, 6)
        temperature, top_p, min_p and the penalties: repetition, frequency, presence.
    wholes : int64 tensor of shape (B, 2)
        top_k and min_keep.

    Returns
    -------
    settings : Settings
        A row with a number out of range has some that are in it.
    bad : bool tensor of shape (B, 1)
    """
    temperature, top_p, min_p, r, f, s = to_float32(reals).unsqueeze(2).unbind(1)
    top_k, min_keep = wholes.unsqueeze(2).unbind(1)
    good = (temperature >= 0) & (temperature < torch.inf)
    good &= (top_p >= 0) & (top_p <= 1) & (min_p >= 0) & (min_p <= 1)
    good &= (r > 0) & (r < torch.inf) & (f.abs() < torch.inf) & (s.abs() < torch.inf)
    good &= (top_k >= -1) & (min_keep >= 1)
    is_greedy = temperature == 0
    above_zero = temperature.masked_fill(~good | is_greedy, 1.0)
    share = ((top_p.masked_fill(~good, 1.0) * 2.0**31).to(torch.int64) - 2**10).clamp_min_(0)
    # Below 2**-60 min_p keeps all; no float64 here is denormal.
    counts = good & (min_p > 2.0**-60)
    log = ln(min_p.masked_fill(~counts, 1.0))
    threshold = (log * LOG2_E - 2.0**-19).to(torch.float32)
    settings = Settings(
        is_greedy,
        above_zero,
        scale_of(above_zero),
        top_k.clamp_min(0),
        share.masked_fill(top_p == 1, -1),
        threshold.masked_fill(~counts, -torch.inf),
        min_keep.masked_fill(~good, 1),
        (r.masked_fill(~good, 1.0), f.masked_fill(~good, 0.0), s.masked_fill(~good, 0.0)),
    )
    return settings, ~good


def chain_of(stages: int, reals: Tensor | None, wholes: Tensor | None) -> Chain:
    """Find what may act, by a plan's code of the stages and the numbers that the host has.

    Parameters are those of `settings_of`, on the CPU, or None where only the device has them.
    """
    order = tuple(code for shift in range(0, 16, 4) if (code := stages >> shift & 15))
    on = dict.fromkeys((TEMPERATURE, TOP_K, TOP_P, MIN_P), True)
    greedy: Tensor | None = None
    if reals is not None:
        temperature, top_p, min_p = to_float32(reals[:, :3]).unbind(1)
        greedy = temperature == 0
        on[TOP_P] = bool((~greedy & (top_p != 1)).any())
        on[MIN_P] = bool((~greedy & (min_p != 0)).any())
    if wholes is not None:
        on[TOP_K] = bool((wholes[:, 0] > 0).any())
    acting = tuple(code for code in order if on[code])
    may_be_greedy = greedy is None or bool(greedy.any())
    head = 0 if wholes is None else _head(acting, wholes, greedy)
    return Chain(acting, may_be_greedy, head, wholes is None or bool((wholes[:, 1] > 1).any()))


def _head(acting: tuple[int, ...], wholes: Tensor, greedy: Tensor | None) -> int:
    """How many first tokens are enough: top_k must bound every row, before top_p adds it up."""
    if not len(wholes):
        return 0
    top_k, min_keep = wholes.unbind(1)
    late = TOP_P in acting and TOP_K in acting and acting.index(TOP_P) < acting.index(TOP_K)
    unbounded = torch.full_like(top_k, late or TOP_K not in acting, dtype=torch.bool)
    count = torch.maximum(top_k, min_keep)
    count = count.masked_fill(unbounded | (top_k <= 0), MOST_IN_HEAD + 1)
    if greedy is not None:
        count = count.masked_fill(greedy, 1)
    most = int(count.max())
    return most if most <= MOST_IN_HEAD else 0
