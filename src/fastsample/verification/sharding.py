"""Shards and permutations of the vocabulary, merged and undone here by the rule.

Shards are merged as rule 6 says: the largest logit of all, each shard's integer masses relative to
it, the filters in the order of (logit, token), and a draw from the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fastsample.engines import reference

from .calls import PER_KEPT_TOKEN, Backend, Check, Results, join, split
from .cases import OFF, Case
from .rows import Array, RandomWords

FEW = 8
"""How many draws of a row are made here, in Python."""


def uniforms(rng: dict[str, int], count: int) -> list[int]:
    """Return U of rule 6 for draws on successive streams.

    Examples
    --------
    >>> uniforms({"seed": 7, "position": 0, "stream": 3}, 2)[1] == reference.uniform(7, 0, 4)
    True
    """
    streams: Any = np.arange(rng["stream"], rng["stream"] + count, dtype=np.uint64)
    counter = (rng["position"] % 2**32, rng["position"] >> 32, streams, 0)
    key = (rng["seed"] % 2**32, rng["seed"] >> 32)
    words: Sequence[Any] = reference.philox4x32(key, counter)
    return [int(a) + (int(b) << 32) for a, b in zip(words[0], words[1], strict=True)]


def draw_tokens(tokens: Array, masses: Array, numbers: Sequence[int]) -> Array:
    """Return the tokens that these U draw in exact; kept tokens come in any order.

    Examples
    --------
    >>> draw_tokens(np.array([5, 3]), np.array([2**40, 2**40], np.uint64), [2**63 - 1, 2**63])
    array([3, 5])
    """
    ascending = np.argsort(tokens)
    running = np.cumsum(masses[ascending], dtype=np.uint64)
    shares = np.array([u * int(running[-1]) >> 64 for u in numbers], np.uint64)
    return np.asarray(tokens[ascending][np.searchsorted(running, shares, side="right")])


def _few(
    backends: Sequence[Backend], case: Case, expected: Results
) -> tuple[Sequence[Backend], Case, list[Results]]:
    """Of large rows, which take long to sort in Python, the first ones, and the first backend.

    The results of each row are its draws and its kept set.
    """
    some = case.few()
    rows = split({name: expected[name] for name in ("token", "kept_size", *PER_KEPT_TOKEN)})
    return backends[:1] if case.is_large else backends, some, rows[: len(some.rows)]


# ---------------------------------------------------------------- shards


def shard_count(vocabulary: int) -> int:
    """Return into how many shards rows of this size are cut: 2, 3 or 5, or 1 for one token."""
    return min(vocabulary, (2, 3, 5)[vocabulary % 3])


def sharded(backends: Sequence[Backend], case: Case, expected: Results) -> Iterator[Check]:
    """Rows cut into ranges of tokens, merged by maxima and integer sums."""
    if not case.is_plain:
        return
    backends, case, rows = _few(backends, case, expected)
    totals = np.array([row["masses"].sum() for row in rows])
    wanted = {name: expected[name][: len(rows)] for name in ("token", "kept_size")}
    count = shard_count(case.vocabulary)
    for backend in backends:
        got = merged(backend, case, count)
        yield Check(backend.label, wanted | {"total": totals}, f"in {count}", got, FEW)


def merged(backend: Backend, case: Case, count: int) -> Results:
    """Return tokens, and each row's number of kept tokens and total mass, from shards alone."""
    ends = [case.vocabulary * at // count for at in range(count + 1)]
    parts = [case.rows[:, start:stop] for start, stop in pairwise(ends)]
    largest = np.max([reference.read(part).max(axis=1) for part in parts], axis=0)
    shards = [_weigh(backend, case, parts[n], ends[n], largest) for n in range(count)]
    rows = []
    for b in range(len(case.rows)):
        row = join([shard[b] for shard in shards])
        tokens, masses = _filtered(row, **case.filters(b))
        drawn = draw_tokens(tokens, masses, uniforms(case.rng(b), FEW))
        rows.append({"token": drawn, "kept_size": len(tokens), "total": masses.sum()})
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _weigh(backend: Backend, case: Case, part: Array, start: int, largest: Array) -> list[Results]:
    """Return tokens, masses and logits of each row of a shard, and how many tokens min_p keeps.

    The largest logit of all shards is appended, so that masses are relative to it.
    """
    rows = np.concatenate([part, largest[:, None]], axis=1)
    temperature, min_p = case.settings["temperature"], case.settings["min_p"]
    settings = OFF | {"temperature": np.where(temperature == 0, 1.0, temperature)}
    found = backend.kept_set(rows, settings)
    passed = backend.kept_set(rows, settings | {"min_p": min_p}) if np.any(min_p) else found
    shard = []
    for row, count in zip(split(found), passed["kept_size"], strict=True):
        inside = row["kept_tokens"] < part.shape[1]
        own = {name: row[name][inside] for name in PER_KEPT_TOKEN}
        shard.append(own | {"tokens": own["kept_tokens"] + start, "passed": np.array([count - 1])})
    return shard


def _filtered(
    row: Results, temperature: float, top_k: int, top_p: float, min_p: float
) -> tuple[Array, Array]:
    """Return the tokens of a row that the filters keep, and their masses.

    `min_p` is not used: the row has the number of tokens that it keeps, by shard.
    """
    ranked = np.lexsort((row["tokens"], -row["logits"]))
    tokens, masses = row["tokens"][ranked], row["masses"][ranked]
    if reference.to_float32(temperature) == 0:
        return tokens[:1], np.full(1, 2**reference.TOP_MASS_BITS, np.uint64)
    kept = min(len(tokens), top_k) if top_k else len(tokens)
    if reference.to_float32(top_p) != 1:
        share = max(0, int(reference.to_float32(top_p) * 2.0**31) - 2**10)
        running = np.cumsum(masses[:kept], dtype=np.uint64)
        need = -(-share * int(running[-1]) >> 31)
        kept = int(np.searchsorted(running, np.uint64(need))) + 1 if need else 1
    kept = max(1, min(kept, int(row["passed"].sum())))
    return tokens[:kept], masses[:kept]


# ---------------------------------------------------------------- permutations


def permuted(backends: Sequence[Backend], case: Case, expected: Results) -> Iterator[Check]:
    """The tokens in another order: the distribution is permuted with them."""
    if case.is_adjusted:
        return
    backends, case, rows = _few(backends, case, expected)
    tied = [has_tie(row, own["kept_tokens"]) for row, own in zip(case.rows, rows, strict=True)]
    orders = {
        "shuffled": RandomWords(case.vocabulary).permutation(case.vocabulary),
        "reversed": np.arange(case.vocabulary)[::-1],
        "rotated": np.roll(np.arange(case.vocabulary), case.vocabulary // 3),
    }
    for name, order in list(orders.items())[: 1 if case.is_large else None]:
        wanted, place = [], np.argsort(order)
        for b, own in enumerate(rows):
            numbers = uniforms(case.rng(b), FEW)
            drawn = order[draw_tokens(place[own["kept_tokens"]], own["masses"], numbers)]
            wanted.append(own | {"token": drawn[None]})
        columns, together = np.ascontiguousarray(case.rows[:, order]), _in_token_order(wanted, tied)
        for backend in backends:
            got = {"token": order[backend.draw(columns, case.settings, FEW)]}
            got |= backend.kept_set(columns, case.settings)
            got["kept_tokens"] = order[got["kept_tokens"]]
            yield Check(backend.label, together, name, _in_token_order(split(got), tied))


def has_tie(row: Array, kept: Array) -> bool:
    """Return whether a token that is not kept has the logit of the first or last kept one."""
    logits = reference.read(row)
    ends = logits[kept].min(), logits[kept].max()
    return any(np.sum(logits == end) > np.sum(logits[kept] == end) for end in ends)


def _in_token_order(rows: list[Results], tied: list[bool]) -> Results:
    """Return kept sets by ascending token, and -1 for all tokens of tied rows.

    There the order of tokens decides which are kept; kept logits and their masses are the same.
    """
    for row, is_tied in zip(rows, tied, strict=True):
        ascending = np.argsort(row["kept_tokens"])
        if is_tied:
            row |= {name: np.full_like(row[name], -1) for name in ("token", "kept_tokens")}
        else:
            row |= {name: row[name][ascending] for name in PER_KEPT_TOKEN}
    return join(rows)
