"""The table of invariants: for each a function that asks the same thing in other ways.

Such a function takes every way to ask, a case and the reference's answer, and yields what came
back, next to what should have. It says nothing about whether they are equal: `ledger` does.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsample.params.parameters import SamplingParams

from .calls import TOP, Answer, Way
from .cases import Case, row_of, rows_of
from .child import NoChildError, in_child
from .flush import flushing
from .memory import narrowed, places
from .rows import Dice, bell
from .sharding import (
    FEW,
    law_to_move,
    merged,
    moved,
    permutations,
    pieces,
    shard_count,
    ties_at_the_cut,
    uniforms_of,
    whole_of,
)

THREADS = (1, 2, 3, 8)
THREADED = ("native",)
"""Engines that have threads."""
UNFORKED = ("triton",)
"""Engines on a GPU: CUDA refuses a forked child whose parent has it in use."""
RUNS = 5
SINGLE = 4


class Held(NamedTuple):
    """One answer, which way it came, and what it should be."""

    variant: str
    way: str
    got: Answer
    expected: Answer


Ask = Callable[[Sequence[Way], Case, Answer], Iterator[Held]]
Variants = Iterator[tuple[str, Answer]]


def of_each(vary: Callable[[Way, Case], Variants]) -> Ask:
    """Ask every engine, each on its own, and hold it to the reference's answer."""

    def ask(ways: Sequence[Way], case: Case, expected: Answer) -> Iterator[Held]:
        for way in ways:
            for variant, got in vary(way, case):
                yield Held(variant, way.label, got, expected)

    return ask


def _drawn(way: Way, case: Case, rows: Any, **how: Any) -> Answer:
    """Every draw, and the masses; those of large rows take long to sort, and are asked for once."""
    tokens = way.draw(rows, case.settings, case.draws, **how)
    masses = None if case.is_large else way.masses(rows, case.settings, **how)
    return Answer(tokens=tokens, masses=masses)


def whole_answers(way: Way, case: Case) -> Variants:
    """Tokens, masses and the log-probabilities of every form."""
    yield "all", way.whole(case)


def repeated_runs(way: Way, case: Case) -> Variants:
    """The very same call again and again."""
    for run in range(1, RUNS + 1):
        yield str(run), Answer(tokens=way.draw(case.rows, case.settings, case.draws))


def thread_counts(way: Way, case: Case) -> Variants:
    """Rows over more and fewer threads, by an engine that has them."""
    for count in THREADS if way.engine in THREADED else ():
        yield str(count), _drawn(way, case, case.rows, n_threads=count)


def _parted(way: Way, case: Case, parts: Sequence[NDArray[np.int64]]) -> Answer:
    """Rows in several calls, each with some of them in some order, put together again."""
    tokens = np.full((len(case.rows), case.draws), -1, np.int64)
    kept: dict[int, tuple[NDArray[Any], ...]] = {}
    for part in filter(len, parts):
        rows, settings = case.rows[part], rows_of(case.settings, part)
        tokens[part] = way.draw(rows, settings, case.draws)
        masses = None if case.is_large else way.masses(rows, settings)
        if masses is not None:
            kept.update(zip(part.tolist(), pieces(masses), strict=True))
    if not kept:
        return Answer(tokens=tokens)
    ordered = [kept[b] for b in range(len(case.rows))]
    offsets = np.cumsum([0, *(len(one[0]) for one in ordered)], dtype=np.int64)
    return Answer(
        tokens=tokens,
        masses=(*(np.concatenate([one[at] for one in ordered]) for at in (0, 1)), offsets),
    )


def batches(way: Way, case: Case) -> Variants:
    """Other splits, other orders, other companions."""
    numbers = np.arange(len(case.rows))
    yield "first alone", _parted(way, case, [numbers[:1], numbers[1:]])
    yield "in halves", _parted(way, case, np.array_split(numbers, 2))
    yield "backwards", _parted(way, case, [numbers[::-1]])
    shuffled = Dice(len(numbers)).permutation(len(numbers))
    yield "shuffled in threes", _parted(way, case, np.array_split(shuffled, -(-len(numbers) // 3)))
    doubled = np.concatenate([numbers, numbers[::-1]])
    yield "each row twice", _parted(way, case, [doubled])
    yield "beside others", _beside(way, case)


@lru_cache(maxsize=4)
def _strangers(vocabulary: int) -> NDArray[np.float32]:
    """Three rows, the second of which is bad."""
    rows = np.stack([bell(Dice(n), vocabulary) for n in range(3)])
    rows[1, vocabulary // 2] = np.nan
    return rows


def _beside(way: Way, case: Case) -> Answer:
    """Rows among strangers, one of which is bad."""
    strangers = _strangers(case.vocabulary)
    numbers = np.arange(len(case.rows))
    among = np.concatenate([numbers[:1], numbers[:2], numbers, numbers[:1]])
    rows = case.rows[among]
    places_of_strangers = [0, 2 if len(numbers) > 1 else 1, len(among) - 1]
    rows[places_of_strangers] = strangers
    own = np.full(len(numbers), -1)
    for at in range(len(among)):
        if at not in places_of_strangers:
            own[among[at]] = at
    tokens = way.draw(rows, rows_of(case.settings, among), case.draws, on_invalid="mark")
    return Answer(tokens=tokens[own])


def one_by_one(way: Way, case: Case) -> Variants:
    """Row by row, token by token, and from a `Sampler` step by step, against the batch."""
    singles, each = [], []
    for b, row in enumerate(case.rows):
        settings = row_of(case.settings, b)
        singles.append(way.draw(row, settings, case.draws))
        stream = settings["stream"]
        each.append(
            [way.draw(row, {**settings, "stream": stream + n}, None) for n in range(SINGLE)]
        )
    yield "row by row", Answer(tokens=np.stack(singles))
    yield "token by token", Answer(tokens=np.array(each, np.int64), draws=SINGLE)
    if case.is_sequence:
        yield "Sampler", Answer(tokens=_steps(_sampler(way, case), case.rows, case.draws))


def told_or_not(way: Way, case: Case) -> Variants:
    """The same draw with and without log-probabilities, of one form or more."""
    alone = way.draw(case.rows, case.settings, None)
    yield "without", Answer(tokens=alone[:, None], draws=1)
    yield "the token's", Answer(tokens=way.tell(case, 0, ("raw",)).tokens, draws=1)
    yield "top ones too", way.tell(case, TOP, case.forms)


def dtypes(way: Way, case: Case) -> Variants:
    """The same values in the narrowest dtype that holds them."""
    if case.dtype != "float32":
        yield case.dtype, _drawn(way, case, narrowed(case.rows, case.dtype))


def memory(way: Way, case: Case) -> Variants:
    """The same rows at other addresses, alignments and distances."""
    for place, rows in places(case.rows):
        yield place, _drawn(way, case, rows)


def whole_rows(way: Way, case: Case) -> Variants:
    """Softmax, its logarithm and its normaliser."""
    yield "all", way.laws(case)


def _sampler(way: Way, case: Case) -> Any:
    """A `Sampler` at the case's first step."""
    params = SamplingParams(**case.filters_of(0), seed=int(case.settings["seed"][0]))
    sampler = way.doors.sampler(params, **way.choice, reduction=way.reduction)
    sampler.reset(int(case.settings["position"][0]))
    return sampler


def _steps(sampler: Any, rows: NDArray[np.float32], draws: int) -> NDArray[np.int64]:
    """A token of each row for as many continuations as the case has draws: on the same streams."""
    steps = [sampler(np.broadcast_to(row, (draws, len(row)))) for row in rows]
    return np.stack(steps)


def forked(ways: Sequence[Way], case: Case) -> Iterator[tuple[Way, NDArray[np.int64]]]:
    """What a child draws: one for all engines, for forking takes longer than drawing."""
    try:
        answers = in_child(lambda: [way.draw(case.rows, case.settings, case.draws) for way in ways])
    except NoChildError:
        return
    yield from zip(ways, answers, strict=True)


def copies(ways: Sequence[Way], case: Case, expected: Answer) -> Iterator[Held]:
    """A forked child; and a `Sampler` that is forked, pickled or cloned between two steps."""
    able = [way for way in ways if way.engine not in UNFORKED]
    for way, tokens in forked(able, case):
        yield Held("forked", way.label, Answer(tokens=tokens), expected)
    if not case.is_sequence:
        return
    for way in ways:
        for variant, got in sampler_copies(way, case):
            yield Held(variant, way.label, got, expected)


def sampler_copies(way: Way, case: Case) -> Variants:
    """Half of the steps by one sampler, the other half by what comes of it."""
    half = len(case.rows) // 2
    sampler = _sampler(way, case)
    before = _steps(sampler, case.rows[:half], case.draws)

    def rest(of: Any) -> NDArray[np.int64]:
        return _steps(of, case.rows[half:], case.draws)

    goings = {
        "Sampler pickled": rest(pickle.loads(pickle.dumps(sampler))),
        "Sampler cloned": rest(sampler.clone()),
    }
    if way.engine not in UNFORKED:
        with suppress(NoChildError):
            goings["Sampler forked"] = in_child(lambda: rest(sampler))
    for variant, after in goings.items():
        yield variant, Answer(tokens=np.concatenate([before, after]))


def flush_to_zero(way: Way, case: Case) -> Variants:
    """In the mode in which denormals become 0."""
    with flushing() as flushed:
        if not flushed:
            return
        got = _drawn(way, case, case.rows)
    yield "on", got


def _few(ways: Sequence[Way], case: Case, expected: Answer) -> tuple[Sequence[Way], Case, Answer]:
    """Of large rows, which take long to sort in Python, the first ones, by the first way."""
    if not case.is_large:
        return ways, case, expected
    few = case.few()
    return ways[:1], few, expected.first_rows(len(few.rows))


def shards(ways: Sequence[Way], case: Case, expected: Answer) -> Iterator[Held]:
    """Rows cut into ranges of tokens, merged by maxima and integer sums."""
    if not case.is_plain:
        return
    ways, case, expected = _few(ways, case, expected)
    wanted, numbers = whole_of(expected), uniforms_of(case, FEW)
    count = shard_count(case.vocabulary)
    for way in ways:
        yield Held(f"in {count}", way.label, merged(way, case, count, numbers), wanted)


def permuted(ways: Sequence[Way], case: Case, expected: Answer) -> Iterator[Held]:
    """The tokens in another order: the law goes with them."""
    if case.is_adjusted:
        return
    ways, case, expected = _few(ways, case, expected)
    tied, numbers = ties_at_the_cut(case, expected), uniforms_of(case, FEW)
    every = permutations(case.vocabulary)
    for name, permutation in islice(every, 1) if case.is_large else every:
        wanted = law_to_move(case, expected, permutation, tied, numbers)
        for way in ways:
            yield Held(name, way.label, moved(way, case, permutation, tied), wanted)


class Invariant(NamedTuple):
    """An invariant of rule 9: its name, the modes that promise it, and how it is asked.

    Some are asked as people ask as well, who name no engine.
    """

    name: str
    modes: tuple[str, ...]
    ask: Ask
    of_default: bool = False


BOTH = ("exact", "fixed")

INVARIANTS = (
    Invariant("engines x instruction sets", BOTH, of_each(whole_answers), of_default=True),
    Invariant("repeated runs", BOTH, of_each(repeated_runs)),
    Invariant("thread counts", BOTH, of_each(thread_counts)),
    Invariant("batch splits, orders, companions", BOTH, of_each(batches)),
    Invariant("one by one against batched", BOTH, of_each(one_by_one), of_default=True),
    Invariant("with and without log-probabilities", BOTH, of_each(told_or_not)),
    Invariant("functions of whole rows", BOTH, of_each(whole_rows), of_default=True),
    Invariant("dtypes of equal values", BOTH, of_each(dtypes)),
    Invariant("strides and alignments", BOTH, of_each(memory)),
    Invariant("fork, pickle, clone", BOTH, copies),
    Invariant("flush-to-zero on", BOTH, of_each(flush_to_zero)),
    Invariant("vocabulary shards", ("exact",), shards),
    Invariant("vocabulary permutations", ("exact",), permuted),
)
