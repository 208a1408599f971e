"""The plan: one record for each row, with its parameters as engines read them.

What callers pass is checked here, against the parameter table; engines check nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.params.stages import check_stages, is_on, on_value, require_stage
from fastsample.params.table import (
    BY_NAME,
    DRAW,
    MAX_STAGES,
    MIN_KEEP,
    PENALTIES,
    PENALTY_SCOPES,
    RNG_POSITION,
    STAGE_PARAMETERS,
    STAGES,
    STREAM,
)
from fastsample.params.validation import Bad

PLAN = np.dtype(
    [
        ("temperature", "<f8"),
        *((penalty.name, "<f8") for penalty in PENALTIES),
        ("min_keep", "<i8"),
        *((scope.name, "<i8") for scope in PENALTY_SCOPES),
        ("seed", "<u8"),
        ("position", "<u8"),
        ("stream", "<u4"),
        ("draw", "<u4"),
        ("ops", f"S{MAX_STAGES}"),
        ("stages", f"S{MAX_STAGES}"),
        ("values", "<f8", (MAX_STAGES,)),
    ]
)
"""One row of a plan, laid out as `RowParams` of kernels/runtime/types.hpp.

Stage i of a row does ``ops[i]`` with ``values[i]``; ``stages[i]`` is 1 + its place in STAGES. A
zero byte ends both. A stage that is off in every row has no place in the chain. ``draw`` is a
`DrawMethod`, which `settle_draws` settles before an engine reads it.
"""

_DEFAULTS = {
    parameter.name: parameter.default
    for parameter in (*STAGE_PARAMETERS, *PENALTIES, MIN_KEEP, *PENALTY_SCOPES, DRAW)
}
CHOICES = tuple(_DEFAULTS)
"""The names of the parameters of a plan but for seed, position and stream, in their order."""


_FIELDS = frozenset(PLAN.names or ())


def make_plan(
    n_rows: int,
    *,
    stages: tuple[str, ...] = STAGES,
    seed: Any = 0,
    position: Any = 0,
    stream: Any = 0,
    draws: int = 1,
    bad: Bad | None = None,
    **values: Any,
) -> NDArray[np.void]:
    """Check every parameter, a scalar or one per row, and make the plan of a batch.

    Parameters
    ----------
    n_rows : int
    stages : tuple of str
    seed, position, stream : int, or one per row
        `stream` may be "row".
    draws : int
        How many streams a row draws on, from its `stream` upwards; "row" reserves them.
    bad : bool array of shape (n_rows,), optional
        Rows whose own value is out of range are marked here, where they would be an error.
    **values
        Stage parameters, penalties, scopes and `min_keep` by name; the defaults of the table for
        those left out.

    Returns
    -------
    array of PLAN, shape (n_rows,), C-contiguous and writable
    """
    choices = {**_DEFAULTS, **values}
    plan = uniform_plan(stages, choices, n_rows)
    if plan is None:
        plan = _plan_of_columns(stages, choices, n_rows, bad)
    if isinstance(stream, str):
        stream = _streams_by_row(stream, n_rows, draws)
    if draws > 1:
        stream = _first_streams(stream, n_rows, draws, bad)
    for parameter, value in zip(RNG_POSITION, (seed, position, stream), strict=True):
        if type(value) is int and value == 0:
            continue  # a record has zeros
        plan[parameter.name] = parameter.values(value, n_rows, bad)
    return plan


def uniform_plan(
    stages: tuple[str, ...], choices: Mapping[str, Any], n_rows: int = 1
) -> NDArray[np.void] | None:
    """Make the plan of rows that share all parameters, from a record kept for the next call.

    None for values that differ by row, that could change while they are kept, or that are float32,
    whose denormals may equal 0 here.
    """
    if not _CONSTANTS.issuperset(map(type, choices.values())):
        return None
    try:
        record = _checked_record(stages, *choices.values())
    except (TypeError, ValueError):
        # Stages that cannot be hashed, or a bad value: the caller finds the error.
        return None
    return _repeat(record, n_rows)


_CONSTANTS = frozenset({int, float, str, NoneType, np.float64, np.int32, np.int64})


@lru_cache(maxsize=256, typed=True)
def _checked_record(stages: tuple[str, ...], *values: Any) -> bytes:
    check_stages(stages)
    checked = (BY_NAME[name].one(value) for name, value in zip(CHOICES, values, strict=True))
    record: bytes = _record(stages, *checked)
    return record


@lru_cache(maxsize=256, typed=True)
def _record(stages: tuple[str, ...], *values: Any) -> bytes:
    """One row of a plan, from checked values."""
    choices = dict(zip(CHOICES, values, strict=True))
    for parameter in STAGE_PARAMETERS:
        require_stage(parameter, choices[parameter.name], stages)
    plan = np.zeros(1, PLAN)
    write_stages(plan, stages, choices)
    for parameter in (*PENALTIES, MIN_KEEP, *PENALTY_SCOPES, DRAW):
        plan[parameter.name] = choices[parameter.name]
    return plan.tobytes()


def _repeat(record: bytes, n_rows: int) -> NDArray[np.void]:
    plan: NDArray[np.void] = np.ndarray((n_rows,), PLAN, bytearray(record * n_rows))
    return plan


def _plan_of_columns(
    stages: tuple[str, ...], choices: Mapping[str, Any], n_rows: int, bad: Bad | None
) -> NDArray[np.void]:
    """Make a plan in which some choices differ by row: of one record, then write the columns."""
    check_stages(stages)
    checked = {name: BY_NAME[name].values(value, n_rows, bad) for name, value in choices.items()}
    columns = {name: value for name, value in checked.items() if isinstance(value, np.ndarray)}
    for name, column in columns.items():
        if name in STAGES:
            parameter = BY_NAME[name]
            require_stage(parameter, column, stages, bad)
            is_in_chain = name in stages and is_on(parameter, column).any()
            checked[name] = on_value(parameter) if is_in_chain else parameter.off[0]
        else:
            checked[name] = BY_NAME[name].default
    plan = _repeat(_record(tuple(stages), *checked.values()), n_rows)
    chain = [STAGES[code - 1] for codes in plan["stages"][:1].tolist() for code in codes]
    for name, column in columns.items():
        if name in chain:
            plan["values"][:, chain.index(name)] = column
        if name in _FIELDS:
            plan[name] = column
    return plan


def write_stages(
    plan: NDArray[np.void], stages: tuple[str, ...], values: Mapping[str, Any]
) -> None:
    """Write the chain of a plan whose rows share the order of their stages.

    `values` has a number, or an array of shape (B,), for each stage parameter.
    """
    chain = [BY_NAME[name] for name in stages if np.any(is_on(BY_NAME[name], values[name]))]
    if len(chain) > MAX_STAGES:
        raise ValueError(
            f"`stages` must hold at most {MAX_STAGES} stages that are on, got {len(chain)} "
            "(leave some at their off values)"
        )
    plan["temperature"] = values["temperature"]
    plan["ops"] = bytes(parameter.op or 0 for parameter in chain)
    plan["stages"] = bytes(1 + STAGES.index(parameter.name) for parameter in chain)
    for place, parameter in enumerate(chain):
        plan["values"][:, place] = values[parameter.name]


def _streams_by_row(name: str, n_rows: int, draws: int) -> NDArray[np.int64] | int:
    if name != "row":
        raise ValueError(
            f'`stream` must be "row", an integer or one integer per row, got {name!r} '
            f"({STREAM.way_out})"
        )
    return np.arange(0, n_rows * draws, draws) if n_rows > 1 else 0


def _first_streams(stream: Any, n_rows: int, draws: int, bad: Bad | None) -> Any:
    """Check streams of which each is the first of several."""
    first = replace(
        STREAM,
        rule=f"in [0, 2**32 - {draws - 1})",
        way_out=f"{draws} draws take as many streams, from this one upwards: pass a lower one",
        high=STREAM.high - (draws - 1),
    )
    return first.values(stream, n_rows, bad)
