"""The tables that kernels share: the parameters of each row, and the buffers of a draw's output."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fastsample.engines.reference.rows import EMPTY, INVALID, OK
from fastsample.params.table import MAX_STAGES

from .ordinal import MINUS_INF, PLUS_INF

SCALE, MIN_KEEP = tl.constexpr(0), tl.constexpr(1)
GREEDY, BAD = tl.constexpr(2), tl.constexpr(3)
SEED, POSITION, STREAM = tl.constexpr(4), tl.constexpr(5), tl.constexpr(6)
STAGES = tl.constexpr(7)
"""The column of the first stage's number: see `stage_number` of prepare_params.py."""
LISTED = tl.constexpr(7 + MAX_STAGES)
COLUMNS = tl.constexpr(8 + MAX_STAGES)
"""Columns of the parameter table, int64 of shape (B, COLUMNS).

SCALE holds the bits of a float32; SEED and POSITION are bits too. BAD is 1 where a parameter of the
row is out of range, LISTED where a race lists the row.
"""

_OK, _INVALID, _EMPTY = tl.constexpr(OK), tl.constexpr(INVALID), tl.constexpr(EMPTY)
_BAD_PARAM = tl.constexpr(3)


class DrawBuffers(NamedTuple):
    """Where a draw is written: contiguous, on the device of the logits.

    Attributes
    ----------
    tokens : int64 tensor of shape (B, n)
        -1 where the row is bad.
    status : uint8 tensor of shape (B,)
    kept_count : int64 tensor of shape (B,)
        0 where the row is bad.
    total : int64 tensor of shape (B,)
        W of the kept set.
    """

    tokens: Tensor
    status: Tensor
    kept_count: Tensor
    total: Tensor


def make_buffers(n_rows: int, draws: int, device: torch.device) -> DrawBuffers:
    """Make the buffers.

    Parts of one tensor would have alignments that depend on the number of rows, and Triton compiles
    a kernel for each alignment.
    """
    return DrawBuffers(
        torch.empty((n_rows, draws), dtype=torch.int64, device=device),
        torch.empty(n_rows, dtype=torch.uint8, device=device),
        torch.empty(n_rows, dtype=torch.int64, device=device),
        torch.empty(n_rows, dtype=torch.int64, device=device),
    )


@triton.jit
def param(table, row, column: tl.constexpr):
    """A parameter of a row, int64."""
    return tl.load(table + row.to(tl.int64) * COLUMNS + column)


@triton.jit
def scale_param(table, row):
    """s of a row at its temperature, float32."""
    return param(table, row, SCALE).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def status_of(table, row, top):
    """The status of a row whose largest ordinal is `top`."""
    status = tl.where(top >= PLUS_INF, _INVALID, tl.where(top == MINUS_INF, _EMPTY, _OK))
    return tl.where(param(table, row, BAD) != 0, _BAD_PARAM, status)
