"""The Triton engine: a few kernels for each draw.

Log-probabilities, softmax and kept sets are the torch engine's.
"""

from __future__ import annotations

from fastsample.engines.torch.engine import ArrayEngine, kept_sets, write_softmax
from fastsample.engines.torch.operator import ENGINES

from .batch import sample
from .launch import require_device

__all__ = ["kept_sets", "run", "write_softmax"]

ENGINES["triton"] = sample
run = ArrayEngine(sample, require_device()).run
