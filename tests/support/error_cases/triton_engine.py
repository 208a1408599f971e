"""Errors of the Triton engine; to be imported only where torch and triton are installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
import triton  # noqa: F401

from fastsample import sample
from fastsample.engines import resolve
from fastsample.engines.triton import launch

from . import ROWS, ErrorCase
from .following import Mended

TENSOR = torch.from_numpy(ROWS)
OPTIONS = {"engine": "triton", "on_invalid": "mark", "seed": 1, "position": 0, "stream": "row"}


def tokens_of(engine: str | None) -> Any:
    """The tokens of another engine."""
    return sample(TENSOR, **{**OPTIONS, "engine": engine}).tokens.tolist()


@contextmanager
def compiled(has_gpu: bool) -> Iterator[None]:
    """As if Triton were not interpreted, on a machine with a GPU or without one."""
    with (
        mock.patch.object(launch, "INTERPRETED", False),
        mock.patch.object(torch.cuda, "is_available", lambda: has_gpu),
    ):
        yield


def without_a_gpu() -> None:
    with compiled(has_gpu=False):
        launch.require_device()


def on_the_cpu() -> None:
    resolve("triton")
    with compiled(has_gpu=True):
        sample(TENSOR, **OPTIONS)


def in_a_graph() -> None:
    """Draw with numbers of the host that differ by row, while a CUDA graph is captured."""
    with (
        mock.patch.object(torch.cuda, "is_available", lambda: True),
        mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: True),
    ):
        sample(TENSOR, **OPTIONS, top_p=np.linspace(0.5, 0.8, 4))


ERROR_CASES = [
    ErrorCase(
        without_a_gpu,
        RuntimeError,
        "engine 'triton' needs a CUDA device, which torch does not",
        Mended("engine='torch'", lambda: tokens_of("torch"), lambda: tokens_of("reference")),
    ),
    ErrorCase(
        on_the_cpu,
        TypeError,
        "`logits` must be on cuda for engine 'triton', got a tensor on cpu (move them there, or",
        Mended("or leave `engine` out", lambda: tokens_of(None), lambda: tokens_of("reference")),
    ),
    ErrorCase(
        in_a_graph,
        RuntimeError,
        "`top_p` must be on the device, or the same in all rows, ",
        reason="a tensor on the device differs from one of the host on a GPU alone",
    ),
]
