"""All of it as one operator of torch, ``torch.ops.fastsample.sample``: opaque to every compiler.

So `torch.compile` can put it in a graph, and cannot look inside to fuse what must stay apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .adjust import Adjustments
from .batch import Answer, Asked, sample


def _answer(
    values: Tensor,
    vocabulary: int,
    reals: Tensor,
    wholes: Tensor,
    place: Tensor,
    bad: Tensor | None,
    mask: Tensor | None,
    bias_tokens: Tensor | None,
    bias: Tensor | None,
    prompt: Tensor | None,
    output: Tensor | None,
    scopes: Sequence[int],
    stages: int,
    draws: int,
    forms: Sequence[int],
    top_count: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    r, f, s = scopes
    adjustments = Adjustments(mask, bias_tokens, bias, prompt, output, (r, f, s))
    asked = Asked(
        *(values, vocabulary, reals, wholes, place, bad, adjustments),
        *(stages, draws, tuple(forms), top_count),
    )
    # An operator's results may not share memory.
    one, two, three, four, five, six, seven = (part.clone() for part in sample(asked))
    return one, two, three, four, five, six, seven


def _shapes(
    values: Tensor,
    vocabulary: int,
    reals: Tensor,
    wholes: Tensor,
    place: Tensor,
    bad: Tensor | None,
    mask: Tensor | None,
    bias_tokens: Tensor | None,
    bias: Tensor | None,
    prompt: Tensor | None,
    output: Tensor | None,
    scopes: Sequence[int],
    stages: int,
    draws: int,
    forms: Sequence[int],
    top_count: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    n_rows, n_forms = values.shape[0], len(forms)
    some, many = (n_forms, n_rows), (n_forms, n_rows, top_count)
    return (
        values.new_empty((n_rows, draws), dtype=torch.int64),
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
    operator = torch.library.custom_op("fastsample::sample", _answer, mutates_args=())
    operator.register_fake(_shapes)
    return operator


_sample = register()


def call(asked: Asked) -> Answer:
    """Draw for every row, through the operator."""
    mask, tokens, bias, prompt, output, scopes = asked.adjustments
    return Answer(
        *_sample(
            *(asked.values, asked.vocabulary, asked.reals, asked.wholes, asked.place, asked.bad),
            *(mask, tokens, bias, prompt, output, list(scopes)),
            *(asked.stages, asked.draws, list(asked.forms), asked.top_count),
        )
    )
