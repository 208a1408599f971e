"""The proof itself: cases one after another, each asked in every way, until the time is over."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines import has_native

from .answers import Answer, Doors, Way
from .cases import Case, cases_of, fixed_cases, given_case, large_case, random_case, wide_case
from .conditions import conditions
from .invariants import INVARIANTS, Held
from .ledger import Ledger
from .report import Report
from .rows import Dice
from .shown import PLAIN, Tally, fast_tokens, plain_tokens
from .vocabulary import drawn, pieces, uniforms_of
from .ways import default_way, engines_here, threads_allowed, ways

MODES = ("exact", "fixed")
FIRST_RANDOM = 1000
"""Numbers below are the fixed cases'."""
GIVEN_AT_ONCE = 2
LARGE_AT = 5
"""Of so many random cases one is large, where there is time."""
LEAST_RANDOM = 2
LEAST_SHARE = 0.15
"""Of the time, for random cases: that much is added where the fixed ones took longer."""
WIDE_DRAWS = 4096
WIDE_DRAWS_SLOW = 64
"""Others than the native engine, and the reference in fixed, take a millisecond for each."""

Tell = Callable[[float, int], None]


@dataclass(frozen=True)
class Wish:
    """What is to be proved, and for how long."""

    seconds: float
    seed: int
    quick: bool = False
    values: NDArray[Any] | None = None
    good: tuple[int, ...] = ()
    tell: Tell | None = None
    doors: Doors = field(default_factory=Doors)


class Proof:
    """Everything that is counted while a proof goes on."""

    def __init__(self, wish: Wish) -> None:
        self._wish, self._started = wish, perf_counter()
        self._engines, self._absent = engines_here(wish.quick)
        self._ledgers = {
            (mode, invariant.name): Ledger(invariant, mode)
            for mode in MODES
            for invariant in INVARIANTS
            if mode in invariant.modes
        }
        self._ways = {mode: ways(wish.doors, self._engines, mode) for mode in (*MODES, "fast")}
        self._fast = [Tally(f"fast, {way.label}") for way in self._ways["fast"]]
        self._plain = Tally(PLAIN)
        self._rows = self._logits = self._largest = 0
        self._cases: Counter[str] = Counter()

    def _oracle(self, mode: str) -> Way:
        """The reference, by the true doors whatever doors are tried."""
        return Way(Doors(), "reference", None, mode)

    def hold(self, case: Case, fingerprint: Any = None, origin: str = "fixed") -> None:
        """Ask everything of one case."""
        self._rows += len(case.rows)
        self._logits += case.rows.size
        self._largest = max(self._largest, case.vocabulary)
        self._cases[origin] += 1
        for mode in MODES:
            expected = self._expected(mode, case)
            if expected is None:
                continue
            for (of_mode, _), ledger in self._ledgers.items():
                if of_mode == mode:
                    held = ledger.ask(self._asked(ledger), case, expected)
                    if fingerprint is not None and ledger is self._first_of(mode):
                        _add(fingerprint, held)
            if mode == "exact":
                self._show(case, expected)
        self._report_progress()

    def _expected(self, mode: str, case: Case) -> Answer | None:
        """The reference's answer; None where it has none, which the first line then tells."""
        oracle, answers = self._oracle(mode), []

        def ask() -> Iterator[Held]:
            answers.append(replace(oracle.whole(case), laws=oracle.laws(case).laws))
            yield from ()

        self._first_of(mode).write(case, ask())
        return answers[0] if answers else None

    def _asked(self, ledger: Ledger) -> list[Way]:
        here = self._ways[ledger.reduction]
        more = [default_way(self._wish.doors, ledger.reduction)] if ledger.of_default else []
        return [*here, *more]

    def _first_of(self, mode: str) -> Ledger:
        return self._ledgers[mode, INVARIANTS[0].name]

    def _show(self, case: Case, exact: Answer) -> None:
        for tally, way in zip(self._fast, self._ways["fast"], strict=True):
            tally.ask(case, exact, lambda way=way: fast_tokens(way, case))  # type: ignore[misc]
        if case.is_plain:
            self._plain.ask(case, exact, lambda: plain_tokens(case))

    def hold_wide(self) -> None:
        """Draw often from a wide law, where a sum that is off by little moves some draws."""
        case = wide_case(WIDE_DRAWS)
        exact = self._wide_answer(case)
        few = replace(case, draws=WIDE_DRAWS_SLOW)
        fixed = Answer(tokens=self._oracle("fixed").draw(few.rows, few.settings, few.draws))
        for mode, expected in (("exact", exact), ("fixed", fixed)):
            ledger = self._first_of(mode)
            ledger.write(case, self._wide_draws(self._asked(ledger), case, expected))
        for tally, way in zip(self._fast, self._ways["fast"], strict=True):
            number = _wide_count(way)
            part, cut = replace(case, draws=number), _first_draws(exact, number)
            tally.ask(part, cut, lambda way=way, part=part: fast_tokens(way, part))  # type: ignore[misc]
        self._plain.ask(case, exact, lambda: plain_tokens(case))

    def _wide_answer(self, case: Case) -> Answer:
        """By the reference's masses, but all draws of one running sum: each takes it long."""
        kept = pieces(self._oracle("exact").masses(case.rows, case.settings))
        numbers = uniforms_of(case, case.draws)
        tokens = [drawn(own[0], own[1], us) for own, us in zip(kept, numbers, strict=True)]
        return Answer(tokens=np.array(tokens, np.int64))

    def _wide_draws(self, asked: list[Way], case: Case, expected: Answer) -> Iterator[Held]:
        for way in asked:
            number = min(_wide_count(way), expected.size("token"))
            got = Answer(tokens=way.draw(case.rows, case.settings, number), draws=number)
            yield Held("all", way.label, got, expected)

    def _report_progress(self) -> None:
        if self._wish.tell is not None:
            self._wish.tell(min(1.0, self.elapsed / self._wish.seconds), self.tokens)

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return perf_counter() - self._started

    @property
    def tokens(self) -> int:
        """How many tokens were compared."""
        return sum(ledger.tokens for ledger in self._ledgers.values())

    def fingerprint(self, cases: list[Case], origin: str = "fixed") -> str:
        """Hold these cases, and hash what the first engine answers."""
        digest = hashlib.sha256()
        for case in cases:
            self.hold(case, digest, origin)
        return digest.hexdigest()

    def _proved(self) -> bool:
        """Whether each mode was held to the reference at all: nothing compared is no proof."""
        return all(self._first_of(mode).tokens for mode in MODES)

    def report(self, fingerprint: str, of_logits: str | None) -> Report:
        """What it comes to."""
        lines = tuple(ledger.line() for ledger in self._ledgers.values())
        empty = [f"{line.invariant}, {line.reduction}" for line in lines if not line.covered]
        return Report(
            ok=all(line.ok for line in lines)
            and all(self._first_of(mode).tokens for mode in MODES),
            invariants=lines,
            shown=tuple(tally.shown() for tally in (*self._fast, self._plain)),
            conditions=conditions(self._engines, self._absent, self._largest, empty),
            fingerprint=fingerprint,
            logits_fingerprint=of_logits,
            tokens=self.tokens,
            rows=self._rows,
            logits=self._logits,
            seed=self._wish.seed,
            seconds=round(self.elapsed, 3),
            fixed_cases=self._cases["fixed"],
            given_cases=self._cases["given"],
            random_cases=self._cases["random"],
        )


def _add(digest: Any, held: list[Held]) -> None:
    """Add the tokens and masses of the first way to a hash, as little-endian bytes."""
    for one in held[:1]:
        for name in ("token", "masses"):
            for part in one.got.parts().get(name, ()):
                digest.update(part.astype(part.dtype.newbyteorder("<")).tobytes())


def _first_draws(answer: Answer, number: int) -> Answer:
    return Answer(tokens=None if answer.tokens is None else answer.tokens[:, :number])


def _wide_count(way: Way) -> int:
    """How many draws of a wide law it takes little time to make."""
    is_quick = way.engine == "native" or (way.engine is None and has_native())
    return WIDE_DRAWS if is_quick else WIDE_DRAWS_SLOW


def random_cases(wish: Wish) -> Iterator[tuple[str, Case]]:
    """Cases without end, and where they come from: every other one of the user's rows, if any."""
    for at in count():
        number = (wish.seed << 32 | FIRST_RANDOM) + at
        is_large = not wish.quick and at % LARGE_AT == 0
        yield "random", (large_case if is_large else random_case)(number)
        if wish.values is not None:
            dice = Dice(number)
            chosen = [dice.pick(wish.good) for _ in range(GIVEN_AT_ONCE)]
            yield "given", given_case(wish.values, chosen, number)


def prove(wish: Wish) -> Report:
    """Hold the fixed cases, then the user's, then random ones until the time is over.

    A few random ones there are in any case, and time for them.
    """
    values, good = wish.values, wish.good
    with threads_allowed():
        proof = Proof(wish)
        fingerprint = proof.fingerprint(fixed_cases())
        of_logits = None if values is None else proof.fingerprint(cases_of(values, good), "given")
        proof.hold_wide()
        end = max(wish.seconds, proof.elapsed + LEAST_SHARE * wish.seconds)
        made = 0
        for origin, case in random_cases(wish):
            if made >= LEAST_RANDOM and proof.elapsed >= end:
                break
            proof.hold(case, origin=origin)
            made += origin == "random"
    return proof.report(fingerprint, of_logits)
