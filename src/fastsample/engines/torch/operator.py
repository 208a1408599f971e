"""Sampling as one operator of torch, ``torch.ops.fastsample.sample``: opaque to every compiler.

So `torch.compile` can put it in a graph, and cannot fuse operations that must stay apart. The
engine that draws is one of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fastsample.params.ops import DrawMethod

from .batch import TensorOutput, TensorRequest, sample
from .logprobs import LogprobTokens, empty_logprobs
from .penalties import TensorProcessors

_SCHEMA = (
    "(Tensor values, SymInt vocabulary, Tensor numbers, Tensor? host_numbers, Tensor rng_position, "
    "Tensor? bad, Tensor? mask, Tensor? bias_tokens, Tensor? bias, Tensor? prompt, "
    "Tensor? output, int[] scopes, int[] ops, SymInt draws, int method, str[] modes, "
    "SymInt logprob_draws, SymInt top_count, Tensor? logprob_tokens, str engine) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def _arguments(request: TensorRequest) -> tuple[Any, ...]:
    """The operator's arguments but for the engine."""
    return (
        *request[:6],
        *request.processors[:5],
        list(request.processors.scopes),
        list(request.ops),
        request.draws,
        int(request.method),
        list(request.wanted.modes),
        *request.wanted[1:],
    )


def _request(arguments: tuple[Any, ...]) -> TensorRequest:
    """The request of these arguments."""
    *tensors, scopes, ops, draws, method, modes, logprob_draws, top_count, given = arguments
    processors = TensorProcessors._make((*tensors[6:], tuple(scopes)))
    return TensorRequest._make(
        (
            *tensors[:6],
            processors,
            tuple(ops),
            draws,
            DrawMethod(method),
            LogprobTokens(tuple(modes), logprob_draws, top_count, given),
        )
    )


ENGINES: dict[str, Callable[[TensorRequest], TensorOutput]] = {"torch": sample}
"""The engines that can be named; each adds itself when it is loaded."""


def _sample(*arguments: Any) -> tuple[Tensor, ...]:
    return tuple(ENGINES[arguments[-1]](_request(arguments[:-1])))


def _shapes(*arguments: Any) -> tuple[Tensor, ...]:
    request = _request(arguments[:-1])
    values, n_rows = request.values, request.values.shape[0]
    tokens = values.new_empty((n_rows, request.draws), dtype=torch.int64)
    return (
        tokens,
        tokens.new_empty((n_rows,), dtype=torch.uint8),
        tokens.new_empty((n_rows,)),
        *empty_logprobs(tokens, request.wanted),
    )


def register() -> Any:
    """Register the operator with torch."""
    if not hasattr(torch.library, "custom_op"):
        raise RuntimeError(
            f"tensors on a device need torch 2.4 or later, got {torch.__version__} (pip install "
            "--upgrade torch, or pass `logits.cpu()`)"
        )
    operator = torch.library.custom_op(
        "fastsample::sample", _sample, mutates_args=(), schema=_SCHEMA
    )
    operator.register_fake(_shapes)
    return operator


_operator = register()


def call(request: TensorRequest, engine: str) -> TensorOutput:
    """Draw for every row through the operator, by the engine of this name."""
    return TensorOutput(*_operator(*_arguments(request), engine))
