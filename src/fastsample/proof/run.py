"""The proof itself: cases one after another, each asked in every way, until the time is over."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from numpy.typing import NDArray

from .answers import Answer, Doors, Way
from .cases import Case, cases_of, fixed_cases, given_case, random_case, wide_case
from .conditions import conditions
from .invariants import INVARIANTS, Held
from .ledger import Ledger
from .report import Report
from .rows import Dice
from .shown import PLAIN, Tally, fast_tokens, plain_tokens
from .ways import engines_here, threads_allowed, ways

MODES = ("exact", "fixed")
FIRST_RANDOM = 1000
"""Numbers below are the fixed cases'."""
GIVEN_AT_ONCE = 2
WIDE_DRAWS = {"native": 4096}
"""Others take a millisecond for each, and get fewer."""

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
        self._rows = self._logits = 0

    def _oracle(self, mode: str) -> Way:
        """The reference, by the true doors whatever doors are tried."""
        return Way(Doors(), "reference", None, mode)

    def hold(self, case: Case, fingerprint: Any = None) -> None:
        """Ask everything of one case."""
        self._rows += len(case.rows)
        self._logits += case.rows.size
        for mode in MODES:
            expected = self._oracle(mode).whole(case)
            for (of_mode, _), ledger in self._ledgers.items():
                if of_mode == mode:
                    held = ledger.ask(self._ways[mode], case, expected)
                    if fingerprint is not None and ledger is self._first_of(mode):
                        _add(fingerprint, held)
            if mode == "exact":
                self._show(case, expected)
        self._report_progress()

    def _first_of(self, mode: str) -> Ledger:
        return self._ledgers[mode, INVARIANTS[0].name]

    def _show(self, case: Case, exact: Answer) -> None:
        for tally, way in zip(self._fast, self._ways["fast"], strict=True):
            tally.add(case, exact, fast_tokens(way, case))
        self._plain.add(case, exact, plain_tokens(case))

    def show_wide(self) -> None:
        """Draw from a wide law, where most differs; what is exact there, each engine says."""
        for at, (tally, fast) in enumerate(zip(self._fast, self._ways["fast"], strict=True)):
            case, way = wide_case(WIDE_DRAWS.get(fast.engine, 64)), self._ways["exact"][at]
            exact = Answer(tokens=way.draw(case.rows, case.settings, case.draws))
            tally.add(case, exact, fast_tokens(fast, case))
            if not at:
                self._plain.add(case, exact, plain_tokens(case))

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

    def fingerprint(self, cases: list[Case]) -> str:
        """Hold these cases, and hash what the first engine answers."""
        digest = hashlib.sha256()
        for case in cases:
            self.hold(case, digest)
        return digest.hexdigest()

    def report(self, fingerprint: str, of_logits: str | None) -> Report:
        """What it comes to."""
        lines = tuple(ledger.line() for ledger in self._ledgers.values())
        return Report(
            ok=all(line.ok for line in lines),
            invariants=lines,
            shown=tuple(tally.shown() for tally in (*self._fast, self._plain)),
            conditions=conditions(self._engines, self._absent),
            fingerprint=fingerprint,
            logits_fingerprint=of_logits,
            tokens=self.tokens,
            rows=self._rows,
            logits=self._logits,
            seed=self._wish.seed,
            seconds=round(self.elapsed, 3),
        )


def _add(digest: Any, held: list[Held]) -> None:
    """Add the tokens and masses of the first way to a hash, as little-endian bytes."""
    for one in held[:1]:
        for name in ("token", "masses"):
            for part in one.got.parts().get(name, ()):
                digest.update(part.astype(part.dtype.newbyteorder("<")).tobytes())


def random_cases(seed: int, values: NDArray[Any] | None, good: tuple[int, ...]) -> Iterator[Case]:
    """Cases without end; every other one of the user's rows, where there are any."""
    number = seed << 32 | FIRST_RANDOM
    while True:
        yield random_case(number)
        if values is not None:
            dice = Dice(number)
            yield given_case(values, [dice.pick(good) for _ in range(GIVEN_AT_ONCE)], number)
        number += 1


def prove(wish: Wish) -> Report:
    """Hold the fixed cases, then the user's, then random ones until the time is over."""
    values, good = wish.values, wish.good
    with threads_allowed():
        proof = Proof(wish)
        fingerprint = proof.fingerprint(fixed_cases())
        of_logits = None if values is None else proof.fingerprint(cases_of(values, good))
        proof.show_wide()
        for case in random_cases(wish.seed, values, good):
            if proof.elapsed >= wish.seconds:
                break
            proof.hold(case)
    return proof.report(fingerprint, of_logits)
