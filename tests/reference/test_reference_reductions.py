"""The reference's modes against section 8 said once more, one scalar operation at a time."""

from __future__ import annotations

import numpy as np
import pytest

from fastsample.engines import reference
from fastsample.engines.reference import logprobs as reference_logprobs
from fastsample.engines.reference import softmax as reference_softmax
from tests.support import reference_rows
from tests.support.goodness_of_fit import softmax64, total_variation
from tests.support.random_rows import HARD, Rng

F32 = np.float32
SIZES = (1, 2, 15, 16, 17, 31, 4095, 4096, 4097, 4113, 9000)


def rows(rng: Rng, size: int) -> list[np.ndarray]:
    made = [make(rng, size) for make in HARD.values()]
    return [row for row in made if reference.status(row) == reference.OK]


def by_steps(v: np.ndarray) -> list[float]:
    """What the masses of a row come to after each block: lanes, halves, blocks, one by one."""
    running, total = [], 0.0
    for first in range(0, len(v), 4096):
        lanes = [F32(0)] * 16
        for token in range(first, min(first + 4096, len(v))):
            lanes[token % 16] = F32(lanes[token % 16] + v[token])
        for half in (8, 4, 2, 1):
            lanes = [F32(lanes[i] + lanes[i + half]) for i in range(half)]
        total = total + float(lanes[0])
        running.append(total)
    return running


def draw_by_steps(v: np.ndarray, u: int) -> int:
    running = by_steps(v)
    r = ((u >> 11) * 2.0**-53) * running[-1]
    block = next(b for b, total in enumerate(running) if total > r)
    total = running[block - 1] if block else 0.0
    last = -1
    for token in range(4096 * block, min(4096 * (block + 1), len(v))):
        if v[token] > 0:
            last = token
            total = total + float(v[token])
            if total > r:
                break
    return last


def nucleus_by_steps(v: np.ndarray, ranked: np.ndarray, top_p: float) -> int:
    need = (float(F32(top_p)) - 2.0**-21) * by_steps(v)[-1]
    total = 0.0
    for count, token in enumerate(ranked, 1):
        total = total + float(v[token])
        if total >= need:
            return count
    return len(ranked)


def weights(row: np.ndarray, kept: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """v of the kept tokens, where they are in the row."""
    v = np.zeros(len(row), F32)
    read = reference.read(row)
    v[kept] = reference.float_masses(read[kept], read[kept].max(), temperature)[1]
    return v


@pytest.mark.parametrize("size", SIZES)
def test_totals_draws_and_nuclei(size: int):
    rng = np.random.default_rng((41, size))
    words = [0, 2**64 - 1, *rng.integers(0, 2**64, 4, dtype=np.uint64).tolist()]
    for row in rows(rng, size):
        top_p = float(rng.choice([0.0, 0.3, 0.9, 0.999999, 1 - 2.0**-24]))
        finite = reference.trace(row).order[: reference.trace(row).kept]
        seen = reference.trace(row, top_p=top_p, reduction="fixed")
        assert seen.kept == nucleus_by_steps(weights(row, finite), finite, top_p)
        kept = weights(row, seen.order[: seen.kept])
        assert seen.total == by_steps(kept)[-1]
        for u in words:
            found = reference.draw(*reference.by_token(seen), u, "fixed")
            assert found == draw_by_steps(kept, u)


def test_the_last_token_with_a_mass_is_drawn_where_the_sum_inside_a_block_falls_short():
    rng = np.random.default_rng(42)
    short = 0
    for _ in range(200):
        row = rng.normal(0, 1, 300).astype(F32)
        row[-5:] = -np.inf
        seen = reference.trace(row, reduction="fixed")
        v = weights(row, np.sort(seen.order[: seen.kept]))
        r = (2**53 - 1) * 2.0**-53 * seen.total
        if np.cumsum(v.astype(np.float64))[-1] <= r:
            short += 1
            assert reference.draw(*reference.by_token(seen), 2**64 - 1, "fixed") == 294
    assert short > 20


def test_a_kept_token_can_be_drawn_where_its_integer_mass_is_0():
    row = np.full(2, -44 * np.log(2), dtype=F32)
    row[1] = 0
    assert reference_rows.kept_set(row)[1].tolist() == [0, 2**40]
    tokens, v = reference_rows.kept_set(row, reduction="fixed")
    assert v[0] > 0
    assert reference.draw(tokens, v, 2**64 - 1, "fixed") == 1
    assert reference.draw(tokens, v, 0, "fixed") == 0


def test_log_probabilities_are_of_the_masses_that_are_drawn_from():
    rng = np.random.default_rng(43)
    for row in rows(rng, 4099):
        seen = reference.trace(row, top_k=300, reduction="fixed")
        logprobs = reference_logprobs.processed(seen)
        v = weights(row, seen.order[: seen.kept])
        kept = v > 0
        assert np.array_equal(
            logprobs[kept], reference.ln(v[kept].astype(np.float64)) - reference.ln(by_steps(v)[-1])
        )
        assert np.all(logprobs[~kept] == -np.inf)
        read = reference.read(row)
        whole = by_steps(weights(row, np.flatnonzero(read > -np.inf), 0.7))[-1]
        with np.errstate(all="ignore"):
            gap = (read.astype(np.float64) - float(read.max())) / reference.to_float32(0.7)
        tempered = reference_logprobs.tempered(row, 0.7, "fixed")
        assert np.array_equal(tempered, gap - reference.ln(whole))
        lse = float(read.max()) / reference.to_float32(0.7) + float(reference.ln(whole))
        assert reference_softmax.logsumexp(row, 0.7, "fixed") == lse


@pytest.mark.parametrize("reduction", ["fixed", "fast"])
def test_temperature_0_is_as_in_exact(reduction: str):
    row = np.array([1, 3, 3, -np.inf], dtype=F32)
    seen = reference.trace(row, temperature=0.0, top_p=0.1, reduction=reduction)
    assert (seen.stages, seen.kept, seen.total) == ((("mask", 0, 3), ("temperature", 0, 1)), 1, 1.0)
    assert reference.draw(*reference.by_token(seen), 2**64 - 1, reduction) == 1
    assert reference_logprobs.processed(seen).tolist() == [-np.inf, 0, -np.inf, -np.inf]
    assert reference_softmax.softmax(row, 0.0, reduction).tolist() == [0, 1, 0, 0]


def test_total_variation_from_exact_is_small():
    """The cost of rounded sums: every mode is within 1e-6 of float64."""
    rng = np.random.default_rng(44)
    for row in (rng.normal(0, spread, 100_000).astype(F32) for spread in (0.1, 1, 3, 8)):
        for reduction in ("exact", "fixed", "fast"):
            logprobs = np.exp(
                reference_logprobs.processed(reference.trace(row, reduction=reduction))
            )
            assert total_variation(logprobs, softmax64(row)) < 1e-6
