"""The engines on a GPU: native's tokens, no wait, and graphs that move on. Skipped without one.

Triton, which tests have interpreted elsewhere, takes the GPU where TRITON_INTERPRET is 0.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import fastsample
from fastsample.params.table import STAGES
from tests.support.engines import Engine

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use is here"),
]

COMPILED = pytest.mark.skipif(
    find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") == "1",
    reason="Triton is not installed, or interpreted (TRITON_INTERPRET=0 takes the GPU)",
)
USUAL = {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05}
CHAINS: dict[str, dict[str, Any]] = {
    "usual": USUAL,
    "greedy": {"temperature": 0.0},
    "temperature": {"temperature": 1.3},
    "top_k": {"top_k": 1_500, "temperature": 0.7},
    "top_p": {"top_p": 0.9},
    "min_p": {"min_p": 0.02},
    "late": {**USUAL, "top_k": 300, "stages": ("top_p", "temperature", "min_p", "top_k")},
    "epsilon_cutoff": {"temperature": 0.9, "epsilon_cutoff": 3e-4},
    "top_a": {"temperature": 0.9, "top_a": 0.04},
    "top_n_sigma": {"top_n_sigma": 1.2, "top_k": 50, "temperature": 0.9},
    "typical_p": {"typical_p": 0.4, "top_p": 0.9, "stages": ("typical_p", "top_p")},
    "race": {"temperature": 1.3, "draw": "race"},
    "race of few": {**USUAL, "draw": "race"},
    "race, top_k": {"top_k": 1_500, "temperature": 0.7, "draw": "race"},
    "race, top_p": {"top_p": 0.9, "draw": "race"},
    "race, listed": {"top_p": 0.4, "draw": "race"},
    "race, min_keep": {"min_p": 0.9, "min_keep": 300, "draw": "race"},
}
CASES = [
    pytest.param(engine, chain, marks=marks)
    for engine, marks in (("torch", ()), ("triton", (pytest.mark.triton, COMPILED)))
    for chain, params in CHAINS.items()
    if Engine(engine).has_stages(params.keys() & set(STAGES))
]


def rows_of(count: int, vocabulary: int, seed: int = 0) -> torch.Tensor:
    """Normal rows, a third of which have many equal logits."""
    rows = np.random.default_rng(seed).standard_normal((count, vocabulary), dtype=np.float32) * 3
    rows[::3] = np.round(rows[::3] * 2) / 2
    return torch.from_numpy(rows)


def same(expected: Any, found: Any) -> None:
    for name in ("tokens", "kept_count", "logprobs", "ranks", "top_tokens", "top_logprobs"):
        one, other = getattr(expected, name), getattr(found, name)
        assert (one is None) == (other is None)
        if one is not None:
            assert other.is_cuda
            assert other.cpu().numpy().tobytes() == one.numpy().tobytes(), name


@pytest.mark.parametrize(("engine", "chain"), CASES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_answers_are_natives(engine: str, chain: str, dtype: str) -> None:
    options = {**CHAINS[chain], "seed": 3, "position": 1, "stream": "row"}
    for count, vocabulary in ((5, 65), (33, 20_001), (2, 151_936)):
        rows = rows_of(count, vocabulary).to(getattr(torch, dtype))
        for outputs in (
            {"n": 3},
            {
                "logprobs": 4,
                "logprobs_mode": ("raw", "tempered", "processed"),
                "kept_count": True,
            },
        ):
            found = fastsample.sample(rows.cuda(), **options, **outputs, engine=engine)
            same(fastsample.sample(rows, **options, **outputs), found)


@pytest.mark.nightly
@pytest.mark.parametrize(("engine", "chain"), CASES)
def test_a_million_rows(engine: str, chain: str) -> None:
    """Of each engine, in all chains together; seeds, streams and positions differ by row."""
    at_once, batches = 4_096, -(-(10**6) // (4_096 * len(CHAINS)))
    for number in range(batches):
        rows = rows_of(at_once, 1_000 + number, number)
        options = {**CHAINS[chain], "seed": number, "position": range(at_once), "stream": "row"}
        found = fastsample.sample(rows.cuda(), **options, engine=engine)
        same(fastsample.sample(rows, **options), found)


@pytest.mark.parametrize(("engine", "chain"), CASES)
def test_no_call_waits(engine: str, chain: str) -> None:
    """Numbers of the host, equal and by row, and of the device."""
    rows = rows_of(4, 3_000).cuda()
    tensors = {"seed": torch.arange(4).cuda(), "position": torch.arange(4).cuda()}
    rngs = [
        {"seed": 3, "position": 1, "stream": "row"},
        {"seed": np.arange(4), "position": range(4)},
        tensors,
    ]
    for rng in rngs:
        options = {**CHAINS[chain], **rng, "engine": engine}
        fastsample.sample(rows, **options)  # what is compiled or loaded the first time may wait
        torch.cuda.set_sync_debug_mode("error")
        try:
            found = fastsample.sample(rows, **options)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        same(fastsample.sample(rows.cpu(), **_of_host(options)), found)


def _of_host(options: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.cpu().numpy() if isinstance(value, torch.Tensor) else value
        for name, value in options.items()
        if name != "engine"
    }


@pytest.mark.parametrize("chain", [case.values[1] for case in CASES if case.values[0] == "triton"])
@COMPILED
@pytest.mark.triton
def test_a_graph_moves_on(chain: str) -> None:
    """One capture, many replays: rows, seeds and positions are read anew in each."""
    rows = rows_of(6, 20_000).cuda()
    seed, position = torch.arange(6).cuda(), torch.zeros(6, dtype=torch.int64).cuda()
    out = torch.empty_like(position)

    def step() -> None:
        options = {**CHAINS[chain], "seed": seed, "position": position, "stream": 0}
        fastsample.sample(rows, **options, engine="triton", out=out)
        position.add_(1)

    step()  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    seen = []
    for number in range(1, 6):
        rows.copy_(rows_of(6, 20_000, number))
        graph.replay()
        options = {**CHAINS[chain], "seed": np.arange(6), "position": number, "stream": 0}
        expected = fastsample.sample(rows_of(6, 20_000, number), **options).tokens
        assert out.tolist() == expected.tolist()
        seen.append(tuple(out.tolist()))
    assert len(set(seen)) == 5


def test_a_graph_updates_its_outputs() -> None:
    """Log-probabilities and penalties by numbers of the host, which a graph does not copy."""
    rows = rows_of(6, 20_000).cuda()
    seed, position = torch.arange(6).cuda(), torch.zeros(6, dtype=torch.int64).cuda()
    output = torch.arange(12).reshape(6, 2).cuda()
    outputs = {**USUAL, "stream": 0, "logprobs": 3, "presence_penalty": 0.5}

    def step() -> Any:
        options = {"seed": seed, "position": position, "output": output}
        return fastsample.sample(rows, **outputs, **options, engine="triton")

    step()  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    for number in range(1, 4):
        rows.copy_(rows_of(6, 20_000, number))
        position.fill_(number)
        graph.replay()
        options = {"seed": np.arange(6), "position": number, "output": output.tolist()}
        same(fastsample.sample(rows_of(6, 20_000, number), **outputs, **options), found)
