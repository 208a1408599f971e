"""The invariants of section 9: for each the results that must equal the reference's."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from .backends import THREADS
from .calls import TOP, Backend, Check, PublicApi, Results, join, split
from .cases import DRAWS, Case
from .flush import flushing
from .memory import layouts, narrowed
from .rows import Array, RandomWords
from .sharding import draw_tokens, permuted, sharded, uniforms
from .worker import NoForkError, run_forked

RUNS = 5
SINGLE = 4  # So many draws of a row are made in calls of their own.
UNSEEDED_STEPS = 2  # For so many rows the reference draws again, with each backend's own seed.
FLAT_DRAWS, FLAT_DRAWS_SLOW = 4096, 64
QUICK_TO_DRAW = ("native", "torch")  # Thousands of draws from a long row take them little time.

Checks = Callable[[Sequence[Backend], Case, Results], Iterator[Check]]
Variants = Iterator[tuple[Any, ...]]
"""Names of variants with their results, and where not all draws were wanted, how many."""


def expected_results(case: Case, reduction: str) -> Results:
    """Return the reference's results: draws alone where there are many."""
    reference = Backend(PublicApi(), "reference", None, reduction)
    results = reference.kept_set(case.rows, case.settings)
    if (
        results and not case.is_race
    ):  # One running sum for all draws of a row, of which each takes the reference long.
        numbers = [uniforms(case.rng(b), case.draws) for b in range(len(case.rows))]
        kept = [(row["kept_tokens"], row["masses"]) for row in split(results)]
        tokens = np.stack([draw_tokens(*row, us) for row, us in zip(kept, numbers, strict=True)])
    else:
        tokens = reference.draw(case.rows, case.settings, min(case.draws, FLAT_DRAWS_SLOW))
    if case.draws <= DRAWS:
        results |= reference.logprobs(case, TOP, case.logprobs_modes) | reference.functions(case)
        results |= reference.distinct(case)
    return results | {"token": tokens}


def draws(backends: Sequence[Backend], case: Case, expected: Results) -> Iterator[Check]:
    """Draws alone, as many as take the engine little time."""
    for backend in backends:
        is_quick = backend.record.name in QUICK_TO_DRAW
        n = min(FLAT_DRAWS if is_quick else FLAT_DRAWS_SLOW, expected["token"].shape[1])
        got = {"token": backend.draw(case.rows, case.settings, n)}
        yield Check(backend.label, expected, "all", got, n)


def each(variants: Callable[[Backend, Case], Variants]) -> Checks:
    """Check the variants of every backend on its own."""

    def checks(backends: Sequence[Backend], case: Case, expected: Results) -> Iterator[Check]:
        for backend in backends:
            for variant in variants(backend, case):
                yield Check(backend.label, expected, *variant)

    return checks


@each
def everything(backend: Backend, case: Case) -> Variants:
    yield "all", backend.everything(case)


@each
def functions(backend: Backend, case: Case) -> Variants:
    yield "all", backend.functions(case)


@each
def repeated_runs(backend: Backend, case: Case) -> Variants:
    for run in range(1, RUNS + 1):
        yield str(run), {"token": backend.draw(case.rows, case.settings, case.draws)}


@each
def thread_counts(backend: Backend, case: Case) -> Variants:
    for count in THREADS if backend.record.has_threads else ():
        yield str(count), backend.draw_and_weigh(case, case.rows, n_threads=count)


@each
def dtypes(backend: Backend, case: Case) -> Variants:
    if case.dtype != "float32":
        yield case.dtype, backend.draw_and_weigh(case, narrowed(case.rows, case.dtype))


@each
def memory(backend: Backend, case: Case) -> Variants:
    for layout, rows in layouts(case.rows):
        yield layout, backend.draw_and_weigh(case, rows)


@each
def logprobs_or_not(backend: Backend, case: Case) -> Variants:
    yield "without", {"token": backend.draw(case.rows, case.settings, None)[:, None]}, 1
    yield "the token's", {"token": backend.logprobs(case, 0, ("raw",))["token"]}, 1
    yield "top ones too", backend.logprobs(case, TOP, case.logprobs_modes), 1


@each
def batches(backend: Backend, case: Case) -> Variants:
    """The same rows in other calls, in another order, and with other rows."""
    rows = np.arange(len(case.rows))
    shuffled = RandomWords(len(rows)).permutation(len(rows))
    calls = {
        "first alone": [rows[:1], rows[1:]],
        "in halves": np.array_split(rows, 2),
        "backwards": [rows[::-1]],
        "shuffled in threes": np.array_split(shuffled, -(-len(rows) // 3)),
        "each row twice": [np.concatenate([rows, rows[::-1]])],
    }
    for variant, parts in calls.items():
        results: dict[int, Results] = {}
        for part in filter(len, parts):
            some = case.take(part)
            found = split(backend.draw_and_weigh(some, some.rows))
            results |= zip(part.tolist(), found, strict=True)
        yield variant, join([results[row] for row in rows.tolist()])
    # A flat row before the first, an invalid one after it, and a flat one after the last.
    some = case.take(np.insert(rows, [0, 1, len(rows)], 0))
    others = [0, 2, len(rows) + 2]
    some.rows[others] = np.array([[0], [np.nan], [0]])
    tokens = backend.draw(some.rows, some.settings, case.draws, on_invalid="mark")
    yield "with other rows", {"token": np.delete(tokens, others, axis=0)}


@each
def one_by_one(backend: Backend, case: Case) -> Variants:
    """Row by row, token by token, and from a `Sampler` step by step."""
    rows, tokens = [], []
    for b, row in enumerate(case.rows):
        settings = case.row_settings(b)
        rows.append(backend.draw(row, settings, case.draws))
        streams = range(settings["stream"], settings["stream"] + SINGLE)
        tokens.append([backend.draw(row, settings | {"stream": one}, None) for one in streams])
    yield "row by row", {"token": np.stack(rows)}
    yield "token by token", {"token": np.array(tokens)}, SINGLE
    if case.is_sequence:
        yield "Sampler", {"token": _steps(_sampler(backend, case), case.rows, case.draws)}


@each
def flush_to_zero(backend: Backend, case: Case) -> Variants:
    with flushing() as flushed:
        results = backend.draw_and_weigh(case, case.rows) if flushed else {}
    if flushed:
        yield "on", results


def _sampler(backend: Backend, case: Case, **changes: Any) -> Any:
    """A `Sampler` at the case's first step."""
    rng = case.rng(0)
    chosen = {**case.filters(0), "draw": case.settings["draw"], "seed": rng["seed"], **changes}
    sampler = backend.api.sampler(**chosen, stream="row", **backend.options)
    sampler.reset(rng["position"])
    return sampler


def _steps(sampler: Any, rows: Array, draws: int) -> Array:
    """A token of each row for as many sequences as the case has draws: on the same streams."""
    return np.stack([sampler(np.broadcast_to(row, (draws, len(row)))) for row in rows])


def copies(backends: Sequence[Backend], case: Case, expected: Results) -> Iterator[Check]:
    """A forked process; and a `Sampler` that is forked, pickled or cloned between two steps.

    One without a seed has another in the forked process, and draws with the one that it shows.
    """
    half = len(case.rows) // 2
    samplers = [_sampler(backend, case) for backend in backends] if case.is_sequence else []
    before = [_steps(sampler, case.rows[:half], case.draws) for sampler in samplers]
    unseeded = [_sampler(backend, case, seed=None) for backend in backends if case.is_sequence]
    able = [n for n, one in enumerate(backends) if one.record.survives_fork]

    def rest(n: int, sampler: Any) -> Results:
        after = _steps(sampler, case.rows[half:], case.draws)
        return {"token": np.concatenate([before[n], after])}

    def in_fork() -> list[tuple[int, str, Results]]:
        tokens = [(n, backends[n].draw(case.rows, case.settings, case.draws)) for n in able]
        draws = [(n, "forked", {"token": drawn}) for n, drawn in tokens]
        return draws + [(n, "Sampler forked", rest(n, samplers[n])) for n in able if samplers]

    def of_fresh_seeds() -> list[tuple[int, int, Array]]:
        rows = case.rows[:UNSEEDED_STEPS]
        return [(n, unseeded[n].seed, _steps(unseeded[n], rows, SINGLE)) for n in able if unseeded]

    results: list[tuple[int, str, Results]] = []
    seeds: list[tuple[int, int, Array]] = []
    with suppress(NoForkError):
        # One process for all backends, as a fork takes longer than a draw.
        results, seeds = run_forked(lambda: (in_fork(), of_fresh_seeds())) if able else ([], [])
    for n, sampler in enumerate(samplers):
        results.append((n, "Sampler pickled", rest(n, pickle.loads(pickle.dumps(sampler)))))
        results.append((n, "Sampler cloned", rest(n, sampler.clone())))
    for n, variant, got in results:
        yield Check(backends[n].label, expected, variant, got)
    for n, seed, tokens in seeds:
        yield _fresh_seed_check(backends[n], case, seed, tokens, seed != unseeded[n].seed)


def _fresh_seed_check(
    backend: Backend, case: Case, seed: int, tokens: Array, is_new: bool
) -> Check:
    """Compare what a `Sampler` without a seed drew in a forked process, where it had this one."""
    some = case.take(slice(UNSEEDED_STEPS))
    settings = some.settings | {"seed": np.full(len(some.rows), seed, np.uint64)}
    reference = Backend(PublicApi(), "reference", None, backend.reduction)
    drawn = reference.draw(some.rows, settings, SINGLE)
    expected = {"token": drawn, "is_new_seed": np.array([True])}
    got = {"token": tokens, "is_new_seed": np.array([is_new])}
    return Check(backend.label, expected, "Sampler without a seed, forked", got, seed=seed)


class Invariant(NamedTuple):
    """An invariant: its name, its checks, and the reduction modes that guarantee it.

    Some are checked with calls that name no engine as well.
    """

    name: str
    checks: Checks
    modes: tuple[str, ...] = ("exact", "fixed")
    with_default: bool = False


INVARIANTS = (
    Invariant("engines x instruction sets", everything, with_default=True),
    Invariant("repeated runs", repeated_runs),
    Invariant("thread counts", thread_counts),
    Invariant("batch splits, orders, companions", batches),
    Invariant("one by one against batched", one_by_one, with_default=True),
    Invariant("with and without log-probabilities", logprobs_or_not),
    Invariant("functions of whole rows", functions, with_default=True),
    Invariant("dtypes of equal values", dtypes),
    Invariant("strides and alignments", memory),
    Invariant("fork, pickle, clone", copies),
    Invariant("flush-to-zero on", flush_to_zero),
    Invariant("vocabulary shards", sharded, modes=("exact",)),
    Invariant("vocabulary permutations", permuted, modes=("exact",)),
)
DRAWS_ALONE = Invariant(INVARIANTS[0].name, draws, with_default=True)
