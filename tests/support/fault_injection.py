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

from fastsample import Sampler, kept_set, sample, softmax
from fastsample.params.table import STAGES
from fastsample.verification.calls import Doors
from fastsample.verification.flush import flushes
from fastsample.verification.sharding import uniforms

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


def other_law(when: When = lambda _logits, _how: True) -> Doors:
    """A `softmax` whose last row is off by one unit in the last place."""

    def faulty(logits: Any, *temperature: Any, **how: Any) -> Any:
        law = softmax(logits, *temperature, **how)
        if when(logits, how):
            law[-1] = np.nextafter(law[-1], np.float32(2))
        return law

    return Doors(softmax=faulty)


def too_few_draws() -> Doors:
    """A `sample` that forgets the last draw of many."""

    def faulty(logits: Any, **how: Any) -> Any:
        result = sample(logits, **how)
        return replace(result, tokens=result.tokens[..., :-1]) if how.get("n") else result

    return Doors(sample=faulty)


def too_few_rows() -> Doors:
    """A `sample` that forgets the last row of a batch on two threads."""

    def faulty(logits: Any, **how: Any) -> Any:
        result = sample(logits, **how)
        return replace(result, tokens=result.tokens[:-1]) if how.get("n_threads") == 2 else result

    return Doors(sample=faulty)


def raising(error: Exception, when: When) -> Doors:
    """A `sample` that raises."""

    def faulty(logits: Any, **how: Any) -> Any:
        if when(logits, how):
            raise error
        return sample(logits, **how)

    return Doors(sample=faulty)


def three_blocks() -> Doors:
    """A `sample` that in fixed looks no further than the third block, where rows are whole."""

    def faulty(logits: Any, **how: Any) -> Any:
        result = sample(logits, **how)
        if how["reduction"] != "fixed" or not is_whole_and_long(logits, how):
            return result
        return replace(result, tokens=np.minimum(result.tokens, 3 * 4096 - 1))

    return Doors(sample=faulty)


def lost_bits() -> Doors:
    """A `sample` that in exact draws by a number whose lowest 32 bits are lost, of long rows."""

    def faulty(logits: Any, **how: Any) -> Any:
        result = sample(logits, **how)
        if how["reduction"] != "exact" or not is_whole_and_long(logits, how):
            return result
        masses = np.zeros(logits.shape[1], np.uint64)
        kept = kept_set(logits)
        masses[kept.tokens] = kept.masses
        running = np.cumsum(masses)
        place = (int(how[name][0]) for name in ("seed", "position", "stream"))
        shares = [u * int(running[-1]) >> 96 << 32 for u in uniforms(*place, how["n"])]
        tokens = np.searchsorted(running, np.array(shares, np.uint64), side="right")
        return replace(result, tokens=tokens[None])

    return Doors(sample=faulty)


def is_whole_and_long(logits: Any, how: dict[str, Any]) -> bool:
    return np.shape(logits)[-1] > 100_000 and not np.any(how["top_k"])


RARE: dict[str, When] = {
    "long and whole": is_whole_and_long,
    "long, float16 or bfloat16": lambda rows, _: rows.shape[-1] > 16_384 and is_narrow_valued(rows),
    "mask": lambda _, how: how.get("mask") is not None,
    "bias": lambda _, how: how.get("bias") is not None,
    "penalty": lambda _, how: bool(np.any(how.get("repetition_penalty", 1.0) != 1.0)),
    "history": lambda _, how: how.get("output") is not None,
    "min_keep": lambda _, how: bool(np.any(how.get("min_keep", 1) > 1)),
    "order of stages": lambda _, how: how.get("stages", STAGES) != STAGES,
    "late stream": lambda _, how: bool(np.any(how["stream"] >= np.uint64(2**31))),
    "late position": lambda _, how: bool(np.any(how["position"] >= np.uint64(2**63))),
}
"""What the row or the arguments must have for a fault, where only some cases have it."""


def is_narrow_valued(rows: Any) -> bool:
    return is_narrow(rows) or bool(
        np.all(np.asarray(rows, np.float32).view(np.uint32) & np.uint32(0x1FFF) == 0)
    )


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
            other_token(lambda logits, _: is_batch(logits) and np.shape(logits)[0] == 1),
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
        "law": ("functions of whole rows", other_law()),
        "too few rows": ("thread counts", too_few_rows()),
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
