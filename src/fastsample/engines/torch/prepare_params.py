"""Parameters as the stages read them: one column for each, computed on their device."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from fastsample.params.ops import Op
from fastsample.params.table import MIN_KEEP, PENALTIES

from .mass import log2_of, scale_of, to_float32

FIXED = (*(penalty.name for penalty in PENALTIES), "temperature", MIN_KEEP.name)
"""The columns of numbers that every request has; those of its stages follow."""

TEMPERATURE = len(PENALTIES)
"""The place of the temperature among them."""

MAX_TOPK = 4096
"""The most tokens that the filters may keep in the top-k path."""

ALL = 2**40
"""More tokens than a row has."""

_SHARES = (Op.MASS, Op.BAND)
_LOGARITHMS = (Op.THRESHOLD, Op.THRESHOLD_OF_TOTAL, Op.THRESHOLD_OF_TOP_SHARE)


class RowParams(NamedTuple):
    """Parameters of a batch: tensors of shape (B, 1).

    Attributes
    ----------
    is_greedy : bool
    temperature : float64
        1 where it is 0.
    scale : float32
        s of section 4 at the temperature.
    min_keep : int64
    penalties : tuple of float64
        Repetition, frequency, presence.
    stages : tuple
        The number of each stage: see `_stage_number`.
    """

    is_greedy: Tensor
    temperature: Tensor
    scale: Tensor
    min_keep: Tensor
    penalties: tuple[Tensor, ...]
    stages: tuple[Tensor, ...]

    def to(self, device: torch.device) -> RowParams:
        """Copy the columns to a device, without waiting for it."""
        copy = partial(copy_column, device=device)
        *columns, penalties, stages = self
        return RowParams._make(
            (*map(copy, columns), tuple(map(copy, penalties)), tuple(map(copy, stages)))
        )


def copy_column(column: Tensor, device: torch.device) -> Tensor:
    """Copy a column of numbers, without NaN, to a device, without waiting for it.

    A column of equal numbers is written there: a CUDA graph cannot hold a copy of the host's
    memory, which may have another use by the time of the replay.
    """
    if column.device == device:
        return column
    if column.is_cpu and len(column) and bool((column == column[0]).all()):
        return torch.full(column.shape, column[0].item(), dtype=column.dtype, device=device)
    return column.to(device, non_blocking=True)


def prepare_params(numbers: Tensor, ops: tuple[int, ...]) -> RowParams:
    """Compute the columns.

    Parameters
    ----------
    numbers : float64 tensor of shape (B, len(FIXED) + len(ops))
        In range. The columns of `FIXED`, then the parameter of each stage.
    ops : tuple of int
        What each stage does, by `Op`.
    """
    # Counts too: a row has fewer tokens than the integers that are exact in float32.
    columns = to_float32(numbers).unsqueeze(2).unbind(1)
    temperature, min_keep = columns[TEMPERATURE : len(FIXED)]
    is_greedy = temperature == 0
    above_zero = temperature.masked_fill(is_greedy, 1.0)
    return RowParams(
        is_greedy,
        above_zero,
        scale_of(above_zero),
        _count(min_keep),
        columns[:TEMPERATURE],
        tuple(map(_stage_number, ops, columns[len(FIXED) :])),
    )


def _count(numbers: Tensor) -> Tensor:
    return numbers.clamp_max(ALL).to(torch.int64)


def _stage_number(op: int, v: Tensor) -> Tensor:
    """Compute what a stage needs of its parameter v, for each row.

    COUNT: how many tokens it keeps, int64. MASS and BAND: P, int64; -1 is off. The thresholds of a
    logarithm: ln(v) * LOG2_E - 2^-19, float64; -inf keeps all. Others: v as float64.
    """
    if op == Op.COUNT:
        return _count(v.masked_fill(v <= 0, ALL))
    if op in _SHARES:
        share = ((v * 2.0**31).to(torch.int64) - 2**10).clamp_min_(0)
        return share.masked_fill(v == 1, -1)
    if op in _LOGARITHMS:
        keeps_all = v <= 2.0**-60
        return (log2_of(v.masked_fill(keeps_all, 1.0)) - 2.0**-19).masked_fill_(
            keeps_all, -torch.inf
        )
    return v


class Chain(NamedTuple):
    """The stages that may act in some row, from the numbers that the host has.

    Attributes
    ----------
    stages : tuple of (int, int)
        The op of each stage, and its place among the stages of the request.
    greedy : bool
        Whether a row may have temperature 0.
    topk : int
        How many top tokens of a row are enough to draw from it, 0 where that is not known.
    min_keep : bool
        Whether a row may have to keep more than one token.
    """

    stages: tuple[tuple[int, int], ...]
    greedy: bool
    topk: int
    min_keep: bool


def chain_of(ops: tuple[int, ...], numbers: Tensor | None) -> Chain:
    """Find the stages that may act.

    Parameters
    ----------
    ops : tuple of int
    numbers : float64 tensor of shape (B, len(FIXED) + len(ops)), or None
        As for `prepare_params`, on the CPU; NaN for what only the device has.
    """
    stages = tuple((op, place) for place, op in enumerate(ops))
    if numbers is None:
        return Chain(stages, True, 0, True)
    numbers = to_float32(numbers)
    temperature, min_keep = numbers[:, TEMPERATURE], numbers[:, TEMPERATURE + 1]
    is_greedy, values = temperature == 0, numbers[:, len(FIXED) :]
    acting = tuple(
        (op, place)
        for op, place in stages
        if op == Op.SCALE or bool(((values[:, place] != _off(op)) & ~is_greedy).any())
    )
    return Chain(
        acting,
        bool((is_greedy | temperature.isnan()).any()),
        _topk_enough(acting, values, min_keep, is_greedy),
        not bool((min_keep <= 1).all()),
    )


def _off(op: int) -> float:
    """The value at which a filter keeps all."""
    return 1.0 if op in _SHARES else 0.0


def _topk_enough(
    acting: tuple[tuple[int, int], ...], values: Tensor, min_keep: Tensor, is_greedy: Tensor
) -> int:
    """How many top tokens are enough: those of COUNT, unless a filter before it sums masses."""
    count = torch.full_like(min_keep, ALL)
    for op, place in acting:
        if op == Op.COUNT:
            top_k = values[:, place]
            count = torch.where(top_k > 0, torch.maximum(top_k, min_keep), count)
        if op not in (Op.SCALE, Op.THRESHOLD):
            break
    most = float(count.masked_fill(is_greedy, 1.0).max()) if len(count) else 0.0
    return int(most) if most <= MAX_TOPK else 0
