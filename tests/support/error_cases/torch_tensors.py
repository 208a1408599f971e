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
    ROW,
    ROWS,
    ErrorCase,
    Follow,
    Foreign,
    call_error,
    logits_error,
    rows_error,
)
from tests.support.error_cases.following import Arguments, Mended

POSITION: dict[str, Any] = {"seed": 1, "position": 0, "stream": "row"}
ON_A_DEVICE: dict[str, Any] = {**POSITION, "engine": "torch", "on_invalid": "mark"}
STORED = "call it with a tensor on a device that stores values"


def tensor_error_cases() -> list[ErrorCase]:
    rows, ones, integers = torch.from_numpy(ROWS), torch.ones(3), torch.zeros(4, dtype=torch.int64)

    def on_a_device(mask: torch.Tensor, error: type[Exception], hint: str) -> ErrorCase:
        def call(mask: torch.Tensor) -> Any:
            options: dict[str, Any] = {"engine": "torch", "on_invalid": "mark", "temperature": 0}
            return sample(rows, mask=mask, **options).tokens.tolist()

        mended = Mended(f"`{hint}`", lambda: call(eval(hint, {"mask": mask})), [1] * 4)
        return ErrorCase(lambda: call(mask), error, "`mask` must", mended)

    def tensor_error(name: str, value: Any, part: str, **ways: Any) -> ErrorCase:
        return rows_error(name, value, TypeError, part, logits=rows, **ways)

    return [
        logits_error(
            ones.clone().requires_grad_(),
            TypeError,
            "must not require grad, got a tensor that",
            "logits.detach()",
            0,
        ),
        call_error(
            sample,
            TypeError,
            "`logits` must hold values, got a tensor on meta, which has none (call it with",
            ones.to("meta"),
            engine="native",
            temperature=0,
            to=(STORED, ones),
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
            means=np.ones(3, np.float32),
        ),
        rows_error(
            "mask",
            ones.to("meta").bool(),
            TypeError,
            "hold values, got a tensor on meta, which has none (call it with",
            to=(STORED, ones.bool()),
        ),
        call_error(
            sample,
            ValueError,
            "`margin` must be False for a tensor on its device, got True (",
            rows,
            **ON_A_DEVICE,
            margin=True,
            to=("leave `engine` out", Arguments(engine=None)),
        ),
        ErrorCase(
            lambda: sample(rows.to("meta"), margin=True),
            ValueError,
            "`margin` must be False for a tensor on its device, got True (pass `logits.cpu()`)",
            Mended(
                "pass `logits.cpu()`",
                lambda: sample(rows.cpu(), temperature=0, margin=True).margin.tolist(),
                [1.0] * 4,
            ),
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
            "bias",
            (ones, ones),
            TypeError,
            "hold lists of integers, got ndarray of shape (3,) and dtype float32 (pass",
            to=("pass integers", (torch.arange(3), ones)),
        ),
        rows_error(
            "bias",
            (torch.arange(3), ones.clone().requires_grad_()),
            TypeError,
            "not require grad, got a tensor that does (pass `bias[1].detach()`)",
            to=("bias[1].detach()", (torch.arange(3), ones)),
        ),
        rows_error(
            "output",
            [ones.to("meta")] * 4,
            TypeError,
            "hold values, got a tensor on meta, which has none at row 0 (call it with",
            to=(STORED, [torch.ones(3, dtype=torch.int64)] * 4),
        ),
        logits_error(
            torch.ones(1, 2, 3),
            ValueError,
            "must have shape (V,) or (B, V), got (1, 2, 3) (pass",
            "logits[:, -1]",
            [0],
        ),
        rows_error(
            "out",
            torch.zeros(1, dtype=torch.int64).expand(4),
            ValueError,
            "have memory of its own for each element, got strides of (0,) bytes",
            logits=rows,
        ),
        rows_error(
            "out", integers, TypeError, "be a numpy.ndarray as `logits` is, got Tensor (leave"
        ),
        tensor_error("out", np.zeros(4, int), "be a torch.Tensor as `logits` is, got ndarray ("),
        tensor_error("out", torch.zeros(4), "be int64 on the CPU, got torch.float32 on cpu ("),
        tensor_error("out", integers.to("meta"), "be int64 on the CPU, got torch.int64 on meta ("),
        tensor_error(
            "temperature",
            torch.ones(4).requires_grad_(),
            "not require grad, got a tensor that does (pass",
            means=[1.0] * 4,
        ),
        tensor_error(
            "top_k", torch.ones(4), "be an integer, got an array of float32 (", means=[1] * 4
        ),
    ]


def device_error_cases() -> list[ErrorCase]:
    """Errors in calls that stay on a device."""
    rows = torch.from_numpy(ROWS)
    on_meta = rows.to("meta")
    n_rows, columns = rows.shape
    ones, integers = torch.ones(n_rows), torch.zeros(n_rows, dtype=torch.int64)
    tokens = torch.arange(3).expand(4, 3)

    def device_error(part: str, error: type[Exception] = TypeError, **kwargs: Any) -> ErrorCase:
        if {"prompt", "output"} & set(kwargs):
            kwargs |= {"frequency_penalty": 1.5, "frequency_scope": "all"}
        return call_error(sample_on_device, error, part, **{"logits": rows, **kwargs})

    def of(tensor: Any, part: str, hint: str, error: type[Exception] = TypeError) -> ErrorCase:
        return call_error(
            sample_on_device, error, f"`logits` must {part}", tensor, means=rows, to=None
        )._replace(
            mended=Mended(
                f"`{hint}`",
                lambda: sample_on_device(eval(hint, {"torch": torch, "logits": tensor})).tolist(),
                [2] * 4,
            )
        )

    def meta_out_error(part: str, error: type[Exception], out: Any) -> ErrorCase:
        """An `out` that is not on the device of the logits; "meta" stands for one."""

        def shape_without() -> list[int]:
            return list(sample(on_meta).tokens.shape)

        mended = Mended("leave it out to get a new one", shape_without, [4])
        return ErrorCase(lambda: sample(on_meta, out=out), error, f"`out` must {part}", mended)

    on_mps = SimpleNamespace(device=SimpleNamespace(type="mps"))
    exact = "`reduction` must be \"exact\" for engines 'torch' and 'triton', got 'fixed' (another"
    ragged = torch.nested.nested_tensor(list(rows), layout=torch.jagged)
    return [
        ErrorCase(
            lambda: as_tensor_rows(on_mps, None),
            TypeError,
            "be on a device with float64",
            reason="needs a device without float64; on the CPU, `logits.cpu()` is the tensor",
        ),
        of(
            rows.clone().requires_grad_(),
            "not require grad, got a tensor that does (pass",
            "logits.detach()",
        ),
        of(rows.to_sparse(), "be dense, got torch.sparse_coo (pass", "logits.to_dense()"),
        of(ragged, "be dense, got a nested tensor (pass", "torch.stack(logits.unbind())"),
        of(
            rows.double(),
            "be float32, float16 or bfloat16, got torch.float64 (pass",
            "logits.float()",
        ),
        of(rows[:, None], "have shape (V,) or (B, V), got (4, 1", "logits[:, -1]", ValueError),
        device_error(
            "`logits` must have 1 to 2**22 tokens per row, got shape (4, 0) (the",
            ValueError,
            logits=rows[:, :0],
            to=("the last axis is the vocabulary", rows),
        ),
        device_error(
            exact,
            ValueError,
            reduction="fixed",
            to=('engine="native" for logits on the CPU', Arguments(engine="native")),
            means=Arguments(reduction="fixed"),
        ),
        device_error(
            "`temperature` must be a number, got a tensor of torch.bool (", temperature=ones > 0
        ),
        device_error(
            "`top_k` must be an integer, got a tensor of torch.float32 (", top_k=ones, means=1
        ),
        device_error(
            "`top_p` must be a scalar or have shape (B,) = (4,), got (2,)",
            ValueError,
            top_p=ones[:2],
            to=("one value per row of `logits`", ones),
        ),
        device_error(
            "`mask` must be bool, or int32 with a bit per token, got torch.float32",
            mask=torch.ones(3),
            means=np.ones(3, bool),
        ),
        device_error(
            f"`mask` must have shape ({columns},) or (4, {columns}), got (2, 1) (one",
            ValueError,
            mask=ones[:2, None] > 0,
            to=("one for all rows", torch.tensor([True, True, False])),
        ),
        device_error(
            "`temperature` must not require grad, got a ",
            temperature=ones.clone().requires_grad_(),
            means=1.0,
        ),
        device_error(
            "`seed` must be dense, got torch.sparse_coo (pass `seed.",
            seed=integers.to_sparse(),
            position=0,
            means=[0] * 4,
        ),
        device_error(
            "`output` must hold integers, got torch.float32 (pass integers",
            output=ones,
            to=("pass integers", torch.ones(4, 1, dtype=torch.int64)),
            means=[[1]] * 4,
        ),
        device_error(
            "`output` must have one entry for each of the 4 rows, got 2 (",
            ValueError,
            output=(integers, integers),
            to=("one per row of `logits`, in their order", [integers[:1]] * 4),
        ),
        device_error(
            "`prompt` must have shape (B, T), B = 4, where it is a tensor, got (2, 2) (-1 fi",
            ValueError,
            prompt=integers.view(2, 2),
            to=("-1 fills lists that are short", torch.tensor([[0, 0], [0, 0], [-1, 0], [-1, -1]])),
            means=[[0, 0], [0, 0], [0], []],
        ),
        device_error(
            "`logprob_tokens` must have shape (B, T), B = 4, where it is a tensor, got (2, 2) (",
            ValueError,
            logprob_tokens=integers.view(2, 2),
            to=(
                "-1 fills lists that are short",
                torch.tensor([[0, 1], [2, -1], [1, 1], [-1, -1]]),
            ),
            means=[[0, 1], [2], [1, 1], []],
        ),
        device_error(
            "`output` must have shape (B, T), B = 4, ",
            ValueError,
            output=integers,
            to=("-1 fills lists that are short", torch.tensor([[0], [0], [0], [-1]])),
            means=[[0], [0], [0], []],
        ),
        *(
            device_error(
                f"`bias` must be a tuple of two tensors (tokens, values), got {got} (",
                bias=bias,
                to=("add one that is as wide as the rows to `logits`", Arguments(bias=None)),
            )
            for bias, got in ((integers, "Tensor"), ((integers, np.ones(4)), "Tensor and ndarray"))
        ),
        device_error(
            "`bias` must have numbers as values, got torch.bool (",
            bias=(tokens, tokens > 0),
            to=("0 changes nothing", (tokens, tokens * 0)),
            means=None,
        ),
        device_error(
            "`bias` must have a value for each token, got (2,) values for (4, 3) tokens (two te",
            ValueError,
            bias=(tokens, ones[:2]),
            to=("two tensors of one shape", (tokens, tokens * 9.0)),
            means={1: 9.0, 2: 18.0},
        ),
        meta_out_error("be torch.int64 on meta, as the tokens are, got torch", TypeError, integers),
        meta_out_error("be torch.int64 on meta, as the tokens are, got nda", TypeError, ROW),
        meta_out_error(
            "have the shape of the result, (4,), got (2,) (leave",
            ValueError,
            integers.to("meta")[:2],
        ),
        ErrorCase(
            with_an_old_torch,
            RuntimeError,
            "tensors on a device need torch 2.4 or later, ",
            Mended(
                "pass `logits.cpu()`",
                lambda: sample(rows.cpu(), temperature=0).tokens.tolist(),
                [2] * 4,
            ),
        ),
        ErrorCase(
            lambda: in_compiled_code(None),
            ValueError,
            "`seed` must be given in compiled code, got None (",
            Mended(
                "an integer or a tensor",
                lambda: in_compiled_code(1),
                lambda: sample(
                    rows, seed=1, position=0, stream="row", engine="reference"
                ).tokens.tolist(),
            ),
        ),
    ]


def sample_on_device(logits: Any, engine: str | None = None, **arguments: Any) -> Any:
    """The tokens of a call of an engine of tensors; the reference gets lists of lists."""
    options = ON_A_DEVICE if engine is None else {**POSITION, "engine": engine}
    return sample(logits, **{**options, **arguments}).tokens


def in_compiled_code(seed: int | None) -> list[int]:
    """Draw where torch says that a graph is being made."""
    with mock.patch.object(torch.compiler, "is_compiling", lambda: True):
        place = POSITION if seed else {}
        result = sample(torch.from_numpy(ROWS), engine="torch", on_invalid="mark", **place)
        return result.tokens.tolist()


def with_an_old_torch() -> None:
    """Register the operator as if torch had no way to."""
    with mock.patch.dict(torch.library.__dict__):
        del torch.library.custom_op
        operator.register()


ERROR_CASES = [*tensor_error_cases(), *device_error_cases()]
