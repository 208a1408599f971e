"""Compiled code samples: the same tokens, and a graph that serves other batches too."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fastsample import sample

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),  # torch warns of its own parts
]

from torch._dynamo.testing import CompileCounter  # noqa: E402

B, V = 6, 700
USUAL = {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05}
ENGINE: dict[str, Any] = {"engine": "torch", "on_invalid": "mark"}
RNG: dict[str, Any] = {"seed": 3, "position": 1, "stream": "row"}


def rows(n_rows: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(82).normal(size=(n_rows, V)).astype(np.float32))


def written(logits: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """A loop that samples: every token changes the next row."""
    tokens = []
    for _ in range(3):
        options = {**USUAL, **ENGINE, **RNG, "position": position}
        tokens.append(sample(logits, **options).tokens)
        logits = logits + torch.nn.functional.one_hot(tokens[-1], V) * -0.5
        position = position + 1
    return torch.stack(tokens)


@pytest.mark.parametrize(
    ("backend", "sizes"),
    [
        ("inductor", (B,)),
        ("aot_eager", (B, 4, 5, 1)),
        pytest.param("inductor", (B, 4, 5, 1), marks=pytest.mark.nightly),
    ],
)
def test_a_loop_draws_the_same_at_every_batch_size(backend: str, sizes: tuple[int, ...]) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(written, fullgraph=True, backend=backend)
    for n_rows in sizes:
        args = rows(n_rows), torch.arange(n_rows)
        assert compiled(*args).tolist() == written(*args).tolist()


def test_no_warnings_of_our_code() -> None:
    torch._dynamo.reset()

    def with_fresh_seed(logits: torch.Tensor) -> torch.Tensor:
        return sample(logits, logprobs=2, **USUAL, **RNG, **ENGINE).top_tokens

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        torch.compile(with_fresh_seed, fullgraph=True, backend="eager")(rows(B))
    assert [str(one.message) for one in warned if "fastsample" in str(one.message)] == []


def test_a_fresh_seed_is_refused() -> None:
    def fresh(logits: torch.Tensor) -> torch.Tensor:
        return sample(logits, **ENGINE).tokens

    with pytest.raises(Exception, match="`seed` must be given in compiled code"):
        torch.compile(fresh, fullgraph=True)(rows(B))


def sampling(**names: Any) -> Callable[..., torch.Tensor]:
    """A function of the logits and of what changes from call to call."""

    def function(logits: torch.Tensor, **changing: Any) -> torch.Tensor:
        return sample(logits, **{**RNG, **names, **changing}, **ENGINE).tokens

    return function


CHANGING: dict[str, list[dict[str, Any]]] = {
    "position": [{"position": position} for position in range(5)],
    "temperature": [{"temperature": 0.5 + 0.1 * step} for step in range(5)],
    "top_k": [{"top_k": count} for count in (1, 5, 9, 2000, 0)],
    "typical_p": [{"typical_p": 0.2 + 0.1 * step, "top_n_sigma": 1.5} for step in range(5)],
    "tensors": [
        {"temperature": torch.full((n,), 0.8), "top_k": torch.full((n,), 9)} for n in (6, 4, 5, 3)
    ],
    "history": [
        {"output": torch.full((n, 7 - n), n), "presence_penalty": 1.0} for n in (6, 4, 5, 3)
    ],
    "out": [{"out": torch.zeros(n, dtype=torch.int64)} for n in (6, 4, 5, 3)],
}


@pytest.mark.parametrize("what", CHANGING)
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_graph_serves_what_changes(what: str, dynamic: bool | None) -> None:
    """Two graphs at most: one for the first call, and one for all others."""
    torch._dynamo.reset()
    graphs = CompileCounter()
    function = sampling(n=None if what == "out" else 2, min_p=0.01)
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, backend=graphs)
    for changing in CHANGING[what]:
        first = next(iter(changing.values()))
        logits = rows(len(first) if isinstance(first, torch.Tensor) else B)
        expected = function(logits, **changing).tolist()
        assert compiled(logits, **changing).tolist() == expected, changing
    assert graphs.frame_count <= 2


def test_lists_of_the_host_cause_a_recompilation() -> None:
    torch._dynamo.reset()
    function = sampling(stream=0)
    compiled = torch.compile(function, fullgraph=True, backend="eager")
    for step in range(3):
        changing = {"seed": [step, 2, 3, 4], "bias": {step: 1.0}, "prompt": [[step] * step] * 4}
        assert compiled(rows(4), **changing).tolist() == function(rows(4), **changing).tolist()


def test_a_bad_number_in_a_list_of_the_host_marks_its_row() -> None:
    torch._dynamo.reset()
    function = sampling(temperature=[0.5, -1.0, 0.0, 1.0], stream=[0, 1, 2, 2**32])
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    tokens = compiled(rows(4)).tolist()
    assert tokens == function(rows(4)).tolist()
    assert [token == -1 for token in tokens] == [False, True, False, True]


def test_constants_are_made_on_the_host_with_any_default_device() -> None:
    torch._dynamo.reset()
    function = sampling(seed=[1, 2, 3, 4], bias={3: 1.0}, stream=0)
    expected = function(rows(4)).tolist()
    with torch.device("meta"):
        assert (
            torch.compile(function, fullgraph=True, backend="eager")(rows(4)).tolist() == expected
        )
