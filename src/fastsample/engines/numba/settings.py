"""The rows of a plan as tuples, which are faster to read than records of an array."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class RowParams(NamedTuple):
    """The fields of a record of `PLAN`, in their order."""

    temperature: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    min_keep: int
    repetition_scope: int
    frequency_scope: int
    presence_scope: int
    seed: int
    position: int
    stream: int
    padding: int
    ops: bytes
    stages: bytes
    values: list[float]


def row_params(plan: NDArray[np.void]) -> list[RowParams]:
    """Read a plan, row by row."""
    values = plan["values"].tolist()
    return [RowParams(*(*row[:-1], own)) for row, own in zip(plan.tolist(), values, strict=True)]
