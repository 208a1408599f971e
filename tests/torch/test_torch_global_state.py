"""What torch can be set to, and where it is called from: nothing of it gives another token."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from fastsample import sample
from tests.support.rounding_modes import flushing_operands, flushing_results

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

B, V = 6, 700
MODES = ("raw", "tempered", "processed")
ENGINE: dict[str, Any] = {"engine": "torch", "on_invalid": "mark"}
RNG: dict[str, Any] = {"seed": 3, "position": 1, "stream": "row"}
HISTORY = [[1, 2, 2], [], [699, 3], [5, 5, 5, 5], [0], [4, 0, 1]]
CHAINS: dict[str, dict[str, Any]] = {
    "topk": {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05},
    "full": {"temperature": 0.8, "top_p": 0.95, "min_p": 0.05},
    "greedy": {"temperature": 0.0},
}


@contextmanager
def set_to(change: Callable[[Any], None], value: Any, before: Any) -> Iterator[None]:
    change(value)
    try:
        yield
    finally:
        change(before)


STATES: dict[str, Callable[[], Any]] = {
    "inference": torch.inference_mode,
    "no grad": torch.no_grad,
    "flushed denormals": lambda: set_to(torch.set_flush_denormal, True, False),
    "flushed results": flushing_results,
    "flushed operands": flushing_operands,
    "deterministic": lambda: set_to(torch.use_deterministic_algorithms, True, False),
    "float64": lambda: set_to(torch.set_default_dtype, torch.float64, torch.float32),
    "float16": lambda: set_to(torch.set_default_dtype, torch.float16, torch.float32),
    "another device": lambda: torch.device("meta"),
    "one thread": lambda: set_to(torch.set_num_threads, 1, torch.get_num_threads()),
}


def logits_of_all_sizes() -> torch.Tensor:
    """Normal ones, some of them denormal."""
    values = np.random.default_rng(80).normal(size=(B, V)).astype(np.float32) * 3
    values[:, :9] *= np.float32(1e-38)
    return torch.from_numpy(values)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("state", STATES)
def test_no_state_gives_another_token(state: str, chain: str) -> None:
    logits = logits_of_all_sizes()
    options = {
        **RNG,
        **CHAINS[chain],
        "logprobs": 2,
        "logprobs_mode": MODES,
        "kept_count": True,
        "repetition_penalty": 1e30,
    }
    options |= {"output": HISTORY, "bias": {3: 1e-40, 4: -1e-40, 5: 1.0}}
    expected = sample(logits, **options)
    with STATES[state]():
        found = sample(logits, **options, **ENGINE)
    for name in ("tokens", "logprobs", "ranks", "top_tokens", "top_logprobs", "kept_count"):
        one, other = getattr(expected, name), getattr(found, name)
        assert one.dtype == other.dtype, name
        assert one.numpy().tobytes() == other.numpy().tobytes(), name


def test_threads_do_not_meet() -> None:
    logits = logits_of_all_sizes()
    seeds = range(12)
    expected = [sample(logits, **{**RNG, "seed": seed}).tokens.tolist() for seed in seeds]
    found: dict[int, Any] = {}

    def draw_all(first: int) -> None:
        found[first] = [
            sample(logits, **{**RNG, "seed": seed}, **ENGINE).tokens.tolist() for seed in seeds
        ]

    threads = [threading.Thread(target=draw_all, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[first] for first in range(4)] == [expected] * 4


def test_a_mapped_call_draws_for_each() -> None:
    """`torch.func.vmap` calls the operator once for each row."""
    logits, seeds = logits_of_all_sizes(), torch.arange(B)

    def one(row: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
        return sample(row, seed=seed, position=0, **ENGINE).tokens

    found = torch.func.vmap(one)(logits, seeds)
    assert found.tolist() == sample(logits, seed=seeds, position=0).tokens.tolist()
