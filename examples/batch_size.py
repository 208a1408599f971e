"""The effect of the batch size on tokens: through the model's logits, and through the sampler.

    python examples/batch_size.py

A stand-in for a model's last layer computes the logits of the same sequences twice: one sequence at
a time, and all of them together. The order of additions in a matrix product depends on its shape,
so the logits differ in their last bits. Equal logits always give equal tokens; slightly different
logits mostly do, because both draws use the same random numbers. A running sum of probabilities
(draw="inverse") moves with every logit before it, so it changes more tokens than a race.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import fastsample

SETTINGS: dict[str, dict[str, Any]] = {
    "temperature 0": {"temperature": 0.0},
    "temperature .8, top_p .95": {"temperature": 0.8, "top_p": 0.95},
    "temperature 1": {"temperature": 1.0},
    'temperature 1, draw="inverse"': {"temperature": 1.0, "draw": "inverse"},
}
BATCH, WIDTH, VOCABULARY = 1000, 64, 8192


def tokens_of(logits: np.ndarray, position: int, **params: Any) -> np.ndarray:
    """Sample a token for each sequence, each on its own stream."""
    return fastsample.sample(logits, seed=1, position=position, stream="row", **params).tokens


def main() -> None:
    """Compare batches of one sequence with one batch of all, at every step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16"))
    options = parser.parse_args()
    random = np.random.default_rng(0)
    weights = random.standard_normal((WIDTH, VOCABULARY), dtype=np.float32)
    weights *= np.float32(3 / np.sqrt(WIDTH))
    differing, largest = 0, 0.0
    other_logits = dict.fromkeys(SETTINGS, 0)
    equal_logits = dict.fromkeys(SETTINGS, 0)
    for step in range(options.steps):
        hidden = random.standard_normal((BATCH, WIDTH), dtype=np.float32)
        together = (hidden @ weights).astype(options.dtype)
        alone = np.stack([row @ weights for row in hidden]).astype(options.dtype)
        gaps = abs(together.astype(np.float32) - alone.astype(np.float32))
        differing, largest = differing + np.count_nonzero(gaps), max(largest, gaps.max())
        for name, params in SETTINGS.items():
            tokens = tokens_of(together, step, **params)
            one_by_one = [
                fastsample.sample(row, seed=1, position=step, stream=b, **params).tokens
                for b, row in enumerate(together)
            ]
            other_logits[name] += np.count_nonzero(tokens != tokens_of(alone, step, **params))
            equal_logits[name] += np.count_nonzero(tokens != one_by_one)
    draws = options.steps * BATCH
    share = differing / (draws * VOCABULARY)
    print(f"{options.dtype} logits that differ: {share:.2%}, by {largest:.1e} at most")
    for name in SETTINGS:
        print(
            f"{name}: of {draws:,} tokens {other_logits[name]} differ between the two, "
            f"{equal_logits[name]} between batch and row with equal logits"
        )


if __name__ == "__main__":
    main()
