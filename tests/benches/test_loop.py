"""Draws straight after a model's step, and after a sweep: forms, steps, and what is counted.

Timings are read here, never judged.
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pytest_benchmark")
pytest.importorskip("typer")
pytest.importorskip("torch", reason="what a model returns is a tensor")

import cold
import loop
import loop_forms
import loop_goals
import loop_timing
import torch

import fastsample

VOCABULARY = 1_000
WEIGHTS = torch.randn(VOCABULARY, 16, generator=torch.Generator().manual_seed(1))


class Model:
    """Logits of a token depend on it alone; the cache counts the tokens."""

    def __call__(self, tokens: Any, _mask: None, _positions: None, cache: list[int]) -> Any:
        cache.append(tokens.shape[1])
        return SimpleNamespace(logits=WEIGHTS[tokens] @ WEIGHTS.T)


def texts(batch: int) -> tuple[loop.Texts, list[list[int]]]:
    """Steps of the model, and the caches that were made."""
    caches: list[list[int]] = []

    def new_cache() -> list[int]:
        caches.append([])
        return caches[-1]

    prompts = [torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]])]
    return loop.Texts(Model(), prompts, batch, new_cache), caches


@pytest.mark.parametrize("batch", [1, 8])
def test_steps_write_texts(batch: int) -> None:
    step, caches = texts(batch)
    before = None
    for i in range(loop.LENGTH + 2):
        logits = step(True)
        assert logits.shape == (batch, 1, VOCABULARY)
        if i % loop.LENGTH:
            tokens = before[:, -1].argmax(-1)
            assert torch.equal(logits[:, -1], WEIGHTS[tokens] @ WEIGHTS.T)
        assert len(torch.unique(logits, dim=0)) == batch or i % loop.LENGTH
        before = logits
    assert caches == [[3, *[1] * loop.LENGTH], [2, 1, 1]]
    assert step.latency.count == loop.LENGTH + 2
    assert type(step(False)) is np.ndarray and type(step(True)) is torch.Tensor


@pytest.mark.parametrize("batch", [1, loop_goals.BATCH])
def test_every_form_draws_what_it_is_named_after(batch: int) -> None:
    """The first token of each form of the usual chain; others return no token of a sequence."""
    step, _ = texts(batch)
    logits = step(True)
    rows = logits[:, -1].numpy()
    draw = loop_forms.CHAIN.params
    forms = loop_forms.FormSet.of(batch, VOCABULARY, has_tensors=True)
    expected = fastsample.sample(rows, **draw, seed=1, stream=np.arange(batch), position=0).tokens
    found = {}
    for name, call in forms.calls.items():
        answer = call(
            forms.argument(name, lambda as_tensor: logits if as_tensor else logits.numpy())
        )
        found[name] = getattr(answer, "tokens", answer)
    plain = (
        (
            loop_goals.ROW,
            loop_goals.OWN_CLOCK,
            loop_goals.AT,
            *loop_goals.SLICED,
            *loop_goals.SAMPLE,
        )
        if batch == 1
        else (loop_goals.BATCH_ROWS, loop_goals.AT_BATCH)
    )
    for name in plain:
        assert np.array_equal(np.ravel(found[name]), expected), name
    if batch == 1:
        assert found[loop_goals.ARGMAX] == found[loop_goals.TORCH_ARGMAX] == rows.argmax()
        assert found["sampler(logits, at=-1), greedy"] == rows.argmax()
    else:
        assert found[loop_goals.ARGMAX_OF_BATCH] == rows.argmax(-1).tolist()


def test_a_mask_bans_a_tenth_of_the_tokens_and_all_past_the_end() -> None:
    bits = loop_forms.allowed(1_010, np.random.default_rng(0))
    mask = np.unpackbits(bits.view(np.uint8), bitorder="little")
    assert bits.dtype == np.int32 and bits.size == 32
    assert 0.85 < mask[:1_010].mean() < 0.95 and not mask[1_010:].any()


def test_forms_with_goals_and_what_they_are_compared_with_are_measured() -> None:
    names = {
        name
        for batch in (1, loop_goals.BATCH)
        for name in loop_forms.FormSet.of(batch, VOCABULARY, has_tensors=True).calls
    }
    for goals in loop_goals.GOALS.values():
        assert goals.keys() <= names
        assert {goal.base for goal in goals.values()} <= names


def test_the_table_of_goals() -> None:
    goals = {
        name: (goal.us, str(goal)) for of in loop_goals.GOALS.values() for name, goal in of.items()
    }
    assert goals["sampler(row)"] == (6, "row.argmax()")
    assert goals["sampler(logits[0, -1])"] == (25, "row.argmax()")
    assert goals["sample(logits[0, -1])"] == (50, "row.argmax()")
    assert goals["sampler(row, mask=bits)"] == (15, "sampler(row)")
    assert goals["sampler.sample(row, logprobs=5)"] == (35, "sampler(row)")
    assert goals["sampler(8 rows)"] == (0, "1.1 x (8 x row.argmax())")
    assert goals["sampler(logits, at=-1), 8 rows"] == (15, "1.1 x (8 x row.argmax())")


def test_each_form_follows_a_step_and_warm_calls_are_not_counted() -> None:
    seen: list[str] = []

    def step(as_tensor: bool) -> np.ndarray:
        seen.append("step")
        return np.zeros((1, 1, 5), np.float32)

    sampler = loop_forms.sampling(measure=True)

    def own(row: np.ndarray) -> object:
        seen.append("own")
        return sampler(row)

    own.latency = sampler.latency  # type: ignore[attr-defined]
    rows = {loop_goals.ARGMAX: lambda row: seen.append("argmax"), loop_goals.OWN_CLOCK: own}
    figures = loop_timing.measure("cold", loop_forms.FormSet(1, rows, {}), step, repeat=5)
    assert seen[::2] == ["step"] * 2 * (loop_timing.WARM_CALLS + 5)
    assert Counter(seen[1::2]) == dict.fromkeys(("own", "argmax"), loop_timing.WARM_CALLS + 5)
    assert [figure["form"] for figure in figures] == list(rows)
    assert sampler.latency.count == 5
    assert 0 < figures[1]["own_us"] < figures[1]["us"] <= figures[1]["p90_us"]
    assert "own_us" not in figures[0]


def test_cold_calls_of_every_form() -> None:
    figures = cold.figures(repeat=1, megabytes=1)
    assert {figure["batch"] for figure in figures} == {1, loop_goals.BATCH}
    assert len(figures) > 30 and all(figure["us"] > 0 for figure in figures)
    assert {figure["table"] for figure in figures} == {"cold"}
