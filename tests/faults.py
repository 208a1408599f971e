"""Planted faults: doors that misbehave under exactly one condition, and so must break an invariant.

Each is the door of a fastsample that has that fault. What a fault answers is wrong by one token, by
one unit of mass, or by a position that is forgotten.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fastsample import Sampler, kept_set, sample
from fastsample.proof.answers import Doors
from fastsample.proof.flush import flushes

When = Callable[[Any, dict[str, Any]], bool]


def other_token(when: When) -> Doors:
    """A `sample` that gives the token after the right one."""

    def faulty(logits: Any, **how: Any) -> Any:
        result = sample(logits, **how)
        if not when(logits, how):
            return result
        return replace(result, tokens=(np.asarray(result.tokens) + 1) % np.shape(logits)[-1])

    return Doors(sample=faulty)


def other_logprob(when: When) -> Doors:
    """A `sample` whose log-probabilities are off by one unit in the last place."""

    def faulty(logits: Any, **how: Any) -> Any:
        result = sample(logits, **how)
        if how.get("logprobs") is None or not when(logits, how):
            return result
        return replace(result, logprobs=np.nextafter(result.logprobs, 1))

    return Doors(sample=faulty)


def other_mass(when: When) -> Doors:
    """A `kept_set` in which every mass is one too many."""

    def faulty(logits: Any, **how: Any) -> Any:
        found = kept_set(logits, **how)
        return replace(found, masses=found.masses + 1) if when(logits, how) else found

    return Doors(kept_set=faulty)


def fourth_run() -> Doors:
    """A `sample` that goes wrong the fourth time that it is asked the same."""
    asked: list[Any] = []

    def when(logits: Any, how: dict[str, Any]) -> bool:
        names = ("n", "engine", "isa", "reduction", "n_threads", "logprobs")
        question = (id(logits), *(how.get(name) for name in names))
        asked.append(question)
        alike = asked[-4:] == [question] * 4 and asked[-5:-4] != [question]
        return is_batch(logits) and alike

    return other_token(when)


class Forgetful(Sampler):
    """One whose copies have lost their position."""

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state["roster"].reset(0, None)
        return state


def in_the_child() -> Doors:
    parent = os.getpid()
    return other_token(lambda logits, how: os.getpid() != parent)


def is_batch(logits: Any) -> bool:
    return np.ndim(logits) == 2


def starts_at(logits: Any, offset: int) -> bool:
    return is_batch(logits) and not is_narrow(logits) and logits.ctypes.data % 64 == offset


def is_spread(logits: Any) -> bool:
    """Whether the columns do not lie side by side."""
    return is_batch(logits) and not is_narrow(logits) and logits.strides[1] != logits.itemsize


def is_narrow(logits: Any) -> bool:
    return bool(logits.dtype != np.float32)


def strangers(cases: list[Any]) -> Callable[[Any], bool]:
    """Whether rows of a case's size are none of its rows: their tokens have changed places."""
    sizes = {case.vocabulary for case in cases}
    known = {row.tobytes() for case in cases for row in case.rows}

    def strange(logits: Any) -> bool:
        if is_narrow(logits) or logits.shape[-1] not in sizes:
            return False
        return any(np.ascontiguousarray(row).tobytes() not in known for row in logits)

    return strange


def is_shard(cases: list[Any]) -> Callable[[Any], bool]:
    """Whether rows are of no case's size."""
    sizes = {case.vocabulary for case in cases}
    return lambda logits: logits.shape[-1] not in sizes


def planted(cases: list[Any]) -> dict[str, tuple[str, Doors]]:
    """By name of the fault: the invariant that it breaks, and the doors."""
    strange, shard = strangers(cases), is_shard(cases)
    return {
        "three threads": ("thread counts", other_token(lambda _, how: how.get("n_threads") == 3)),
        "mass by eight threads": (
            "thread counts",
            other_mass(lambda _, how: how.get("n_threads") == 8),
        ),
        "fourth run": ("repeated runs", fourth_run()),
        "one row alone": (
            "batch splits, orders, companions",
            other_token(lambda logits, _: is_batch(logits) and len(logits) == 1),
        ),
        "bad companion": (
            "batch splits, orders, companions",
            other_token(lambda logits, how: how.get("on_invalid") == "mark"),
        ),
        "no axis for the batch": (
            "one by one against batched",
            other_token(lambda logits, _: np.ndim(logits) == 1),
        ),
        "single tokens": (
            "one by one against batched",
            other_token(lambda logits, how: np.ndim(logits) == 1 and how.get("n") is None),
        ),
        "with log-probabilities": (
            "with and without log-probabilities",
            other_token(lambda _, how: how.get("logprobs") == 0),
        ),
        "narrow dtype": ("dtypes of equal values", other_token(lambda rows, _: is_narrow(rows))),
        "mass of a narrow dtype": (
            "dtypes of equal values",
            other_mass(lambda rows, _: is_narrow(rows)),
        ),
        "unaligned": ("strides and alignments", other_token(lambda rows, _: starts_at(rows, 12))),
        "strided": ("strides and alignments", other_token(lambda rows, _: is_spread(rows))),
        "forked": ("fork, pickle, clone", in_the_child()),
        "pickled or cloned": ("fork, pickle, clone", Doors(sampler=Forgetful)),
        "flushed": ("flush-to-zero on", other_token(lambda _rows, _how: flushes())),
        "shard": ("vocabulary shards", other_mass(lambda rows, _: shard(rows))),
        "moved": ("vocabulary permutations", other_mass(lambda rows, _: strange(rows))),
        "moved draw": (
            "vocabulary permutations",
            other_token(lambda rows, how: moved_draw(rows, how, strange)),
        ),
    }


def moved_draw(rows: Any, how: dict[str, Any], strange: Callable[[Any], bool]) -> bool:
    """A draw from a batch whose tokens have changed places; companions are strangers as well."""
    return is_batch(rows) and how.get("on_invalid") != "mark" and strange(rows)
