"""The torch engine: plain operations of torch behind the doors that every engine has.

These doors take arrays, as all do, and work on the CPU.
"""

from __future__ import annotations

import torch

from .array_engine import Doors, write_softmax
from .batch import sample

__all__ = ["kept_sets", "run", "write_softmax"]

_DOORS = Doors(sample, torch.device("cpu"))
run, kept_sets = _DOORS.run, _DOORS.kept_sets
