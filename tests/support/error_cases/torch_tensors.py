"""Errors in torch tensors; to be imported only where torch is installed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from fastsample import sample
from fastsample.engines.torch import operator
from fastsample.inputs.torch import as_tensor_rows
from tests.support.error_cases import (
    ROWS,
    ErrorCase,
    Follow,
    Foreign,
    Mended,
    logits_error,
    rows_error,
)


def tensor_error_cases() -> list[ErrorCase]:
    rows, ones, integers = torch.from_numpy(ROWS), torch.ones(3), torch.zeros(4, dtype=torch.int64)

    def on_a_device(mask: torch.Tensor, error: type[Exception], hint: str) -> ErrorCase:
        def call(mask: torch.Tensor) -> Any:
            options: dict[str, Any] = {"engine": "torch", "on_invalid": "mark", "temperature": 0}
            return sample(rows, mask=mask, **options).tokens.tolist()

        mended = Mended(f"`{hint}`", lambda: call(eval(hint, {"mask": mask})), [1] * 4)
        return ErrorCase(lambda: call(mask), error, "`mask` must", mended)

    def tensor_error(name: str, value: Any, part: str) -> ErrorCase:
        return ErrorCase(
            lambda: sample(rows, **{name: value}), TypeError, f"`{name}` must be {part}"
        )

    return [
        logits_error(
            ones.clone().requires_grad_(),
            TypeError,
            "must not require grad, got a tensor that",
            "logits.detach()",
            0,
        ),
        ErrorCase(
            lambda: sample(ones.to("meta"), engine="native"),
            TypeError,
            "`logits` must be on the CPU, got a tensor on meta (pass `logits.c",
        ),
        logits_error(
            ones.double(),
            TypeError,
            "must be float32, float16 or bfloat16, got torch.float64 (pass",
            "logits.float()",
            0,
        ),
        logits_error(
            ones.to_sparse(),
            TypeError,
            "must be dense, got torch.sparse_coo (pass",
            "logits.to_dense()",
            0,
        ),
        logits_error(
            Foreign(source=ones.long()),
            TypeError,
            "must be float32, float16 or bfloat16, got int64 (pass",
        ),
        rows_error(
            "mask", ones.to("meta").bool(), TypeError, "be on the CPU, got a tensor on meta (pas"
        ),
        ErrorCase(
            lambda: sample(rows, engine="torch", on_invalid="mark", margin=True),
            ValueError,
            "`margin` must be False for a tensor on its device, got True (pass `logits.cpu()`)",
        ),
        *(
            rows_error(
                "mask",
                torch.tensor(mask, dtype=dtype),
                TypeError,
                f"be bool, or int32 with a bit per token, got {str(dtype)[6:]} (pass `{hint}`)",
                Follow(hint, [1] * 4),
            )
            for mask, dtype, hint in (
                ([1, 1, 0], torch.float32, "mask.bool()"),
                ([0, 0, -torch.inf], torch.float32, "mask == 0"),
                ([0b011], torch.int64, "mask.int()"),
                ([2**32 - 5], torch.int64, "mask.int()"),
                ([0b011, 0, 0, 0], torch.uint8, "mask.view(torch.int32)"),
            )
        ),
        rows_error(
            "mask",
            torch.tensor([9, 0b011, 0, 0, 0], dtype=torch.uint8)[1:],
            TypeError,
            "be bool, or int32 with a bit per token, got uint8 (",
            Follow("np.asarray(mask).copy().view(np.int32)", [1] * 4),
        ),
        *(
            on_a_device(mask, error, hint)
            for mask, error, hint in (
                (torch.tensor([1, 1, 0]), TypeError, "mask.bool()"),
                (torch.tensor([0, 0, -torch.inf]), TypeError, "mask == 0"),
                (torch.tensor([1, 1, 0], dtype=torch.int32), ValueError, "mask.bool()"),
                (torch.tensor([0, 0, -(10**9)], dtype=torch.int32), ValueError, "mask == 0"),
                (torch.tensor([3, 0, 0], dtype=torch.int32), ValueError, "mask[..., :1]"),
            )
        ),
        rows_error(
            "bias", (ones, ones), TypeError, "hold lists of integers, got Tensor of shape (3,)"
        ),
        rows_error(
            "bias", (integers, ones.clone().requires_grad_()), TypeError, "have numbers as val"
        ),
        rows_error(
            "output",
            [ones.to("meta")] * 4,
            TypeError,
            "hold lists of integers, got Tensor at row 0: ",
        ),
        logits_error(
            torch.ones(1, 2, 3), ValueError, "must have shape (V,) or (B, V), got (1, 2, 3) (pass"
        ),
        ErrorCase(
            lambda: sample(rows, out=torch.zeros(1, dtype=torch.int64).expand(4)),
            ValueError,
            "`out` must have memory of its own for each element, got strides of (0,) bytes",
        ),
        rows_error(
            "out", integers, TypeError, "be a numpy.ndarray as `logits` is, got Tensor (leave"
        ),
        tensor_error("out", np.zeros(4, int), "a torch.Tensor as `logits` is, got ndarray ("),
        tensor_error("out", torch.zeros(4), "int64 on the CPU, got torch.float32 on cpu ("),
        tensor_error("out", integers.to("meta"), "int64 on the CPU, got torch.int64 on meta ("),
        tensor_error(
            "temperature", torch.ones(4).requires_grad_(), "a number, got Tensor: Can't call"
        ),
        tensor_error("top_k", torch.ones(4), "an integer, got an array of float32 ("),
    ]


def device_error_cases() -> list[ErrorCase]:
    """Errors in calls that stay on a device; "meta" stands for one."""
    rows = torch.from_numpy(ROWS).to("meta")
    n_rows, columns = rows.shape
    ones, integers = torch.ones(n_rows), torch.zeros(n_rows, dtype=torch.int64)

    def device_error(part: str, error: type[Exception] = TypeError, **kwargs: Any) -> ErrorCase:
        return ErrorCase(lambda: sample(rows, **kwargs), error, part)

    def of(tensor: Any, part: str, error: type[Exception] = TypeError) -> ErrorCase:
        return ErrorCase(lambda: sample(tensor), error, f"`logits` must {part}")

    on_mps = SimpleNamespace(device=SimpleNamespace(type="mps"))
    exact = "`reduction` must be \"exact\" for engines 'torch' and 'triton', got 'fixed' (another"
    return [
        ErrorCase(
            lambda: as_tensor_rows(on_mps, None),
            TypeError,
            "be on a device with float64",
        ),
        of(rows.clone().requires_grad_(), "not require grad, got a tensor that does (pass"),
        ErrorCase(
            lambda: sample(ones[None].to_sparse(), engine="torch", on_invalid="mark"),
            TypeError,
            "`logits` must be dense, got torch.sparse_coo (pass `logits.to_dense()`)",
        ),
        ErrorCase(
            lambda: sample(
                torch.nested.nested_tensor([ones], layout=torch.jagged),
                engine="torch",
                on_invalid="mark",
            ),
            TypeError,
            "`logits` must be dense, got a nested tensor (pass `torch.stack(logits.unbind())`)",
        ),
        of(rows.double(), "be float32, float16 or bfloat16, got torch.float64 (pass `logits.fl"),
        of(rows[None], "have shape (V,) or (B, V), got (1, ", ValueError),
        of(rows[:, :0], "have 1 to 2**22 tokens per row, got shape (4, 0) (the", ValueError),
        device_error(exact, ValueError, reduction="fixed"),
        device_error(
            "`temperature` must be a number, got a tensor of torch.bool (", temperature=ones > 0
        ),
        device_error("`top_k` must be an integer, got a tensor of torch.float32 (", top_k=ones),
        device_error(
            "`top_p` must be a scalar or have shape (B,) = (4,), got (2,)",
            ValueError,
            top_p=ones[:2],
        ),
        device_error(
            "`mask` must be bool, or int32 with a bit per token, got torch.float32", mask=ones
        ),
        device_error(
            f"`mask` must have shape ({columns},) or (4, {columns}), got (2, 1) (one",
            ValueError,
            mask=ones[:2, None] > 0,
        ),
        device_error(
            "`temperature` must not require grad, got a ", temperature=ones.clone().requires_grad_()
        ),
        device_error(
            "`seed` must be dense, got torch.sparse_coo (pass `seed.", seed=integers.to_sparse()
        ),
        device_error("`output` must hold integers, got torch.float32 (tokens", output=ones),
        device_error(
            "`output` must have one entry for each of the 4 rows, got 2 (",
            ValueError,
            output=(integers, integers),
        ),
        device_error(
            "`prompt` must have shape (B, T), B = 4, where it is a tensor, got (2, 2) (-1 fi",
            ValueError,
            prompt=integers.view(2, 2),
        ),
        device_error("`output` must have shape (B, T), B = 4, ", ValueError, output=integers),
        ErrorCase(
            lambda: sample(rows, logprob_tokens=integers.view(2, 2)),
            ValueError,
            "`logprob_tokens` must have shape (B, T), B = 4, where it is a tensor, got (2, 2) (",
            Mended(
                "-1 fills lists that are short",
                lambda: sample(
                    torch.from_numpy(ROWS),
                    temperature=0,
                    logprob_tokens=torch.tensor([[0, 1], [2, -1], [1, 1], [-1, -1]]),
                    engine="torch",
                    on_invalid="mark",
                ).tokens.tolist(),
                [2] * 4,
            ),
        ),
        device_error(
            "(tokens, values), got Tensor (add one that is as wide as the rows to `logits`)",
            bias=integers,
        ),
        device_error("(tokens, values), got Tensor and ndarray (", bias=(integers, np.ones(4))),
        device_error(
            "`bias` must have numbers as values, got torch.bool (", bias=(integers, ones > 0)
        ),
        device_error(
            "`bias` must have a value for each token, got (2,) values for (4,) tokens (two te",
            ValueError,
            bias=(integers, ones[:2]),
        ),
        device_error(
            "`out` must be torch.int64 on meta, as the tokens are, got torch.int64 on cpu",
            out=integers,
        ),
        device_error(
            "`out` must be torch.int64 on meta, as the tokens are, got ndarray (", out=np.zeros(4)
        ),
        device_error(
            "`out` must have the shape of the result, (4,), got (2,) (leave",
            ValueError,
            out=integers.to("meta")[:2],
        ),
        ErrorCase(with_an_old_torch, RuntimeError, "tensors on a device need torch 2.4 or later, "),
        ErrorCase(
            in_compiled_code, ValueError, "`seed` must be given in compiled code, got None ("
        ),
    ]


def in_compiled_code() -> None:
    """Ask for a fresh seed where torch says that a graph is being made."""
    with mock.patch.object(torch.compiler, "is_compiling", lambda: True):
        sample(torch.from_numpy(ROWS), engine="torch", on_invalid="mark")


def with_an_old_torch() -> None:
    """Register the operator as if torch had no way to."""
    with mock.patch.dict(torch.library.__dict__):
        del torch.library.custom_op
        operator.register()


ERROR_CASES = [*tensor_error_cases(), *device_error_cases()]
