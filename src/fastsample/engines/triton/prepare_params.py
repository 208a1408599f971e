"""Parameters, wherever they are, as the table that the other kernels read.

What is on the device is read there, so that a CUDA graph's replay reads the values of that time.
Host numbers that all rows share are arguments of the launch, and so is a stream that counts the
rows. Other host numbers are copied, without waiting.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fastsample.engines.reference.race import LISTED_COUNT, LISTED_SHARE, NO_EFFECT
from fastsample.engines.torch.batch import TensorRequest
from fastsample.engines.torch.prepare_params import ALL, FIXED, TEMPERATURE
from fastsample.params.table import MAX_STAGES, RNG_POSITION, STAGE_PARAMETERS

from .launch import INTERPRETED, launch
from .mass import log2_of, scale_of, to_float32
from .param_table import (
    BAD,
    COLUMNS,
    GREEDY,
    LISTED,
    MIN_KEEP,
    POSITION,
    SCALE,
    SEED,
    STAGES,
    STREAM,
)
from .select import OP_COUNT, OP_MASS, OP_SCALE

_ALL = tl.constexpr(ALL)
_LISTED_COUNT, _LISTED_SHARE = tl.constexpr(LISTED_COUNT), tl.constexpr(LISTED_SHARE)
_NO_EFFECT = tl.constexpr(NO_EFFECT)
_WIDTH = tl.constexpr(2)
"""How many numbers of a request precede those of its stages here: temperature and min_keep."""


def prepare_params(request: TensorRequest) -> Tensor:
    """Compute the table, int64 of shape (B, COLUMNS), on the device of the values."""
    n_rows, device = len(request.values), request.values.device
    table = torch.empty((n_rows, COLUMNS.value), dtype=torch.int64, device=device)
    block = triton.next_power_of_2(n_rows) if INTERPRETED else 64
    bad = torch.zeros(n_rows, dtype=torch.bool) if request.bad is None else request.bad
    numbers = request.numbers[:, TEMPERATURE:].view(torch.int64)
    numbers, shared = _shared(numbers, (*FIXED[TEMPERATURE:], *map(_names, request.ops)), device)
    rng_position, step = _counted(request.rng_position)
    names = tuple(parameter.name for parameter in RNG_POSITION)
    rng_position, place = _shared(rng_position, names, device)
    bad, is_bad = _shared(bad.view(torch.uint8).unsqueeze(1), ("a parameter in range",), device)
    launch(
        _prepare,
        (triton.cdiv(n_rows, block),),
        table,
        numbers,
        *shared,
        *[0] * (_WIDTH.value + MAX_STAGES - len(shared)),
        rng_position,
        *place,
        step,
        bad,
        *is_bad,
        n_rows,
        request.vocabulary,
        request.ops,
        block,
    )
    return table


def _names(op: int) -> str:
    """The parameters whose stage has this op."""
    return "` or `".join(one.name for one in STAGE_PARAMETERS if one.op == op)


def _shared(
    numbers: Tensor, names: tuple[str, ...], device: torch.device
) -> tuple[Tensor | None, list[Any]]:
    """The numbers on the device, or None; and those that all rows share, where they are None."""
    if not numbers.is_cpu:
        return numbers.contiguous(), [0] * len(names)
    if _are_alike(numbers):
        return None, numbers[0].tolist()
    _refuse_in_a_graph(numbers, names, device)
    numbers = numbers.contiguous()
    if device.type == "cuda":
        # Pinned memory does not move, so that the copy need not be waited for.
        numbers = numbers.pin_memory().to(device, non_blocking=True)
    return numbers, [0] * len(names)


def _counted(rng_position: Tensor) -> tuple[Tensor, int]:
    """Split off how much the stream grows by from row to row, if all rows are alike then."""
    if not rng_position.is_cpu or len(rng_position) < 2:
        return rng_position, 0
    step = int(rng_position[1, 2] - rng_position[0, 2])
    counted = rng_position.clone()
    counted[:, 2] -= step * torch.arange(len(counted))
    return (counted, step) if _are_alike(counted) else (rng_position, 0)


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
def _column(numbers, rows, inside, width: tl.constexpr, column: tl.constexpr, shared):
    if numbers is None:
        return shared + rows.to(tl.int64) * 0
    else:
        return tl.load(numbers + rows.to(tl.int64) * width + column, mask=inside, other=0)


@triton.jit
def _count(bits):
    number = bits.to(tl.float64, bitcast=True)
    return tl.where(number < _ALL, number, _ALL).to(tl.int64)


@triton.jit
def stage_number(bits, op: tl.constexpr):
    """What a stage needs of its parameter v, int64, from the bits of v in float64.

    COUNT: how many tokens it keeps. MASS: P; -1 is off. The thresholds: the bits of
    ln(v) * LOG2_E - 2^-19 in float64; -inf keeps all.
    """
    v = to_float32(bits.to(tl.float64, bitcast=True))
    if op == OP_COUNT:
        count = _count(bits)
        number = tl.where(count > 0, count, _ALL)
    elif op == OP_MASS:
        share = (v * 2.0**31).to(tl.int64) - 1024
        number = tl.where(v == 1.0, -1, tl.maximum(share, 0))
    else:
        filters = v > 2.0**-60
        least = log2_of(tl.where(filters, v, 1.0)) - 2.0**-19
        number = tl.where(filters, least, float("-inf")).to(tl.int64, bitcast=True)
    return number


@triton.jit
def acts_and_lists(v, vocabulary, op: tl.constexpr):
    """Whether a filter of this value acts on a row, and whether it lists the row in a race."""
    if op == OP_COUNT:
        acts = (v > 0) & (v < vocabulary)
        lists = acts & (v < _LISTED_COUNT)
    elif op == OP_MASS:
        acts = v != 1.0
        lists = v < _LISTED_SHARE
    else:
        acts = v > _NO_EFFECT
        lists = v < v
    return acts, lists


@triton.jit(
    do_not_specialize=[
        "temperature",
        "min_keep",
        *(f"value_{place}" for place in range(MAX_STAGES)),
        "seed",
        "position",
        "stream",
        "stream_step",
        "is_bad",
        "n_rows",
        "vocabulary",
    ]
)
def _prepare(
    table,
    numbers,
    temperature: tl.int64,
    min_keep: tl.int64,
    value_0: tl.int64,
    value_1: tl.int64,
    value_2: tl.int64,
    value_3: tl.int64,
    value_4: tl.int64,
    value_5: tl.int64,
    value_6: tl.int64,
    value_7: tl.int64,
    value_8: tl.int64,
    value_9: tl.int64,
    value_10: tl.int64,
    value_11: tl.int64,
    value_12: tl.int64,
    value_13: tl.int64,
    value_14: tl.int64,
    value_15: tl.int64,
    rng_position,
    seed: tl.int64,
    position: tl.int64,
    stream: tl.int64,
    stream_step: tl.int64,
    bad,
    is_bad: tl.int64,
    n_rows: tl.int32,
    vocabulary: tl.int32,
    ops: tl.constexpr,
    block: tl.constexpr,
) -> None:
    rows = tl.program_id(0) * block + tl.arange(0, block)
    inside = rows < n_rows
    at = table + rows.to(tl.int64) * COLUMNS
    width: tl.constexpr = _WIDTH + len(ops)
    bits = _column(numbers, rows, inside, width, 0, temperature)
    heat = to_float32(bits.to(tl.float64, bitcast=True))
    scale = scale_of(tl.where(heat == 0.0, 1.0, heat))
    tl.store(at + SCALE, scale.to(tl.int32, bitcast=True).to(tl.int64), mask=inside)
    tl.store(at + GREEDY, (heat == 0.0).to(tl.int64), mask=inside)
    least = _count(_column(numbers, rows, inside, width, 1, min_keep))
    tl.store(at + MIN_KEEP, least, mask=inside)
    values = (
        value_0,
        value_1,
        value_2,
        value_3,
        value_4,
        value_5,
        value_6,
        value_7,
        value_8,
        value_9,
        value_10,
        value_11,
        value_12,
        value_13,
        value_14,
        value_15,
    )
    is_listed, is_filtered = rows < 0, rows < 0
    for place in tl.static_range(len(ops)):
        value = _column(numbers, rows, inside, width, _WIDTH + place, values[place])
        v = to_float32(value.to(tl.float64, bitcast=True))
        if ops[place] == OP_SCALE:
            is_listed = is_listed | (is_filtered & (v != 1.0))
        else:
            tl.store(at + STAGES + place, stage_number(value, ops[place]), mask=inside)
            acts, lists = acts_and_lists(v, vocabulary, ops[place])
            is_filtered, is_listed = is_filtered | acts, is_listed | lists
    tl.store(at + LISTED, is_listed.to(tl.int64), mask=inside)
    tl.store(at + BAD, (_column(bad, rows, inside, 1, 0, is_bad) != 0).to(tl.int64), mask=inside)
    tl.store(at + SEED, _column(rng_position, rows, inside, 3, 0, seed), mask=inside)
    tl.store(at + POSITION, _column(rng_position, rows, inside, 3, 1, position), mask=inside)
    streams = _column(rng_position, rows, inside, 3, 2, stream) + rows.to(tl.int64) * stream_step
    tl.store(at + STREAM, streams, mask=inside)
