"""Sections 1, 3, 4, 6 and 7 in Triton: each function alone, against the reference.

Without a GPU the kernels run in Triton's interpreter, which conftest.py asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fastsample.engines import reference

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
pytestmark = pytest.mark.triton

import triton.language as tl  # noqa: E402

from fastsample.engines.torch import mass as torch_mass  # noqa: E402
from fastsample.engines.torch import ordinal as torch_ordinal  # noqa: E402
from fastsample.engines.triton import draw, int64_math, mass, ordinal  # noqa: E402
from fastsample.engines.triton.launch import bits_of, launch  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def on(array: Any) -> torch.Tensor:
    """A tensor where the kernels run."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(DEVICE)


def run(kernel: Any, out: torch.Tensor, *args: Any, size: int | None = None) -> np.ndarray:
    """Run a kernel of one program over entire tensors, and return what it wrote."""
    size = out.numel() if size is None else size
    launch(kernel, (1,), out, *args, size, triton.next_power_of_2(size))
    return out.cpu().numpy()


@triton.jit
def write_ordinals(out, values, step, vocabulary, size, block: tl.constexpr):
    at = tl.arange(0, block)
    tl.store(out + at, ordinal.ordinals_at(values, step, at, vocabulary), mask=at < size)


@triton.jit
def write_logits(out, ordinals, size, block: tl.constexpr):
    at = tl.arange(0, block)
    ordinals = tl.load(ordinals + at, mask=at < size, other=0)
    tl.store(out + at, ordinal.logit_of(ordinals), mask=at < size)


@triton.jit
def write_masses(out, ordinals, scales, size, block: tl.constexpr):
    at = tl.arange(0, block)
    ordinals = tl.load(ordinals + at, mask=at < size, other=0)
    y = mass.exponent2(ordinals, tl.max(ordinals), tl.load(scales))
    tl.store(out + at, mass.mass(y), mask=at < size)


@triton.jit
def write_products(products, targets, us, shares, totals, size, block: tl.constexpr):
    at = tl.arange(0, block)
    u = tl.load(us + at, mask=at < size, other=0).to(tl.uint64)
    share = tl.load(shares + at, mask=at < size, other=0)
    total = tl.load(totals + at, mask=at < size, other=0)
    tl.store(products + at, int64_math.mul_high(u, total), mask=at < size)
    tl.store(targets + at, int64_math.nucleus_target(share, total), mask=at < size)


@triton.jit
def write_uniforms(out, seeds, positions, streams, size, block: tl.constexpr):
    at = tl.arange(0, block)
    seed = tl.load(seeds + at, mask=at < size, other=0)
    position = tl.load(positions + at, mask=at < size, other=0)
    stream = tl.load(streams + at, mask=at < size, other=0)
    tl.store(out + at, draw.uniform(seed, position, stream, 0).to(tl.int64), mask=at < size)


@triton.jit
def write_logarithms(out, values, size, block: tl.constexpr):
    at = tl.arange(0, block)
    tl.store(out + at, mass.ln(tl.load(values + at, mask=at < size, other=1.0)), mask=at < size)


@triton.jit
def write_parameters(rounded, scales, values, size, block: tl.constexpr):
    at = tl.arange(0, block)
    value = mass.to_float32(tl.load(values + at, mask=at < size, other=1.0))
    tl.store(rounded + at, value, mask=at < size)
    tl.store(scales + at, mass.scale_of(tl.where(value > 0, value, 1.0)), mask=at < size)


# ---------------------------------------------------------------- logits

ROW = [1e-40, -1e-40, -0.0, 0.0, 2.0**-126, -(2.0**-126), np.inf, -np.inf, 3, -3.5, 3.4e38, -3.4e38]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("step", [1, 3])
def test_ordinals_are_torch_s(dtype: str, step: int) -> None:
    noise = np.random.default_rng(90).normal(size=500) * 8
    values = torch.tensor([*ROW, *noise]).to(getattr(torch, dtype))
    strided = values.repeat_interleave(step).to(DEVICE)
    read = torch_ordinal.read(values[None], 300)[0]
    expected = torch_ordinal.ordinals(read)
    out = torch.empty(len(read), dtype=torch.int32, device=DEVICE)
    found = run(write_ordinals, out, bits_of(strided), step, 300)
    assert found.tolist() == expected.tolist()
    logits = run(write_logits, torch.empty(len(read), device=DEVICE), on(found))
    assert logits.tobytes() == read.numpy().tobytes()


def test_every_nan_ordinals_above_every_number() -> None:
    bits = np.array([0x7F800001, 0x7FC00000, 0x7FFFFFFF, -1, -0x7FFFFF, -0x400000], np.int32)
    out = torch.empty(len(bits), dtype=torch.int32, device=DEVICE)
    found = run(write_ordinals, out, on(bits), 1, len(bits))
    assert np.isnan(bits.view(np.float32)).all()
    assert (found > ordinal.PLUS_INF.value).all()


# ---------------------------------------------------------------- masses and draws


@pytest.mark.parametrize("temperature", [1.0, 0.3, 1e-30, 7.0, 3e38])
def test_masses_are_the_reference_s(temperature: float) -> None:
    rng = np.random.default_rng(77)
    logits = np.concatenate(
        [-rng.exponential(9, 60_000), -np.arange(0, 70, 0.25), [-np.inf, 0, -3.4e38]]
    ).astype(np.float32)
    expected = reference.masses(logits, np.float32(0), temperature)[1]
    ordinals = torch_ordinal.ordinals(torch.from_numpy(logits))
    scale = torch_mass.scale_of(torch.tensor([temperature], dtype=torch.float64))
    out = torch.empty(len(logits), dtype=torch.int64, device=DEVICE)
    found = run(write_masses, out, ordinals.to(DEVICE), scale.to(DEVICE))
    assert np.array_equal(found.view(np.uint64), expected)


EDGES = (0, 1, 2**16 - 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63, 2**64 - 1)


def as_int64(numbers: Sequence[int]) -> torch.Tensor:
    return on(np.array(numbers, np.uint64).view(np.int64))


def test_products_are_exact() -> None:
    rng = np.random.default_rng(76)
    words = [int(word) for word in rng.integers(0, 2**64, 60, dtype=np.uint64)]
    totals = [1, 2, 2**31 - 1, 2**31, 2**40, 2**61 + 12345, 2**62 - 1]
    totals += [int(total) for total in rng.integers(1, 2**62, 20)]
    shares = [0, 1, 2**30, 2**31 - 2**10, 2**31]
    cases = [(u, shares[i % 5], w) for i, u in enumerate([*EDGES, *words]) for w in totals]
    us, some, of = zip(*cases, strict=True)
    products, targets = (
        torch.empty(len(cases), dtype=torch.int64, device=DEVICE) for _ in range(2)
    )
    run(
        write_products,
        products,
        targets,
        as_int64(us),
        as_int64(some),
        as_int64(of),
        size=len(cases),
    )
    assert products.tolist() == [u * w >> 64 for u, _, w in cases]
    assert targets.tolist() == [max(1, -(-share * w >> 31)) for _, share, w in cases]


def test_uniform_is_philox() -> None:
    rng = np.random.default_rng(75)
    words = [int(word) for word in rng.integers(0, 2**64, 50, dtype=np.uint64)]
    seeds, positions = [*EDGES, *words], [*reversed(EDGES), *words[::-1]]
    streams = [number & (2**32 - 1) for number in seeds]
    places = [as_int64(part) for part in (seeds, positions, streams)]
    out = torch.empty(len(seeds), dtype=torch.int64, device=DEVICE)
    found = run(write_uniforms, out, *places).view(np.uint64).tolist()
    assert found == [reference.uniform(*p) for p in zip(seeds, positions, streams, strict=True)]


# ---------------------------------------------------------------- parameters


def test_logarithms_are_the_reference_s() -> None:
    values = np.exp(np.random.default_rng(78).uniform(-60, 60, 30_000))
    found = run(
        write_logarithms, torch.empty(len(values), dtype=torch.float64, device=DEVICE), on(values)
    )
    assert found.tobytes() == reference.ln(values).tobytes()


def test_parameters_are_torch_s() -> None:
    values = [0.8, 1e-40, 2.0**-150, 2.0**-149, 2.0**-126, 1 + 2.0**-24, 3e38, 1e300, -1e-41]
    values += [1.0, 0.0, 2.0**-60, 2.0**-59, 0.05, 0.95, 1 - 2.0**-24, 2.0**-21, 1e-45, 2.0**-31]
    values += list(np.random.default_rng(79).random(200)) + list(np.geomspace(1e-44, 3e38, 200))
    size = len(values)
    rounded = torch.empty(size, dtype=torch.float64, device=DEVICE)
    scales = torch.empty(size, device=DEVICE)
    run(write_parameters, rounded, scales, on(np.array(values)), size=size)
    value = torch_mass.to_float32(torch.tensor(values, dtype=torch.float64))
    assert rounded.tolist() == value.tolist()
    assert scales.tolist() == torch_mass.scale_of(torch.where(value > 0, value, 1.0)).tolist()
