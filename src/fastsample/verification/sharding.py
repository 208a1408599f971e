"""Shards and permutations of the vocabulary: what merges, and what moves, to the last bit.

Shards are merged as rule 6 says: the largest logit of all; then each shard's integer masses, which
add up; then cuts as (logit, token); last the draw, in the shard where the running total exceeds r.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsample.engines import reference

from .calls import Answer, Way
from .cases import Case
from .rows import Dice

FEW = 8
"""How many draws of a row are made here, in Python."""


def uniforms(seed: int, position: int, stream: int, count: int) -> list[int]:
    """U of rule 6 for draws on successive streams.

    Examples
    --------
    >>> uniforms(7, 0, 3, 2) == [reference.uniform(7, 0, 3), reference.uniform(7, 0, 4)]
    True
    """
    streams = np.arange(stream, stream + count, dtype=np.uint64)
    low, high, purpose = (
        np.full_like(streams, part) for part in (position % 2**32, position >> 32, 0)
    )
    philox: Any = reference.philox4x32
    first, second, *_ = philox((seed % 2**32, seed >> 32), (low, high, streams, purpose))
    return [int(a) + (int(b) << 32) for a, b in zip(first, second, strict=True)]


def uniforms_of(case: Case, count: int) -> list[list[int]]:
    """U of the first draws of each row."""
    return [uniforms(**case.place_of(b), count=count) for b in range(len(case.rows))]


def pieces(masses: Sequence[NDArray[Any]]) -> list[tuple[NDArray[Any], ...]]:
    """The kept tokens and masses of each row, from those laid end to end."""
    tokens, weights, offsets = masses[:3]
    return [(tokens[start:stop], weights[start:stop]) for start, stop in pairwise(offsets)]


def drawn(tokens: NDArray[Any], weights: NDArray[Any], numbers: list[int]) -> list[int]:
    """The tokens that these U draw in exact; kept tokens come in any order.

    Examples
    --------
    >>> drawn(np.array([5, 3]), np.array([2**40, 2**40], np.uint64), [2**63 - 1, 2**63])
    [3, 5]
    """
    ascending = np.argsort(tokens)
    running = np.cumsum(weights[ascending], dtype=np.uint64)
    total = int(running[-1])
    shares = np.array([u * total >> 64 for u in numbers], np.uint64)
    places = np.searchsorted(running, shares, side="right")
    return [int(token) for token in tokens[ascending][places]]


# ---------------------------------------------------------------- shards


class Shard(NamedTuple):
    """What one shard says of one row, with masses by the largest logit of all shards."""

    tokens: NDArray[np.int64]
    masses: NDArray[np.uint64]
    logits: NDArray[np.float32]
    past_min_p: int


def shard_count(vocabulary: int) -> int:
    """Into how many shards rows of this size are cut: 2, 3 or 5, where there are so many tokens."""
    return min(vocabulary, (2, 3, 5)[vocabulary % 3])


def merged(way: Way, case: Case, count: int, numbers: list[list[int]]) -> Answer:
    """Tokens, and each row's total and number of kept tokens, from shards alone."""
    ends = [case.vocabulary * at // count for at in range(count + 1)]
    parts = [case.rows[:, start:stop] for start, stop in pairwise(ends)]
    tops = np.max([reference.read(part).max(axis=1) for part in parts], axis=0)
    said = [
        _weighed(way, case, part, tops, start) for part, start in zip(parts, ends, strict=False)
    ]
    tokens, kept = [], []
    for b, us in enumerate(numbers):
        shards = _cut([one[b] for one in said], **case.filters_of(b))
        totals = [int(shard.masses.sum(dtype=np.uint64)) for shard in shards]
        tokens.append([_drawn_from(shards, totals, u) for u in us])
        kept.append((sum(totals), sum(len(shard.tokens) for shard in shards)))
    return Answer(tokens=np.array(tokens, np.int64), kept=np.array(kept, np.uint64))


def whole_of(expected: Answer) -> Answer:
    """The same of whole rows."""
    assert expected.tokens is not None and expected.masses is not None
    rows = pieces(expected.masses)
    kept = [(int(weights.sum(dtype=np.uint64)), len(tokens)) for tokens, weights in rows]
    return Answer(tokens=expected.tokens[:, :FEW], kept=np.array(kept, np.uint64))


def _weighed(
    way: Way, case: Case, part: NDArray[np.float32], tops: NDArray[np.float32], start: int
) -> list[Shard]:
    """Each row of one shard; the largest logit of all stands behind it, and makes its masses so."""
    rows = np.concatenate([part, tops[:, None]], axis=1)
    temperature = case.settings["temperature"]
    settings = {
        "temperature": np.where(temperature == 0, 1.0, temperature),
        "top_k": np.zeros(len(rows), np.int64),
        "top_p": np.ones(len(rows)),
        "min_p": np.zeros(len(rows)),
    }
    found = way.weigh(rows, settings)
    passed = np.diff(found.offsets)
    if np.any(case.settings["min_p"]):
        passed = np.diff(way.weigh(rows, {**settings, "min_p": case.settings["min_p"]}).offsets)
    shards = []
    for b in range(len(rows)):
        own = slice(found.offsets[b], found.offsets[b + 1])
        tokens, masses, logits = found.tokens[own], found.masses[own], found.logits[own]
        inside = tokens < part.shape[1]
        shards.append(
            Shard(tokens[inside] + start, masses[inside], logits[inside], int(passed[b]) - 1)
        )
    return shards


def _cut(
    shards: list[Shard], temperature: float, top_k: int, top_p: float, min_p: float
) -> list[Shard]:
    """The filters, over the shards' tokens in one order; each shard keeps its own of the prefix."""
    tokens = np.concatenate([shard.tokens for shard in shards])
    logits = reference.read(np.concatenate([shard.logits for shard in shards]))
    ranked = np.lexsort((tokens, -logits))
    kept = len(ranked)
    if reference.to_float32(temperature) == 0:
        first = int(ranked[0])
        weight = np.full(1, 2**reference.TOP_MASS_BITS, np.uint64)
        return [Shard(tokens[first : first + 1], weight, logits[first : first + 1], 1)]
    masses = np.concatenate([shard.masses for shard in shards])[ranked]
    kept = min(kept, top_k) if top_k else kept
    if reference.to_float32(top_p) != 1:
        share = max(0, int(reference.to_float32(top_p) * 2.0**31) - 2**10)
        running = np.cumsum(masses[:kept], dtype=np.uint64)
        need = -(-share * int(running[-1]) >> 31)
        kept = max(1, int(np.searchsorted(running, np.uint64(need))) + 1 if need else 1)
    kept = max(1, min(kept, sum(shard.past_min_p for shard in shards)))
    chosen = np.zeros(len(tokens), bool)
    chosen[ranked[:kept]] = True
    ends = np.cumsum([len(shard.tokens) for shard in shards])[:-1]
    return [
        Shard(shard.tokens[own], shard.masses[own], shard.logits[own], shard.past_min_p)
        for shard, own in zip(shards, np.split(chosen, ends), strict=True)
    ]


def _drawn_from(shards: list[Shard], totals: list[int], u: int) -> int:
    """The draw: the shard by the running total of shards, and inside it by that of tokens."""
    r, at = u * sum(totals) >> 64, 0
    while r >= totals[at]:
        r -= totals[at]
        at += 1
    shard = shards[at]
    ascending = np.argsort(shard.tokens)
    running = np.cumsum(shard.masses[ascending], dtype=np.uint64)
    return int(shard.tokens[ascending][np.searchsorted(running, np.uint64(r), side="right")])


# ---------------------------------------------------------------- permutations


def permutations(vocabulary: int) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Orders of the tokens: at j stands which token comes j-th."""
    tokens = np.arange(vocabulary)
    yield "shuffled", Dice(vocabulary).permutation(vocabulary)
    yield "reversed", tokens[::-1].copy()
    yield "turned", np.roll(tokens, vocabulary // 3)


def ties_at_the_cut(case: Case, expected: Answer) -> list[bool]:
    """Of each row, whether a token that is not kept has the last kept one's logit."""
    assert expected.masses is not None
    tied = []
    for row, (tokens, _) in zip(case.rows, pieces(expected.masses), strict=True):
        logits = reference.read(row)
        last = logits[tokens].min()
        tied.append(bool(np.sum(logits == last) > np.sum(logits[tokens] == last)))
    return tied


def moved(way: Way, case: Case, permutation: NDArray[np.int64], tied: list[bool]) -> Answer:
    """What the permuted rows give, by the tokens that they had before.

    Where there is a tie at the cut, which of the tied tokens are kept is the order's to say: there
    the logits that are kept, and their masses, are all that stays.
    """
    rows = np.ascontiguousarray(case.rows[:, permutation])
    tokens = permutation[way.draw(rows, case.settings, FEW)]
    tokens[np.array(tied)] = -1
    found = way.weigh(rows, case.settings)
    logits = reference.read(np.asarray(found.logits))
    return Answer(
        tokens=tokens,
        masses=_in_no_order(
            permutation[found.tokens], np.asarray(found.masses), logits, found.offsets, tied
        ),
    )


def law_to_move(
    case: Case,
    expected: Answer,
    permutation: NDArray[np.int64],
    tied: list[bool],
    numbers: list[list[int]],
) -> Answer:
    """What they should give: the law of the rows as they were, drawn from in the new order."""
    assert expected.masses is not None
    place = np.argsort(permutation)
    tokens = [
        [-1] * FEW if tie else permutation[drawn(place[kept], weights, us)]
        for tie, (kept, weights), us in zip(tied, pieces(expected.masses), numbers, strict=True)
    ]
    kept, weights, offsets = expected.masses
    of_row = np.repeat(np.arange(len(case.rows)), np.diff(offsets))
    logits = reference.read(case.rows[of_row, kept])
    return Answer(
        tokens=np.array(tokens, np.int64),
        masses=_in_no_order(kept, weights, logits, offsets, tied),
    )


def _in_no_order(
    tokens: NDArray[Any],
    weights: NDArray[Any],
    logits: NDArray[Any],
    offsets: NDArray[Any],
    tied: list[bool],
) -> tuple[NDArray[Any], ...]:
    """Kept sets by ascending token, and of rows with a tie at the cut no tokens."""
    tokens, weights, logits = tokens.copy(), weights.copy(), logits.copy()
    for tie, start, stop in zip(tied, offsets[:-1], offsets[1:], strict=True):
        own = slice(start, stop)
        if tie:
            tokens[own] = -1
            continue
        ascending = np.argsort(tokens[own])
        for part in (tokens, weights, logits):
            part[own] = part[own][ascending]
    return tokens, weights, np.asarray(offsets), logits
