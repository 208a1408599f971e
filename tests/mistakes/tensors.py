"""Mistakes in torch tensors; to be imported only where torch is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fastsample import sample
from mistakes import ROWS, Foreign, Mistake, given, logits


def torch_mistakes() -> list[Mistake]:
    rows, ones, integers = torch.from_numpy(ROWS), torch.ones(3), torch.zeros(4, dtype=torch.int64)

    def wrong(name: str, value: Any, part: str) -> Mistake:
        return Mistake(lambda: sample(rows, **{name: value}), TypeError, f"`{name}` must be {part}")

    return [
        logits(
            ones.clone().requires_grad_(), TypeError, "must not require grad, got a tensor that"
        ),
        logits(
            ones.to("meta"), TypeError, "must be on the CPU, got a tensor on meta (pass `logits.c"
        ),
        logits(
            ones.double(),
            TypeError,
            "must be float32, float16 or bfloat16, got torch.float64 (pass",
        ),
        logits(
            ones.to_sparse(), TypeError, "must be dense, got torch.sparse_coo (pass `logits.to_"
        ),
        logits(
            Foreign(source=ones.long()),
            TypeError,
            "must be float32, float16 or bfloat16, got int64 (pass",
        ),
        given(
            "mask", ones.to("meta").bool(), TypeError, "be on the CPU, got a tensor on meta (pas"
        ),
        given("bias", (ones, ones), TypeError, "hold lists of integers, got Tensor of shape (3,)"),
        given("bias", (integers, ones.clone().requires_grad_()), TypeError, "have numbers as val"),
        given("output", [ones.to("meta")] * 4, TypeError, "hold integers, got Tensor at row 0: "),
        logits(
            torch.ones(1, 2, 3), ValueError, "must have shape (V,) or (B, V), got (1, 2, 3) (pass"
        ),
        Mistake(
            lambda: sample(rows, out=torch.zeros(1, dtype=torch.int64).expand(4)),
            ValueError,
            "`out` must have memory of its own for each element, got strides of (0,) bytes",
        ),
        given("out", integers, TypeError, "be a numpy.ndarray as `logits` is, got Tensor (leave"),
        wrong("out", np.zeros(4, int), "a torch.Tensor as `logits` is, got ndarray ("),
        wrong("out", torch.zeros(4), "int64 on the CPU, got torch.float32 on cpu ("),
        wrong("out", integers.to("meta"), "int64 on the CPU, got torch.int64 on meta ("),
        wrong("temperature", torch.ones(4).requires_grad_(), "a number, got Tensor: Can't call"),
        wrong("top_k", torch.ones(4), "an integer, got an array of float32 ("),
    ]


MISTAKES = torch_mistakes()
