"""Cold calls, without a model: 64 MB are read, the row is written anew, and a draw is timed.

The forms are those of benches/loop.py, in random order, on recorded rows of SmolLM2-135M, on one
thread; those of torch and transformers where they are installed. `make bench` measures them too.

    python benches/cold.py [--repeat 100] [--noisy]
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import typer
from loop_forms import FormSet, Step
from loop_goals import BATCH, COLD
from loop_timing import has_torch, measure, run_alone
from numpy.typing import NDArray
from rows import SMOLLM2, RowSet
from tables import Figure

from fastsample.cli.interleave import SWEPT, Sweep

REPEAT = 100
ROWS = RowSet(SMOLLM2, 49_152)


def swept(batch: int, tensors: bool, megabytes: int = SWEPT) -> tuple[Step, int]:
    """Make the step, and say how many columns its rows have."""
    rows = ROWS.rows()
    sweep = Sweep(rows.reshape(-1, batch, 1, rows.shape[1]), megabytes)
    # What a sweep writes is always in the same memory.
    logits = tensor_of(sweep()) if tensors else None
    return lambda as_tensor: (sweep(), logits)[as_tensor], rows.shape[1]


def tensor_of(array: NDArray[np.float32]) -> Any:
    """Make a tensor of an array's memory."""
    import torch

    return torch.from_numpy(array)


def figures(repeat: int = REPEAT, megabytes: int = SWEPT) -> list[Figure]:
    """Measure the forms of one row, then of a batch."""
    tensors, found = has_torch(), []
    for batch in (1, BATCH):
        step, vocabulary = swept(batch, tensors, megabytes)
        found += measure(COLD, FormSet.of(batch, vocabulary, tensors), step, repeat)
    return found


def main(
    repeat: Annotated[int, typer.Option(min=1, help="calls of each form")] = REPEAT,
    noisy: Annotated[bool, typer.Option(help="measure on a busy machine too")] = False,
    patience: Annotated[float, typer.Option(help="seconds to wait until it is idle")] = 120,
) -> None:
    """Print the table."""
    run_alone(lambda: figures(repeat), noisy, patience)


if __name__ == "__main__":
    typer.run(main)
