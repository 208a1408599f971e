"""A row's settings as Python has them: quicker to read than a record of an array."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Settings(NamedTuple):
    """The fields of a plan's record, in their order."""

    temperature: float
    top_p: float
    min_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    top_k: int
    min_keep: int
    repetition_scope: int
    frequency_scope: int
    presence_scope: int
    seed: int
    position: int
    stream: int
    stages: int


def settings_of(plan: NDArray[np.void]) -> list[Settings]:
    """Read a plan, row by row."""
    return [Settings(*record) for record in plan.tolist()]
