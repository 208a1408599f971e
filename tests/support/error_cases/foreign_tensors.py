"""Errors in tensors of all kinds, in every argument; to be imported only with torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.masked import masked_tensor

from fastsample import kept_set, reduce_sum, sample, softmax, top_k
from tests.support.error_cases import ROWS, ErrorCase, call_error, rows_error, tokens_of_sampler
from tests.support.error_cases.following import Mended
from tests.support.error_cases.torch_tensors import POSITION, sample_on_device

Kind = tuple[str, Callable[[torch.Tensor], Any]]

FLOATS = "be float32, float16 or bfloat16, got"
PLAIN: list[Kind] = [
    ("not require grad, got a tensor that does", lambda x: x.clone().requires_grad_()),
    ("not require grad, got a tensor that does", torch.nn.Parameter),
    ("be dense, got torch.sparse_coo", lambda x: x.to_sparse()),
    ("be dense, got torch.sparse_csr", lambda x: x.to_sparse_csr()),
    ("be dense, got torch._mkldnn", lambda x: x.to_mkldnn()),
    ("be dense, got a nested tensor", lambda x: torch.nested.nested_tensor(list(x))),
    (
        "be dense, got a nested tensor",
        lambda x: torch.nested.nested_tensor(list(x), layout=torch.jagged),
    ),
    (
        "be of plain numbers, got a quantized tensor of torch.quint8",
        lambda x: torch.quantize_per_tensor(x, 1.0, 0, torch.quint8),
    ),
    ("be a plain tensor, got a MaskedTensor", lambda x: masked_tensor(x, x == x)),
    (
        "not require grad, got a tensor that does",
        lambda x: x.clone().requires_grad_().to_sparse(),
    ),
]
"""Kinds that no engine reads."""
OF_HOST: list[Kind] = [
    ("be stored as it is, got a view with signs changed", lambda x: torch._neg_view(-x)),
    ("be stored as it is, got a view", lambda x: torch.complex(x, -x).conj().imag),
]
ZEROS: Kind = (
    "be a tensor that NumPy reads, got one of torch.float32: Cannot convert a ZeroTensor",
    lambda x: torch._efficientzerotensor(x.shape),
)
"""Kinds that the engines of tensors read, and NumPy does not."""
DTYPES: list[Kind] = [
    (f"{FLOATS} torch.float8_e4m3fn", lambda x: x.to(torch.float8_e4m3fn)),
    (f"{FLOATS} torch.float8_e5m2", lambda x: x.to(torch.float8_e5m2)),
    (f"{FLOATS} torch.complex64", lambda x: torch.complex(x, x)),
    (f"{FLOATS} torch.complex64", lambda x: torch.complex(x, x).conj()),
    (f"{FLOATS} torch.int64", lambda x: x.long()),
]
LISTS: list[Kind] = [
    ("be a NumPy array, a torch CPU tensor or an array with __dlpack__, got list", list),
    ("be a NumPy array, a torch CPU tensor or an array with __dlpack__, got tuple", tuple),
    (
        "be a NumPy array, a torch CPU tensor or an array with __dlpack__, got list",
        lambda x: list(x.bfloat16().requires_grad_()),
    ),
]
ROWS_TENSOR = torch.from_numpy(ROWS)


def logits_cases() -> Iterator[ErrorCase]:
    for part, make in (*PLAIN, *OF_HOST, *DTYPES, *LISTS):
        tensor = make(ROWS_TENSOR)
        yield call_error(
            sample, TypeError, f"`logits` must {part}", tensor, temperature=0, means=ROWS
        )
    for part, make in (*PLAIN, *DTYPES):
        tensor = make(ROWS_TENSOR)
        yield call_error(sample_on_device, TypeError, f"`logits` must {part}", tensor, means=ROWS)
    for function, others in ((kept_set, {}), (softmax, {}), (top_k, {"k": 2})):
        for part, make in (PLAIN[0], PLAIN[2], OF_HOST[0], LISTS[0]):
            tensor = make(ROWS_TENSOR)
            part = f"`logits` must {part}"
            yield call_error(function, TypeError, part, tensor, **others, means=ROWS)
    for part, make in (*PLAIN, *OF_HOST):
        yield call_error(reduce_sum, TypeError, f"`x` must {part}", make(ROWS_TENSOR), means=ROWS)
    part, zeros = f"`logits` must {ZEROS[0]}", ZEROS[1](ROWS_TENSOR)
    yield call_error(sample, TypeError, part, zeros, temperature=0, means=0 * ROWS)
    # Rows of several lengths: the short ones end with tokens of -inf.
    ragged = torch.nested.nested_tensor([ROWS_TENSOR[0], ROWS_TENSOR[0, :2]], layout=torch.jagged)
    padded = np.float32([[1, 2, 3], [1, 2, -np.inf]])
    yield call_error(
        sample,
        TypeError,
        "`logits` must be dense, got a nested tensor (pass `torch.nested.to_padded_tensor(",
        ragged,
        temperature=0,
        means=padded,
    )
    masked = masked_tensor(ROWS_TENSOR, ROWS_TENSOR < 3)
    yield call_error(
        sample,
        TypeError,
        "`logits` must be a plain tensor, got a MaskedTensor (pass `logits.to_tensor(-torch.inf)`)",
        masked,
        temperature=0,
        means=np.where(ROWS < 3, ROWS, -np.float32(np.inf)),
    )
    yield call_error(
        sample,
        TypeError,
        "`logits` must be of plain numbers, got a tensor of torch.bits8",
        torch.zeros(3, dtype=torch.uint8).view(torch.bits8),
        temperature=0,
        to=("pass the numbers that its bits stand for", ROWS_TENSOR),
    )


ALLOWED = torch.tensor([[1, 1, 0]] * 4)
NO_LAST = np.array([True, True, False])
MASKS: list[Kind] = [
    ("be dense, got torch.sparse_coo", lambda x: x.bool().to_sparse()),
    ("be dense, got torch.sparse_csr", lambda x: x.bool().to_sparse_csr()),
    ("be dense, got a nested tensor", lambda x: torch.nested.nested_tensor(list(x.bool()))),
    (
        "be dense, got a nested tensor",
        lambda x: torch.nested.nested_tensor(list(x.bool()), layout=torch.jagged),
    ),
    ("be a plain tensor, got a MaskedTensor", lambda x: masked_tensor(x.bool(), x == x)),
    (
        "be of plain numbers, got a quantized tensor of torch.qint8",
        lambda x: torch.quantize_per_tensor(x.float(), 1.0, 0, torch.qint8),
    ),
]
MASKS_OF_HOST: list[Kind] = [
    ("be a tensor that NumPy reads, got one of torch.float8", lambda x: x.to(torch.float8_e5m2)),
    ("be stored as it is, got a view with signs changed", lambda x: torch._neg_view(-x.float())),
    (
        "be bool, or int32 with a bit per token, got bfloat16 (pass `mask.bool()`)",
        lambda x: x.bfloat16(),
    ),
    (
        "be bool, or int32 with a bit per token, got bfloat16 (pass `mask == 0`)",
        lambda x: torch.where(x > 0, 0, -torch.inf).bfloat16(),
    ),
    (
        "be bool, or int32 with a bit per token, got float32 (pass `mask.bool()`)",
        lambda x: x.float().requires_grad_(),
    ),
]


def argument_cases() -> Iterator[ErrorCase]:
    for part, make in (*MASKS, *MASKS_OF_HOST):
        yield rows_error("mask", make(ALLOWED), TypeError, part, means=NO_LAST)
    for part, make in MASKS:
        mask = make(ALLOWED)
        part = f"`mask` must {part}"
        yield call_error(sample_on_device, TypeError, part, ROWS_TENSOR, mask=mask, means=NO_LAST)
    shares = torch.tensor([0.0, 1.0, 2.0, 1.0])
    for part, make in (PLAIN[0], PLAIN[2], PLAIN[7], PLAIN[8], *OF_HOST):
        yield rows_error("temperature", make(shares), TypeError, part, means=[0, 1, 2, 1])
    yield rows_error(
        "temperature",
        shares.to(torch.float8_e5m2),
        TypeError,
        "be a tensor that NumPy reads, got one of torch.float8_e5m2",
        means=[0, 1, 2, 1],
    )
    for part, make in (PLAIN[0], PLAIN[2], PLAIN[7], PLAIN[8]):
        part = f"`temperature` must {part}"
        value = make(shares)
        yield call_error(
            sample_on_device, TypeError, part, ROWS_TENSOR, temperature=value, means=[0, 1, 2, 1]
        )
    values = torch.tensor([0.0, 9.0, 1.0])
    for part, make in (PLAIN[0], PLAIN[2], PLAIN[7], PLAIN[8], *OF_HOST):
        bias = (torch.arange(3), make(values))
        yield rows_error("bias", bias, TypeError, part, means={1: 9.0, 2: 1.0})
    tokens = torch.tensor([[1, 2], [0, 1], [2, 2], [0, 0]])
    for part, make in (MASKS[0], MASKS[2], MASKS[3], MASKS[4]):
        history = make(Integers(tokens))
        for name in ("prompt", "output"):
            yield rows_error(name, history, TypeError, part, means=tokens.tolist())
    short = torch.nested.nested_tensor([torch.tensor(one) for one in ([1, 2], [0], [2], [0])])
    yield rows_error(
        "output",
        short,
        TypeError,
        "be dense, got a nested tensor (pass `[part.tolist() for part in output.unbind()]`)",
        means=[[1, 2], [0], [2], [0]],
    )
    yield rows_error(
        "output",
        [tokens[0], tokens[1].to_sparse(), tokens[2], tokens[3].to_sparse()],
        TypeError,
        "be dense, got torch.sparse_coo at row 1 (pass `output[1].to_dense()`)",
        means=tokens.tolist(),
    )


class Integers:
    """Tokens as the makers of masks take them: without a conversion to bool."""

    def __init__(self, tokens: torch.Tensor) -> None:
        self.tokens = tokens

    def bool(self) -> torch.Tensor:
        return self.tokens

    def __eq__(self, _: object) -> torch.Tensor:  # type: ignore[override]
        return torch.ones_like(self.tokens, dtype=torch.bool)

    __hash__ = None  # type: ignore[assignment]


def without_values() -> Iterator[ErrorCase]:
    """Tensors without values, which only another tensor can replace."""
    with FakeTensorMode():
        fake = torch.ones(4, 3)
    other = "call it with a tensor that has them"
    for function in (sample, sample_on_device):
        yield call_error(
            function,
            TypeError,
            "`logits` must hold values, got a FakeTensor, which has none (call it",
            fake,
            **({"temperature": 0} if function is sample else {}),
            to=(other, ROWS_TENSOR),
        )
    on_meta = ROWS_TENSOR.to("meta")
    stored = "call it with a tensor on a device that stores values"
    for name, value, right in (
        ("mask", on_meta > 0, torch.from_numpy(NO_LAST)),
        ("temperature", on_meta[:, 0], torch.tensor([0.0, 1.0, 2.0, 1.0])),
        ("output", on_meta.long(), torch.tensor([[1]] * 4)),
    ):
        part = "hold values, got a tensor on meta, which has none"
        means = right.tolist() if name == "output" else right
        yield rows_error(name, value, TypeError, part, to=(stored, right), means=means)
        yield call_error(
            sample_on_device,
            TypeError,
            f"`{name}` must {part}",
            ROWS_TENSOR,
            **{name: value},
            to=(stored, right),
            means=means,
        )
    yield call_error(
        tokens_of_sampler,
        TypeError,
        "`temperature` must be a number, got Tensor",
        temperature=on_meta[0, 0],
        to=(stored, 2.0),
    )


def under_vmap(**options: Any) -> list[list[int]]:
    """Draw from each of two batches, where torch.vmap has them as one."""
    batches = torch.stack([ROWS_TENSOR, -ROWS_TENSOR])
    return torch.vmap(lambda logits: sample(logits, **POSITION, **options).tokens)(batches).tolist()


def transformed() -> Iterator[ErrorCase]:
    right = [sample(rows, **POSITION, engine="reference").tokens.tolist() for rows in (ROWS, -ROWS)]
    yield ErrorCase(
        under_vmap,
        TypeError,
        "`logits` must be a plain tensor, got one of a transform, as in torch.vmap (call it outsi",
        Mended(
            'sample() also takes it with engine="torch" and on_invalid="mark"',
            lambda: under_vmap(engine="torch", on_invalid="mark"),
            right,
        ),
    )


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of torch, about nested, masked and quantized tensors
    ERROR_CASES = [*logits_cases(), *argument_cases(), *without_values(), *transformed()]
