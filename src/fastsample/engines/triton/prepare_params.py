"""Parameters, wherever they lie, to the table of settings that the other kernels read.

What lies on the device is read there, so that a CUDA graph's replay sees what is there then.
Numbers of the host that all rows share go along with the launch, and so does a stream that counts
the rows. Other numbers of the host are copied, without waiting.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fastsample.engines.torch.from_numpy import PLACE, REALS, WHOLES

from .launch import INTERPRETED, launch
from .mass import scale_of, share_of, threshold_of, to_float32
from .param_table import (
    BAD,
    COLUMNS,
    GREEDY,
    MIN_KEEP,
    POSITION,
    SCALE,
    SEED,
    SHARE,
    STREAM,
    THRESHOLD,
    TOP_K,
)


def settle(
    reals: Tensor, wholes: Tensor, place: Tensor, bad: Tensor | None, device: torch.device
) -> Tensor:
    """Work out the table, int64 of shape (B, COLUMNS), on the device.

    The tensors are those of `engines.torch.batch.Asked`, on that device or on the host.
    """
    n_rows = len(reals)
    table = torch.empty((n_rows, COLUMNS.value), dtype=torch.int64, device=device)
    block = triton.next_power_of_2(n_rows) if INTERPRETED else 64
    marks = torch.zeros(n_rows, dtype=torch.bool) if bad is None else bad
    launch(
        *(_settle, (triton.cdiv(n_rows, block),), table),
        *_part(reals.view(torch.int64), REALS, 3, device),
        *_part(wholes, WHOLES, 2, device),
        *_place(place, device),
        *_part(marks.view(torch.uint8).unsqueeze(1), ("the mark of a bad row",), 1, device),
        *(n_rows, block),
    )
    return table


def _part(numbers: Tensor, names: tuple[str, ...], count: int, device: torch.device) -> list[Any]:
    """A table beside the logits, or None; and the numbers that then stand for all its rows."""
    if not numbers.is_cpu:
        return [numbers.contiguous(), *[0] * count]
    rows = numbers[:, :count]
    if _are_alike(rows):
        return [None, *rows[0].tolist()]
    _refuse_in_a_graph(rows, names, device)
    numbers = numbers.contiguous()
    if device.type == "cuda":
        # A copy is not waited for where the host's memory stays in its place.
        numbers = numbers.pin_memory().to(device, non_blocking=True)
    return [numbers, *[0] * count]


def _place(place: Tensor, device: torch.device) -> list[Any]:
    """As `_part`, and how much the stream grows by from row to row where numbers stand for all."""
    step = 0
    if place.is_cpu and len(place) > 1:
        step = int(place[1, 2] - place[0, 2])
        counted = place.clone()
        counted[:, 2] -= step * torch.arange(len(place))
        place, step = (counted, step) if _are_alike(counted) else (place, 0)
    return [*_part(place, PLACE, 3, device), step]


def _are_alike(rows: Tensor) -> bool:
    return bool((rows == rows[0]).all())


def _refuse_in_a_graph(rows: Tensor, names: tuple[str, ...], device: torch.device) -> None:
    if not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        return
    name = names[int((rows != rows[0]).any(0).nonzero()[0, 0])]
    raise RuntimeError(
        f"`{name}` must be on the device, or the same in all rows, where a CUDA graph is captured; "
        f"got numbers of the host that differ (pass a tensor on {device}, which a replay reads)"
    )


@triton.jit
def _column(
    part: tl.tensor,
    rows: tl.tensor,
    inside: tl.tensor,
    width: tl.constexpr,
    column: tl.constexpr,
    number: tl.tensor,
) -> tl.tensor:
    if part is None:
        return number + rows.to(tl.int64) * 0
    else:
        return tl.load(part + rows.to(tl.int64) * width + column, mask=inside, other=0)


@triton.jit
def _real(
    part: tl.tensor,
    rows: tl.tensor,
    inside: tl.tensor,
    column: tl.constexpr,
    number: tl.tensor,
) -> tl.tensor:
    bits = _column(part, rows, inside, 6, column, number)
    return to_float32(bits.to(tl.float64, bitcast=True))


@triton.jit
def _penalties_are_good(part: tl.tensor, rows: tl.tensor, inside: tl.tensor) -> tl.tensor:
    infinity = float("inf")
    repetition = _real(part, rows, inside, 3, 0)
    good = (repetition > 0.0) & (repetition < infinity)
    for column in tl.static_range(4, 6):
        penalty = _real(part, rows, inside, column, 0)
        good = good & (penalty > -infinity) & (penalty < infinity)
    return good


@triton.jit(
    do_not_specialize=[
        *("temperature", "top_p", "min_p", "top_k", "min_keep"),
        *("seed", "position", "stream", "stream_step", "mark", "n_rows"),
    ]
)
def _settle(
    table: tl.tensor,
    reals: tl.tensor,
    temperature: tl.int64,
    top_p: tl.int64,
    min_p: tl.int64,
    wholes: tl.tensor,
    top_k: tl.int64,
    min_keep: tl.int64,
    place: tl.tensor,
    seed: tl.int64,
    position: tl.int64,
    stream: tl.int64,
    stream_step: tl.int64,
    marks: tl.tensor,
    mark: tl.int64,
    n_rows: tl.int32,
    block: tl.constexpr,
) -> None:
    rows = tl.program_id(0) * block + tl.arange(0, block)
    inside = rows < n_rows
    heat = _real(reals, rows, inside, 0, temperature)
    nucleus = _real(reals, rows, inside, 1, top_p)
    least = _real(reals, rows, inside, 2, min_p)
    most = _column(wholes, rows, inside, 2, 0, top_k)
    fewest = _column(wholes, rows, inside, 2, 1, min_keep)
    good = (heat >= 0.0) & (heat < float("inf")) & (most >= -1) & (fewest >= 1)
    good = good & (nucleus >= 0.0) & (nucleus <= 1.0) & (least >= 0.0) & (least <= 1.0)
    if reals is not None:
        good = good & _penalties_are_good(reals, rows, inside)
    good = good & (_column(marks, rows, inside, 1, 0, mark) == 0)
    # A bad row has settings that can be worked with.
    heat, nucleus = tl.where(good, heat, 1.0), tl.where(good, nucleus, 1.0)
    is_greedy = heat == 0.0
    scale = scale_of(tl.where(is_greedy, 1.0, heat))
    threshold = threshold_of(tl.where(good, least, 0.0))
    at = table + rows.to(tl.int64) * COLUMNS
    tl.store(at + SCALE, scale.to(tl.int32, bitcast=True).to(tl.int64), mask=inside)
    tl.store(at + THRESHOLD, threshold.to(tl.int32, bitcast=True).to(tl.int64), mask=inside)
    tl.store(at + SHARE, share_of(nucleus), mask=inside)
    tl.store(at + TOP_K, tl.where(good & (most > 0), most, 0), mask=inside)
    tl.store(at + MIN_KEEP, tl.where(good, fewest, 1), mask=inside)
    tl.store(at + GREEDY, is_greedy.to(tl.int64), mask=inside)
    tl.store(at + BAD, 1 - good.to(tl.int64), mask=inside)
    tl.store(at + SEED, _column(place, rows, inside, 3, 0, seed), mask=inside)
    tl.store(at + POSITION, _column(place, rows, inside, 3, 1, position), mask=inside)
    streams = _column(place, rows, inside, 3, 2, stream) + rows.to(tl.int64) * stream_step
    tl.store(at + STREAM, streams, mask=inside)
