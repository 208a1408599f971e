"""Checks of a chain of stages: its names, and that no parameter is on without its stage."""

from __future__ import annotations

from typing import Any

import numpy as np

from .foreign import brief, shown
from .table import STAGES
from .validation import Bad, Parameter


def check_stages(stages: Any) -> None:
    """Check an order of stages: names of the table, each once."""
    if not isinstance(stages, (tuple, list)):
        raise TypeError(
            f"`stages` must be a tuple of names, got {shown(stages)} "
            f"(all of them, in the default order: {STAGES})"
        )
    for place, stage in enumerate(stages):
        if not isinstance(stage, str) or stage not in STAGES:
            raise ValueError(
                f"`stages` must hold names of stages, got {brief(stage)} (they are {STAGES})"
            )
        if stage in stages[:place]:
            raise ValueError(
                f"`stages` must hold each stage once, got {stage!r} twice (leave one of them out)"
            )


_ROUNDS_TO = {0: (-(2.0**-150), 2.0**-150), 1: (1 - 2.0**-25, 1 + 2.0**-24)}
"""The first and the last float64 that float32 rounds to an off value.

A conversion would depend on the processor's mode: with flush-to-zero, 1e-40 becomes 0.
"""


def is_on(parameter: Parameter, values: Any) -> Any:
    """Return whether checked values, rounded to float32, differ from the parameter's off value.

    `values` is a number, an array or a tensor.
    """
    first, last = _ROUNDS_TO[parameter.off[0]]
    return (values < first) | (values > last)


def on_value(parameter: Parameter) -> Any:
    """Return a value with which the parameter's stage is on, whatever else it does."""
    return parameter.low if is_on(parameter, parameter.low) else parameter.high


def require_stage(
    parameter: Parameter, values: Any, stages: tuple[str, ...], bad: Bad | None = None
) -> None:
    """Refuse a parameter that is on and has no stage to act in, for all rows or one per row."""
    name = parameter.name
    if name in stages:
        return
    on = np.flatnonzero(is_on(parameter, values))
    if bad is not None and np.ndim(values):
        bad[on] = True
    elif len(on):
        value, at = (values[on[0]], f" at row {on[0]}") if np.ndim(values) else (values, "")
        raise ValueError(
            f"`stages` must hold {name!r} where `{name}` is on, got {name}={value}{at} and "
            f"stages={tuple(stages)} (add the stage, or leave `{name}` out)"
        )
