"""Shards and permutations of the vocabulary, merged and undone here by the rule.

Shards are merged as section 6 says: the largest logit of all, each shard's integer masses relative
to it, the filters in the order of (logit, token), and a draw from the sum.
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
    """Return U of section 6 for draws on successive streams."""
    streams: Any = np.arange(rng["stream"], rng["stream"] + count, dtype=np.uint64)
    counter = (rng["position"] % 2**32, rng["position"] >> 32, streams, 0)
    key = (rng["seed"] % 2**32, rng["seed"] >> 32)
    words: Sequence[Any] = reference.philox4x32(key, counter)
    return [int(a) + (int(b) << 32) for a, b in zip(words[0], words[1], strict=True)]


def draw_tokens(tokens: Array, masses: Array, numbers: Sequence[int]) -> Array:
    """Return the tokens that these U draw in exact; kept tokens come in any order."""
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
    temperature, min_p = case.settings["temperature"], case.settings["min_p"]
    settings = OFF | {"temperature": np.where(temperature == 0, 1.0, temperature)}
    shards: list[list[Results]] = [[] for _ in case.rows]
    for part, start in zip(parts, ends, strict=False):
        # Masses are relative to the largest logit, which is appended, and left out afterwards.
        rows = np.concatenate([part, largest[:, None]], axis=1)
        found = backend.kept_set(rows, settings)
        passed = backend.kept_set(rows, settings | {"min_p": min_p}) if np.any(min_p) else found
        for b, row in enumerate(split(found)):
            inside = row["kept_tokens"] < part.shape[1]
            own = {name: row[name][inside] for name in PER_KEPT_TOKEN}
            own["kept_tokens"] += start
            shards[b].append(own | {"passed": passed["kept_size"][b : b + 1] - 1})
    results = []
    for b, of_row in enumerate(shards):
        tokens, masses = _filtered(join(of_row), **case.filters(b))
        drawn = draw_tokens(tokens, masses, uniforms(case.rng(b), FEW))
        results.append({"token": drawn, "kept_size": len(tokens), "total": masses.sum()})
    return {name: np.array([row[name] for row in results]) for name in results[0]}


def _filtered(
    row: Results, temperature: float, top_k: int, top_p: float, min_p: float
) -> tuple[Array, Array]:
    """Return the kept tokens and their masses; "passed" has how many min_p keeps of each shard."""
    ranked = np.lexsort((row["kept_tokens"], -row["logits"]))
    tokens, masses = row["kept_tokens"][ranked], row["masses"][ranked]
    if reference.to_float32(temperature) == 0:
        return tokens[:1], np.full(1, 2**reference.TOP_MASS_BITS, np.uint64)
    kept = min(len(tokens), top_k) if top_k else len(tokens)
    if reference.to_float32(top_p) != 1:
        kept = reference.REDUCTIONS["exact"].nucleus(tokens[:kept], masses[:kept], top_p)
    kept = max(1, min(kept, int(row["passed"].sum())))
    return tokens[:kept], masses[:kept]


# ---------------------------------------------------------------- permutations


def permuted(backends: Sequence[Backend], case: Case, expected: Results) -> Iterator[Check]:
    """The tokens in another order: the distribution is permuted with them."""
    if "mask" in case.settings or case.is_race:  # A token's clock moves with its number.
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
