"""The proof itself: cases one after another, each asked in every way, until the time is over."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines import is_installed

from .backends import (
    IN_FULL,
    IN_FULL_FROM,
    Engines,
    default_way,
    engines_here,
    settle_in,
    threads_allowed,
    ways,
)
from .baselines import PLAIN, Tally, fast_tokens, plain_tokens
from .calls import Answer, Doors, Way, seen_once
from .cases import Case, cases_of, fixed_cases, given_case, large_case, random_case, wide_case
from .child import Child, NoChildError
from .comparison import Book, Ledger
from .environment import conditions
from .invariants import INVARIANTS, Held
from .report import Report
from .rows import Dice
from .sharding import drawn, pieces, uniforms_of

MODES = ("exact", "fixed")
FIRST_RANDOM = 1000
"""Numbers below are the fixed cases'."""
GIVEN_AT_ONCE = 2
LARGE_AT = 5
"""Of so many random cases one is large, where there is time."""
LEAST_RANDOM = 2
LEAST_SHARE = 0.05
"""Of the time, for random cases: that much is added where the fixed ones took longer."""
WIDE_DRAWS = 4096
WIDE_DRAWS_SLOW = 64
"""Numba, and the reference in fixed, take a millisecond for each."""

Tell = Callable[[float, int], None]
Beside = tuple[Engines, dict[tuple[str, str], Book]]
"""What a child says: which engines it has asked, and all that was compared."""


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
    """Everything that is counted while a proof goes on.

    Parameters
    ----------
    wish : Wish
    engines : Engines, optional
    is_beside : bool
        Whether this is the child's part, which asks the engines that are asked there.
    """

    def __init__(self, wish: Wish, engines: Engines | None = None, is_beside: bool = False) -> None:
        self._wish, self._started, self._is_beside = wish, perf_counter(), is_beside
        self._is_brief = is_beside and wish.quick
        self._engines = engines or engines_here(wish.quick)
        self._ledgers = {
            (mode, invariant.name): Ledger(invariant, mode)
            for mode in MODES
            for invariant in INVARIANTS
            if mode in invariant.modes
        }
        asked = self._engines.beside if is_beside else self._engines.here
        self._ways = {mode: ways(wish.doors, asked, mode) for mode in (*MODES, "fast")}
        self._modes = [mode for mode in MODES if self._ways[mode]]
        self._fast = [Tally(f"fast, {way.label}") for way in self._ways["fast"]]
        self._plain = Tally(PLAIN)
        self._rows = self._logits = self._largest = 0
        self._cases: Counter[str] = Counter()

    def _oracle(self, mode: str) -> Way:
        """The reference, by the true doors whatever doors are tried."""
        return Way(Doors(), "reference", None, mode)

    def hold(self, case: Case, fingerprint: Any = None, origin: str = "fixed") -> None:
        """Ask everything of one case."""
        is_in_full = not self._is_brief or self._cases.total() % IN_FULL == IN_FULL_FROM
        case = case.few() if self._is_brief else case
        self._rows += len(case.rows)
        self._logits += case.rows.size
        self._largest = max(self._largest, case.vocabulary)
        self._cases[origin] += 1
        for mode in self._modes:
            expected = self._expected(mode, case)
            if expected is None:
                continue
            for (of_mode, _), ledger in self._ledgers.items():
                is_first = ledger is self._first_of(mode)
                if of_mode == mode and (is_in_full or is_first):
                    held = ledger.ask(self._asked(ledger), case, expected)
                    if fingerprint is not None and is_first:
                        _add(fingerprint, held)
            if mode == "exact" and not self._is_beside:
                self._show(case, expected)
        self._report_progress()

    def _expected(self, mode: str, case: Case) -> Answer | None:
        """The reference's answer; None where it has none, which the first line then tells."""
        answers = []

        def ask() -> Iterator[Held]:
            oracle = self._oracle(mode)
            masses = oracle.masses(case.rows, case.settings)
            laws = oracle.laws(case).laws
            answers.append(replace(seen_once(case, mode), masses=masses, laws=laws))
            yield from ()

        self._first_of(mode).write(case, ask())
        return answers[0] if answers else None

    def _asked(self, ledger: Ledger) -> list[Way]:
        here = self._ways[ledger.reduction]
        if self._is_beside or not ledger.of_default:
            return here
        return [*here, default_way(self._wish.doors, ledger.reduction)]

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
        for mode in self._modes:
            expected = self._wide_exact(case) if mode == "exact" else self._wide_fixed(case)
            ledger = self._first_of(mode)
            ledger.write(case, self._wide_draws(self._asked(ledger), case, expected))
            if mode == "exact" and not self._is_beside:
                self._show_wide(case, expected)

    def _show_wide(self, case: Case, exact: Answer) -> None:
        for tally, way in zip(self._fast, self._ways["fast"], strict=True):
            number = _wide_count(way)
            part, cut = replace(case, draws=number), _first_draws(exact, number)
            tally.ask(part, cut, lambda way=way, part=part: fast_tokens(way, part))  # type: ignore[misc]
        self._plain.ask(case, exact, lambda: plain_tokens(case))

    def _wide_fixed(self, case: Case) -> Answer:
        oracle = self._oracle("fixed")
        return Answer(tokens=oracle.draw(case.rows, case.settings, WIDE_DRAWS_SLOW))

    def _wide_exact(self, case: Case) -> Answer:
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

    def books(self) -> dict[tuple[str, str], Book]:
        """All that was compared, by mode and invariant."""
        return {key: ledger.book for key, ledger in self._ledgers.items()}

    def add(self, child: Child) -> None:
        """Enter what a child has held beside; its end without an answer is a mismatch."""
        try:
            self._engines, books = child.answer()
        except RuntimeError as error:
            names = ", ".join(name for name, _ in self._engines.beside)
            self._first_of("exact").fail(random_case(0), error, "beside", names)
            return
        for key, book in books.items():
            self._ledgers[key].book.add(book)

    def report(self, fingerprint: str, of_logits: str | None) -> Report:
        """What it comes to."""
        lines = tuple(ledger.line() for ledger in self._ledgers.values())
        empty = [f"{line.invariant}, {line.reduction}" for line in lines if not line.covered]
        return Report(
            ok=all(line.ok for line in lines)
            and all(self._first_of(mode).tokens for mode in MODES),
            invariants=lines,
            shown=tuple(tally.shown() for tally in (*self._fast, self._plain)),
            conditions=conditions(self._engines, self._largest, empty),
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
    is_quick = way.engine in ("native", "torch") or (way.engine is None and is_installed("native"))
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
    """Hold every case here, and in a child beside by the engines that are asked there."""
    engines = engines_here(wish.quick)
    with threads_allowed(), ExitStack() as children:
        child = None
        if engines.beside:
            try:
                child = children.enter_context(Child(partial(_beside, wish, engines)))
            except NoChildError as reason:
                engines = engines.without_child(str(reason))
        proof = Proof(wish, engines)
        fingerprints = _hold_fixed(proof, wish)
        _go_on(proof, wish, LEAST_RANDOM)
        if child is not None:
            proof.add(child)
    return proof.report(*fingerprints)


def _beside(wish: Wish, engines: Engines, alive: Callable[[], None]) -> Beside:
    """What a child does: the same cases, as far as the time goes; no random ones in a quick run."""
    settle_in()
    engines = engines.that_run()
    wish = replace(wish, tell=lambda *_: alive())
    proof = Proof(wish, engines, is_beside=True)
    if engines.beside:
        _hold_fixed(proof, wish)
        if not wish.quick:
            _go_on(proof, wish, 0)
    return engines, proof.books()


def _hold_fixed(proof: Proof, wish: Wish) -> tuple[str, str | None]:
    """Hold the fixed cases, then the user's; returns the fingerprints."""
    values, good = wish.values, wish.good
    fingerprint = proof.fingerprint(fixed_cases())
    of_logits = None if values is None else proof.fingerprint(cases_of(values, good), "given")
    proof.hold_wide()
    return fingerprint, of_logits


def _go_on(proof: Proof, wish: Wish, least: int) -> None:
    """Hold random cases until the time is over, so many at least, and with time for them."""
    end = max(wish.seconds, proof.elapsed + (LEAST_SHARE * wish.seconds if least else 0))
    made = 0
    for origin, case in random_cases(wish):
        if made >= least and proof.elapsed >= end:
            break
        proof.hold(case, origin=origin)
        made += origin == "random"
