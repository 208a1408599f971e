"""torch CPU tensors are rows, parameters and destinations; tokens come back as tensors."""

from __future__ import annotations

import numpy as np
import pytest

from fastsample import Sampler, sample
from fastsample.inputs.logits import as_rows

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

VALUES = np.random.default_rng(5).normal(size=(4, 50)).astype(np.float32) * 3


@pytest.fixture
def logits() -> torch.Tensor:
    return torch.from_numpy(VALUES.copy())


def test_memory_is_shared(logits: torch.Tensor) -> None:
    rows = as_rows(logits[::2])
    assert rows.torch
    assert rows.values.ctypes.data == logits.data_ptr()
    assert rows.values.strides == (400, 4)


def test_tokens_of_rows_are_a_tensor(logits: torch.Tensor) -> None:
    result = sample(logits, seed=3, position=1, stream="row")
    assert result.tokens.dtype == torch.int64
    assert result.tokens.device == logits.device
    assert (
        result.tokens.tolist() == sample(VALUES, seed=3, position=1, stream="row").tokens.tolist()
    )


def test_a_token_of_one_row(logits: torch.Tensor) -> None:
    tokens = sample(logits[1], seed=3, position=1).tokens
    assert tokens.shape == ()
    assert tokens.dtype == torch.int64


def test_no_rows() -> None:
    tokens = sample(torch.zeros(0, 5)).tokens
    assert tokens.shape == (0,)
    assert tokens.dtype == torch.int64


def test_sampler(logits: torch.Tensor) -> None:
    by_tensor, by_array = (Sampler(seed=9, stream="row") for _ in range(2))
    assert type(by_tensor(logits[0])) is int
    by_array(VALUES[0])
    by_tensor.reset()
    by_array.reset()
    for _ in range(5):
        tokens = by_tensor(logits)
        assert isinstance(tokens, torch.Tensor)
        assert tokens.tolist() == by_array(VALUES).tolist()


def test_parameters_by_row(logits: torch.Tensor) -> None:
    settings = {
        "temperature": [0.5, 0.0, 1.0, 2.0],
        "top_k": [3, -1, 0, 7],
        "top_p": [0.5, 0.75, 1.0, 0.25],
        "seed": [1, 2, 3, 4],
        "position": [0, 1, 2, 3],
        "stream": [3, 2, 1, 0],
    }
    tensors = {name: torch.tensor(values) for name, values in settings.items()}
    assert sample(logits, **tensors).tokens.tolist() == sample(VALUES, **settings).tokens.tolist()


def test_int64_seeds_are_bits(logits: torch.Tensor) -> None:
    seeds = torch.tensor([-1, -2, -3, -4])
    result = sample(logits, seed=seeds, position=0)
    assert result.seed.tolist() == [2**64 - 1, 2**64 - 2, 2**64 - 3, 2**64 - 4]
    assert sample(logits[0], seed=seeds[0], position=0).seed == 2**64 - 1


def test_out(logits: torch.Tensor) -> None:
    out = torch.full((8,), -5)
    result = sample(logits, seed=3, position=1, stream="row", out=out[::2])
    assert result.tokens.data_ptr() == out.data_ptr()
    assert out[::2].tolist() == sample(VALUES, seed=3, position=1, stream="row").tokens.tolist()
    assert out[1::2].tolist() == [-5] * 4


def test_logits_do_not_change(logits: torch.Tensor) -> None:
    sample(logits, temperature=0.7, top_k=9, top_p=0.9, min_p=0.01)
    assert torch.equal(logits, torch.from_numpy(VALUES))


def test_inference_tensors() -> None:
    with torch.inference_mode():
        made = torch.from_numpy(VALUES) * 1
    assert sample(made, temperature=0).tokens.tolist() == VALUES.argmax(1).tolist()
