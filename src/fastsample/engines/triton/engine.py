"""The Triton engine: a few kernels behind the doors that every engine has.

These doors take arrays, as all do. What is told of a draw, and laws of whole rows, are torch's.
"""

from __future__ import annotations

from fastsample.engines.torch.array_engine import Doors, write_softmax

from .batch import sample
from .launch import require_device

__all__ = ["kept_sets", "run", "write_softmax"]

_DOORS = Doors(sample, require_device())
run, kept_sets = _DOORS.run, _DOORS.kept_sets
