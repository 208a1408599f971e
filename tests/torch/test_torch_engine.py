"""The torch engine gives native's bits: random requests, recorded rows, 64-bit arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from fastsample.engines import reference
from fastsample.verification.flush import flushing
from tests.support.against_native import (
    CHAINS,
    compare_chain,
    compare_largest,
    compare_recorded,
    compare_requests,
)
from tests.support.engines import Engine
from tests.support.rounding_modes import flushing_operands, flushing_results

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from fastsample.engines.torch import draw, int64_math, mass, ordinal  # noqa: E402
from fastsample.engines.torch.full_vocab_path import AllTokens  # noqa: E402
from fastsample.engines.torch.topk_path import TopTokens  # noqa: E402

TORCH = Engine("torch")
COLUMNS = (1, 2, 63, 64, 65, 128, 200, 1000, 3001)


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    """Small rows: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# ---------------------------------------------------------------- requests


def test_requests() -> None:
    compare_requests(TORCH, (71, 0), COLUMNS, 5_000)


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(1, 5))
def test_more_requests(part: int) -> None:
    compare_requests(TORCH, (71, part), COLUMNS, 25_000)


# ---------------------------------------------------------------- large vocabularies


@pytest.mark.parametrize("chain", CHAINS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_every_path_on_wide_rows(chain: dict[str, Any], dtype: Any) -> None:
    compare_chain(TORCH, chain, dtype)


@pytest.mark.nightly
@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_the_largest_vocabulary(chain: dict[str, Any]) -> None:
    compare_largest(TORCH, chain)


def test_recorded_rows() -> None:
    compare_recorded(TORCH, 73, 64)


@pytest.mark.nightly
def test_recorded_rows_often() -> None:
    compare_recorded(TORCH, 74, 1_000)


# ---------------------------------------------------------------- 64-bit integers


def as_int64(numbers: Sequence[int]) -> torch.Tensor:
    return torch.from_numpy(np.array(numbers, np.uint64).view(np.int64))


EDGES = (0, 1, 2**16 - 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63, 2**64 - 1)


def test_uniform_is_philox() -> None:
    rng = np.random.default_rng(75)
    words = [int(word) for word in rng.integers(0, 2**64, 300, dtype=np.uint64)]
    seeds, positions = [*EDGES, *words], [*reversed(EDGES), *words[::-1]]
    streams = [number & draw.WORD for number in seeds]
    places = list(zip(seeds, positions, streams, strict=True))
    for purpose in (0, 3):
        high, low = draw.uniform(*map(as_int64, zip(*places, strict=True)), purpose)
        expected = [reference.uniform(*place, purpose) for place in places]
        found = [(a << 32) + b for a, b in zip(high.tolist(), low.tolist(), strict=True)]
        assert found == expected


def test_products_are_exact() -> None:
    rng = np.random.default_rng(76)
    us = [*EDGES, *(int(u) for u in rng.integers(0, 2**64, 500, dtype=np.uint64))]
    totals = [1, 2, 2**31 - 1, 2**31, 2**40, 2**61 + 12345, 2**62 - 1, 2**62]
    totals += [int(total) for total in rng.integers(1, 2**62, 40)]
    shares = [0, 1, 2**30, 2**31 - 2**10, 2**31]
    for total in totals:
        w = torch.tensor([total])
        words = torch.tensor([u >> 32 for u in us]), torch.tensor([u & draw.WORD for u in us])
        assert int64_math.mul_high(words, w).tolist() == [u * total >> 64 for u in us]
        targets = int64_math.nucleus_target(torch.tensor(shares), w).tolist()
        assert targets == [max(1, -(-share * total >> 31)) for share in shares]


# ---------------------------------------------------------------- numbers


def test_masses_are_the_reference_s() -> None:
    rng = np.random.default_rng(77)
    logits = np.concatenate(
        [-rng.exponential(9, 200_000), -np.arange(0, 70, 0.25), [-np.inf, 0]]
    ).astype(np.float32)
    for temperature in (1.0, 0.3, 1e-30, 7.0, 3e38):
        expected = reference.masses(logits, np.float32(0), temperature)[1]
        scale = mass.scale_of(torch.tensor([[temperature]], dtype=torch.float64))
        y = mass.exponent2(torch.from_numpy(logits)[None], mass.Scaling(torch.zeros(1, 1), scale))
        found = mass.masses(y)[0].numpy().view(np.uint64)
        assert np.array_equal(found, expected), temperature


def test_logarithms_are_the_reference_s() -> None:
    numbers = np.exp(np.random.default_rng(78).uniform(-60, 60, 100_000))
    found = mass.ln(torch.from_numpy(numbers)).numpy()
    assert found.tobytes() == reference.ln(numbers).tobytes()


def test_parameters_round_as_the_reference_s() -> None:
    numbers = [0.8, 1e-40, 2.0**-150, 2.0**-149, 2.0**-126, 1 + 2.0**-24, 3e38, 1e300, -1e-41]
    found = mass.to_float32(torch.tensor(numbers, dtype=torch.float64)).tolist()
    with np.errstate(over="ignore"):
        assert found == [reference.to_float32(number) for number in numbers]


@pytest.mark.parametrize("mode", [nullcontext, flushing, flushing_results, flushing_operands])
def test_denormals_are_read_as_0(mode: Any) -> None:
    row = np.float32([1e-40, -1e-40, -0.0, 2.0**-126, -(2.0**-126), np.nan, np.inf, -np.inf, 3])
    row = np.resize(row, 100_000)  # several threads, whose modes may differ
    with mode():
        found = ordinal.read(torch.from_numpy(row)[None], len(row))[0, : len(row)].numpy()
    assert found.tobytes() == reference.read(row).tobytes()


def test_top_tokens_are_in_order_among_ties() -> None:
    rng = np.random.default_rng(79)
    for size in (1, 64, 65, 5000):
        row = rng.integers(0, 3, size).astype(np.float32)
        for count in {1, min(7, size), min(200, size), size}:
            rows = ordinal.rows_of(ordinal.read(torch.from_numpy(row)[None], size))
            tokens, _ = ordinal.top_tokens(rows, count)
            assert tokens[0].tolist() == reference.order(row)[:count].tolist()


@pytest.mark.parametrize("size", [2, 128, 4096])
@pytest.mark.parametrize("topk", [False, True])
def test_draws_at_the_border_between_two_tokens(size: int, topk: bool) -> None:
    """Equal masses: the first U of a token is its own, and the one before is the token before's."""
    rows = ordinal.rows_of(ordinal.read(torch.zeros(1, size), size))
    tokens = TopTokens(rows, size) if topk else AllTokens(rows)
    for token in (1, size // 2, size - 1):
        u = token * 2**64 // size
        words = torch.tensor([[u >> 32, (u - 1) >> 32]]), torch.tensor([[0, draw.WORD]])
        drawn, total = tokens.draw(tokens.all, words)
        assert drawn.tolist() == [[token, token - 1]]
        assert total.tolist() == [[size * 2**40]]
