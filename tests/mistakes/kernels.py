"""Mistakes with the Triton engine; to be imported only where torch and triton are installed."""

from __future__ import annotations

from unittest import mock

import numpy as np
import torch
import triton  # noqa: F401

from fastsample import sample
from fastsample.triton_rule import launch

from . import ROWS, Mistake

TENSOR = torch.from_numpy(ROWS)


def without_a_gpu() -> None:
    """Ask for a place to run in as if Triton were not interpreted, and torch found no GPU."""
    with (
        mock.patch.object(launch, "INTERPRETED", False),
        mock.patch.object(torch.cuda, "is_available", lambda: False),
    ):
        launch.require_device()


def on_another_device() -> None:
    sample(TENSOR.to("meta"), engine="triton", seed=1)


def in_a_graph() -> None:
    """Draw with numbers of the host that differ by row, while a CUDA graph is captured."""
    with (
        mock.patch.object(torch.cuda, "is_available", lambda: True),
        mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: True),
    ):
        sample(TENSOR, engine="triton", on_invalid="mark", seed=1, top_p=np.linspace(0.5, 0.8, 4))


MISTAKES = [
    Mistake(without_a_gpu, RuntimeError, "engine 'triton' needs a CUDA device, which torch does not"),
    Mistake(
        on_another_device,
        TypeError,
        "for engine 'triton', got a tensor on meta (move them there, or leave `engine` out)",
    ),
    Mistake(in_a_graph, RuntimeError, "`top_p` must be on the device, or the same in all rows, "),
]
