"""What the kernels hand on: a table with the settings of each row, and where a draw is written."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fastsample.engines.reference.rows import EMPTY, INVALID, OK

from .mass import MINUS_INF, PLUS_INF

SCALE, THRESHOLD = tl.constexpr(0), tl.constexpr(1)
SHARE, TOP_K, MIN_KEEP = tl.constexpr(2), tl.constexpr(3), tl.constexpr(4)
GREEDY, BAD = tl.constexpr(5), tl.constexpr(6)
SEED, POSITION, STREAM = tl.constexpr(7), tl.constexpr(8), tl.constexpr(9)
COLUMNS = tl.constexpr(10)
"""Columns of the table, int64 of shape (B, COLUMNS), as torch's `Settings` has them.

SCALE and THRESHOLD hold the bits of float32; SEED and POSITION are bits too. BAD is 1 where a
number of the row is out of range.
"""

_OK, _INVALID, _EMPTY = tl.constexpr(OK), tl.constexpr(INVALID), tl.constexpr(EMPTY)
_BAD_PARAM = tl.constexpr(3)


class Drawn(NamedTuple):
    """Where a draw is written, contiguous and beside the logits.

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


def blank(n_rows: int, draws: int, device: torch.device) -> Drawn:
    """Make room for a draw.

    Parts of one tensor would begin where the number of rows has them: for each alignment, and for
    each special number, Triton compiles a kernel anew.
    """
    return Drawn(
        torch.empty((n_rows, draws), dtype=torch.int64, device=device),
        torch.empty(n_rows, dtype=torch.uint8, device=device),
        torch.empty(n_rows, dtype=torch.int64, device=device),
        torch.empty(n_rows, dtype=torch.int64, device=device),
    )


@triton.jit
def whole_number(table: tl.tensor, row: tl.tensor, column: tl.constexpr) -> tl.tensor:
    """A setting of a row that is int64."""
    return tl.load(table + row.to(tl.int64) * COLUMNS + column)


@triton.jit
def real_number(table: tl.tensor, row: tl.tensor, column: tl.constexpr) -> tl.tensor:
    """A setting of a row that is float32."""
    return whole_number(table, row, column).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def status_of(table: tl.tensor, row: tl.tensor, top: tl.tensor) -> tl.tensor:
    """The status of a row with the largest rank `top`."""
    status = tl.where(top >= PLUS_INF, _INVALID, tl.where(top == MINUS_INF, _EMPTY, _OK))
    return tl.where(whole_number(table, row, BAD) != 0, _BAD_PARAM, status)
