"""Planted faults: public functions that misbehave under one condition, and so break an invariant.

Each is a `PublicApi` in which one function returns a token or a mass that is wrong by one, forgets
a row, a draw or its position, or raises.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fastsample import Sampler, kept_set, sample, softmax
from fastsample.params.table import STAGES
from fastsample.verification.calls import PublicApi
from fastsample.verification.flush import flushes
from fastsample.verification.sharding import uniforms

When = Callable[[Any, dict[str, Any]], bool]


def always(_logits: Any, _options: dict[str, Any]) -> bool:
    return True


def changing_sample(change: Callable[[Any, Any, dict[str, Any]], Any]) -> PublicApi:
    """A `sample` whose result is changed."""

    def faulty(logits: Any, **options: Any) -> Any:
        return change(sample(logits, **options), logits, options)

    return PublicApi(sample=faulty)


def other_token(when: When) -> PublicApi:
    """A `sample` that returns the token after the right one."""

    def change(result: Any, logits: Any, options: dict[str, Any]) -> Any:
        if not when(logits, options):
            return result
        return replace(result, tokens=(np.asarray(result.tokens) + 1) % np.shape(logits)[-1])

    return changing_sample(change)


def other_logprob(when: When) -> PublicApi:
    """A `sample` whose log-probabilities are off by one unit in the last place."""

    def change(result: Any, logits: Any, options: dict[str, Any]) -> Any:
        if options.get("logprobs") is None or not when(logits, options):
            return result
        return replace(result, logprobs=np.nextafter(result.logprobs, 1))

    return changing_sample(change)


def other_mass(when: When) -> PublicApi:
    """A `kept_set` in which every mass is one too many."""

    def faulty(logits: Any, **options: Any) -> Any:
        found = kept_set(logits, **options)
        return replace(found, masses=found.masses + 1) if when(logits, options) else found

    return PublicApi(kept_set=faulty)


def other_softmax(when: When = always) -> PublicApi:
    """A `softmax` whose last row is off by one unit in the last place."""

    def faulty(logits: Any, *temperature: Any, **options: Any) -> Any:
        probabilities = softmax(logits, *temperature, **options)
        if when(logits, options):
            probabilities[-1] = np.nextafter(probabilities[-1], np.float32(2))
        return probabilities

    return PublicApi(softmax=faulty)


def too_few_draws() -> PublicApi:
    """A `sample` that forgets the last draw of many."""
    return changing_sample(
        lambda result, _, options: (
            replace(result, tokens=result.tokens[..., :-1]) if options.get("n") else result
        )
    )


def too_few_rows() -> PublicApi:
    """A `sample` that forgets the last row of a batch on two threads."""
    return changing_sample(
        lambda result, _, options: (
            replace(result, tokens=result.tokens[:-1]) if options.get("n_threads") == 2 else result
        )
    )


def raising(error: Exception, when: When) -> PublicApi:
    """A `sample` that raises."""

    def faulty(logits: Any, **options: Any) -> Any:
        if when(logits, options):
            raise error
        return sample(logits, **options)

    return PublicApi(sample=faulty)


def three_blocks() -> PublicApi:
    """A `sample` that in fixed does not look past the third block of long rows without top_k."""

    def change(result: Any, logits: Any, options: dict[str, Any]) -> Any:
        if options["reduction"] != "fixed" or not is_long_without_top_k(logits, options):
            return result
        return replace(result, tokens=np.minimum(result.tokens, 3 * 4096 - 1))

    return changing_sample(change)


def lost_bits() -> PublicApi:
    """A `sample` that in exact loses the lowest 32 bits of the number it draws long rows with."""

    def change(result: Any, logits: Any, options: dict[str, Any]) -> Any:
        if options["reduction"] != "exact" or not is_long_without_top_k(logits, options):
            return result
        masses = np.zeros(logits.shape[1], np.uint64)
        kept = kept_set(logits)
        masses[kept.tokens] = kept.masses
        running = np.cumsum(masses)
        rng = {name: int(options[name][0]) for name in ("seed", "position", "stream")}
        shares = [u * int(running[-1]) >> 96 << 32 for u in uniforms(rng, options["n"])]
        tokens = np.searchsorted(running, np.array(shares, np.uint64), side="right")
        return replace(result, tokens=tokens[None])

    return changing_sample(change)


def is_long_without_top_k(logits: Any, options: dict[str, Any]) -> bool:
    return np.shape(logits)[-1] > 100_000 and not np.any(options["top_k"])


RARE: dict[str, When] = {
    "long without top_k": is_long_without_top_k,
    "long, float16 or bfloat16": lambda rows, _: rows.shape[-1] > 16_384 and is_narrow_valued(rows),
    "mask": lambda _, options: options.get("mask") is not None,
    "bias": lambda _, options: options.get("bias") is not None,
    "penalty": lambda _, options: bool(np.any(options.get("repetition_penalty", 1.0) != 1.0)),
    "history": lambda _, options: options.get("output") is not None,
    "min_keep": lambda _, options: bool(np.any(options.get("min_keep", 1) > 1)),
    "order of stages": lambda _, options: options.get("stages", STAGES) != STAGES,
    "late stream": lambda _, options: bool(np.any(options["stream"] >= np.uint64(2**31))),
    "late position": lambda _, options: bool(np.any(options["position"] >= np.uint64(2**63))),
}
"""What the row or the arguments must have for a fault, where only some cases have it."""


def is_narrow_valued(rows: Any) -> bool:
    return is_narrow(rows) or bool(
        np.all(np.asarray(rows, np.float32).view(np.uint32) & np.uint32(0x1FFF) == 0)
    )


def fourth_run() -> PublicApi:
    """A `sample` that returns another token at the fourth of equal calls in a row."""
    calls: list[Any] = []

    def when(logits: Any, options: dict[str, Any]) -> bool:
        names = ("n", "engine", "isa", "reduction", "n_threads", "logprobs")
        call = (id(logits), *(options.get(name) for name in names))
        calls.append(call)
        return is_batch(logits) and calls[-4:] == [call] * 4 and calls[-5:-4] != [call]

    return other_token(when)


class Forgetful(Sampler):
    """One whose copies have lost their position."""

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state["table"].reset(0, None)
        return state


class Repeating(Sampler):
    """One whose fresh seed is the same in every forked process."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        if self.params.seed is None:
            super().__init__(*args, **keywords | {"seed": self.seed})


def in_a_fork() -> PublicApi:
    parent = os.getpid()
    return other_token(lambda *_: os.getpid() != parent)


def is_batch(logits: Any) -> bool:
    return np.ndim(logits) == 2


def starts_at(logits: Any, offset: int) -> bool:
    return is_batch(logits) and not is_narrow(logits) and logits.ctypes.data % 64 == offset


def is_spread(logits: Any) -> bool:
    """Whether the columns are not next to each other."""
    return is_batch(logits) and not is_narrow(logits) and logits.strides[1] != logits.itemsize


def is_narrow(logits: Any) -> bool:
    return bool(logits.dtype != np.float32)


def unknown_rows(cases: list[Any]) -> Callable[[Any], bool]:
    """Whether rows of a case's size are none of its rows: their tokens have changed places."""
    sizes = {case.vocabulary for case in cases}
    known = {row.tobytes() for case in cases for row in case.rows}

    def is_unknown(logits: Any) -> bool:
        if is_narrow(logits) or logits.shape[-1] not in sizes:
            return False
        return any(np.ascontiguousarray(row).tobytes() not in known for row in logits)

    return is_unknown


def planted(cases: list[Any]) -> dict[str, tuple[str, PublicApi]]:
    """By name of the fault: the invariant that it breaks, and the faulty functions."""
    is_permuted, sizes = unknown_rows(cases), {case.vocabulary for case in cases}
    threads, batches = "thread counts", "batch splits, orders, companions"
    single, memory = "one by one against batched", "strides and alignments"
    dtypes, permutations = "dtypes of equal values", "vocabulary permutations"
    return {
        "three threads": (threads, other_token(lambda _, o: o.get("n_threads") == 3)),
        "mass by eight threads": (threads, other_mass(lambda _, o: o.get("n_threads") == 8)),
        "too few rows": (threads, too_few_rows()),
        "fourth run": ("repeated runs", fourth_run()),
        "one row alone": (
            batches,
            other_token(lambda rows, _: is_batch(rows) and np.shape(rows)[0] == 1),
        ),
        "invalid companion": (batches, other_token(lambda _, o: o.get("on_invalid") == "mark")),
        "no axis for the batch": (single, other_token(lambda rows, _: np.ndim(rows) == 1)),
        "single tokens": (
            single,
            other_token(lambda rows, o: np.ndim(rows) == 1 and o.get("n") is None),
        ),
        "with log-probabilities": (
            "with and without log-probabilities",
            other_token(lambda _, o: o.get("logprobs") == 0),
        ),
        "softmax": ("functions of whole rows", other_softmax()),
        "narrow dtype": (dtypes, other_token(lambda rows, _: is_narrow(rows))),
        "mass of a narrow dtype": (dtypes, other_mass(lambda rows, _: is_narrow(rows))),
        "unaligned": (memory, other_token(lambda rows, _: starts_at(rows, 12))),
        "strided": (memory, other_token(lambda rows, _: is_spread(rows))),
        "forked": ("fork, pickle, clone", in_a_fork()),
        "same seed in a fork": ("fork, pickle, clone", PublicApi(sampler=Repeating)),
        "pickled or cloned": ("fork, pickle, clone", PublicApi(sampler=Forgetful)),
        "flushed": ("flush-to-zero on", other_token(lambda *_: flushes())),
        "shard": ("vocabulary shards", other_mass(lambda rows, _: rows.shape[-1] not in sizes)),
        "permuted": (permutations, other_mass(lambda rows, _: is_permuted(rows))),
        "permuted draw": (
            permutations,
            other_token(
                # Rows with companions are unknown as well.
                lambda rows, o: is_batch(rows) and "on_invalid" not in o and is_permuted(rows)
            ),
        ),
    }
