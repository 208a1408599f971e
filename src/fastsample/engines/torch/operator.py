"""All of it as one operator of torch, ``torch.ops.fastsample.sample``: opaque to every compiler.

So `torch.compile` can put it in a graph, and cannot look inside to fuse what must stay apart. Whose
draw it is, torch's or Triton's, is one of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .batch import Answer, Asked, sample
from .penalties import Adjustments

_SCHEMA = (
    "(Tensor values, SymInt vocabulary, Tensor reals, Tensor wholes, Tensor place, Tensor? bad, "
    "Tensor? mask, Tensor? bias_tokens, Tensor? bias, Tensor? prompt, Tensor? output, "
    "SymInt[] scopes, SymInt stages, SymInt draws, SymInt[] forms, SymInt top_count, str engine) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def _flat(asked: Asked) -> tuple[Any, ...]:
    """The arguments of the operator, but for the engine."""
    values, vocabulary, reals, wholes, place, bad, adjustments, *how, forms, top_count = asked
    *parts, scopes = adjustments
    return (
        *(values, vocabulary, reals, wholes, place, bad),
        *(*parts, list(scopes), *how, list(forms), top_count),
    )


def _asked(parts: tuple[Any, ...]) -> Asked:
    """What `_flat` undoes."""
    adjustments = Adjustments._make((*parts[6:11], tuple(parts[11])))
    return Asked._make((*parts[:6], adjustments, *parts[12:14], tuple(parts[14]), parts[15]))


def _sample_of(engine: str) -> Callable[[Asked], Answer]:
    if engine == "triton":
        from fastsample.engines.triton import batch

        return batch.sample
    return sample


def _answer(*parts: Any) -> tuple[Tensor, ...]:
    *asked, engine = parts
    return tuple(_sample_of(engine)(_asked(tuple(asked))))


def _shapes(*parts: Any) -> tuple[Tensor, ...]:
    asked = _asked(parts[:-1])
    values, n_rows, n_forms = asked.values, asked.values.shape[0], len(asked.forms)
    some, many = (n_forms, n_rows), (n_forms, n_rows, asked.top_count)
    return (
        values.new_empty((n_rows, asked.draws), dtype=torch.int64),
        values.new_empty((n_rows,), dtype=torch.uint8),
        values.new_empty((n_rows,), dtype=torch.int64),
        values.new_empty(some, dtype=torch.float64),
        values.new_empty(some, dtype=torch.int64),
        values.new_empty(many, dtype=torch.int64),
        values.new_empty(many, dtype=torch.float64),
    )


def register() -> Any:
    """Make the operator known to torch."""
    if not hasattr(torch.library, "custom_op"):
        raise RuntimeError(
            f"tensors on a device need torch 2.4 or later, got {torch.__version__} (pip install "
            "--upgrade torch, or pass `logits.cpu()`)"
        )
    operator = torch.library.custom_op(
        "fastsample::sample", _answer, mutates_args=(), schema=_SCHEMA
    )
    operator.register_fake(_shapes)
    return operator


_sample = register()


def call(asked: Asked, engine: str) -> Answer:
    """Draw for every row through the operator, by "torch" or "triton"."""
    return Answer(*_sample(*_flat(asked), engine))
