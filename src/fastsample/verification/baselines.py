"""The sampler that people write, for comparison: a float32 softmax and a running sum."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .calls import Check, Results
from .cases import Case
from .rows import Array
from .sharding import uniforms

PLAIN = "plain float32 softmax + cumsum (NumPy)"


def plain_checks(case: Case, expected: Results) -> Iterator[Check]:
    """Yield what it draws with the same random numbers, for plain cases.

    Where probabilities are not finite there is no draw: -1 on both sides.
    """
    if case.is_plain:
        tokens = np.stack([plain_tokens(case, b) for b in range(len(case.rows))])
        exact = np.where(tokens < 0, -1, expected["token"])
        yield Check(PLAIN, {"token": exact}, "", {"token": tokens})


def plain_tokens(case: Case, b: int) -> Array:
    """Draw from the float32 probabilities of a row; -1 where they are not finite."""
    with np.errstate(all="ignore"):
        tokens, probabilities = plain_softmax(case.rows[b], **case.filters(b))
    if not np.all(np.isfinite(probabilities)):
        return np.full(case.draws, -1)
    ascending = np.argsort(tokens)
    running = np.cumsum(probabilities[ascending])
    shares = np.array([u >> 11 for u in uniforms(case.rng(b), case.draws)]) * 2.0**-53
    places = np.searchsorted(running, shares * running[-1], side="right")
    return np.asarray(tokens[ascending][np.minimum(places, len(tokens) - 1)])


def plain_softmax(
    row: Array, temperature: float, top_k: int, top_p: float, min_p: float
) -> tuple[Array, Array]:
    """Return the kept tokens and their probabilities: sorted, summed and cut in float32."""
    ranked = np.argsort(-row, kind="stable")[: 1 if temperature == 0 else top_k or None]
    logits = row[ranked] / np.float32(temperature or 1)
    weights = np.exp(logits - logits[0])
    kept = weights / weights.sum()
    below = (np.cumsum(kept) - kept < np.float32(top_p)) | (top_p == 1)
    below &= kept >= np.float32(min_p) * kept[0]
    below[0] = True
    return ranked[below], kept[below] / kept[below].sum()
