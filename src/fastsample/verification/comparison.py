"""Books of what was compared: counts, the first mismatch, and which ways agree with which."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .calls import Answer, Way, differing, same_bits
from .cases import Case
from .invariants import Held, Invariant
from .report import Line, Mismatch

COMPARED = ("token", "masses", "logprobs", "laws")


@dataclass
class Book:
    """What a ledger holds, in plain data: it may come from another process.

    Attributes
    ----------
    cases, mismatches : int
    seconds : float
    compared : dict
        How many tokens, masses, log-probabilities and values of laws were compared.
    deviations : dict
        Of each variant and way a hash of what it answered otherwise than the reference; "" of none.
    first : Mismatch or None
    """

    cases: int = 0
    mismatches: int = 0
    seconds: float = 0.0
    compared: Counter[str] = field(default_factory=Counter)
    deviations: dict[tuple[str, str], str] = field(default_factory=dict)
    first: Mismatch | None = None

    def add(self, other: Book) -> None:
        """Enter what other ways came to on the same cases, or on fewer of them."""
        self.cases = max(self.cases, other.cases)
        self.mismatches += other.mismatches
        self.seconds += other.seconds
        self.compared += other.compared
        self.deviations |= other.deviations
        self.first = self.first or other.first


class Ledger:
    """The book of one invariant in one mode, and how it is kept."""

    def __init__(self, invariant: Invariant, reduction: str) -> None:
        self._invariant = invariant
        self.reduction, self.of_default = reduction, invariant.of_default
        self.book = Book()

    @property
    def tokens(self) -> int:
        """How many tokens were compared so far."""
        return self.book.compared["token"]

    def ask(self, ways: list[Way], case: Case, expected: Answer) -> list[Held]:
        """Ask the invariant of one case, and write down what came."""
        return self.write(case, self._invariant.ask(ways, case, expected))

    def write(self, case: Case, answers: Iterable[Held]) -> list[Held]:
        """Write down what comes of one case; asking for it may end in an error."""
        started, held = perf_counter(), []
        try:
            for one in answers:
                held.append(one)
                self._enter(case, one)
        except Exception as error:
            before = f"after {held[-1].variant} of {held[-1].way}" if held else "at the start"
            self.fail(case, error, before)
        self.book.cases += bool(held)
        self.book.seconds += perf_counter() - started
        return held

    def _enter(self, case: Case, held: Held) -> None:
        expected = _as_far_as(held.expected, held.got)
        key = (held.variant, held.way)
        self.book.deviations.setdefault(key, "")
        for name in COMPARED:
            self.book.compared[name] += held.got.size(name)
        for name in differing(expected, held.got):
            wanted, found = expected.parts()[name], held.got.parts()[name]
            self.book.mismatches += count_differences(wanted, found)
            self._deviate(key, case.name, name, *found)
            if self.book.first is None:
                place = place_of_difference(name, wanted, found)
                sides = _sides(name, wanted, found, *place)
                self.book.first = self._mismatch(case, place, *key, name, *sides)

    def fail(self, case: Case, error: Exception, variant: str, way: str = "") -> None:
        """Enter a question that ends in an error as a mismatch: the reference had an answer."""
        self.book.mismatches += 1
        self._deviate((f"error {variant}", way), case.name, repr(error))
        told = (variant, way, "error", "an answer", repr(error))
        self.book.first = self.book.first or self._mismatch(case, (0, 0), *told)

    def _deviate(self, key: tuple[str, str], *what: Any) -> None:
        digest = hashlib.sha256(self.book.deviations.get(key, "").encode())
        for one in what:
            digest.update(one.tobytes() if isinstance(one, np.ndarray) else one.encode())
        self.book.deviations[key] = digest.hexdigest()

    def _mismatch(self, case: Case, place: tuple[int, int], *what: str) -> Mismatch:
        return mismatch(case, place, self._invariant.name, self.reduction, *what)

    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The ways by equal answers, those that agree with the reference first."""
        by_answer: dict[str, list[tuple[str, str]]] = {"": []}
        for key, digest in self.book.deviations.items():
            by_answer.setdefault(digest, []).append(key)
        everyone = list(self.book.deviations)
        groups = [list(_labels(group, everyone)) for group in by_answer.values()]
        groups[0].insert(0, "reference")
        return tuple(map(tuple, groups))

    def line(self) -> Line:
        """What it comes to."""
        book = self.book
        return Line(
            invariant=self._invariant.name,
            reduction=self.reduction,
            cases=book.cases,
            tokens=book.compared["token"],
            masses=book.compared["masses"],
            logprobs=book.compared["logprobs"],
            laws=book.compared["laws"],
            mismatches=book.mismatches,
            seconds=round(book.seconds, 3),
            groups=self.groups(),
            first=book.first,
        )


def mismatch(
    case: Case,
    place: tuple[int, int],
    invariant: str,
    reduction: str,
    variant: str,
    way: str,
    part: str,
    expected: str,
    got: str,
) -> Mismatch:
    """Describe a mismatch at a place of a case: a row, and which of its draws."""
    row, draw = place
    first = case.place_of(row)
    return Mismatch(
        invariant=invariant,
        reduction=reduction,
        variant=variant,
        way=way,
        case=case.name,
        row=row,
        vocabulary=case.vocabulary,
        kind=case.kinds[row],
        parameters=case.filters_of(row),
        seed=first["seed"],
        position=first["position"],
        stream=first["stream"] + (draw if part == "token" else 0),
        part=part,
        expected=expected,
        got=got,
    )


def _labels(group: list[tuple[str, str]], everyone: list[tuple[str, str]]) -> list[str]:
    """Names of the ways in a group: a variant in which all engines agree needs no engine's name."""
    labels = {}
    for variant, _ in group:
        ways = [way for other, way in group if other == variant]
        all_ways = [way for other, way in everyone if other == variant]
        if len({other for other, _ in everyone}) == 1:
            labels.update(dict.fromkeys(ways))
        elif ways == all_ways:
            labels[variant] = None
        else:
            labels.update(dict.fromkeys(f"{variant} on {way}" for way in ways))
    return list(labels)


def _as_far_as(expected: Answer, got: Answer) -> Answer:
    """The answer cut to as many draws as were asked for, however many came back."""
    if expected.tokens is None or got.draws is None:
        return expected
    return replace(expected, tokens=expected.tokens[:, : got.draws])


def count_differences(wanted: tuple[NDArray[Any], ...], found: tuple[NDArray[Any], ...]) -> int:
    """How many numbers are not equal; of arrays of unequal shape, all."""
    total = 0
    for a, b in zip(wanted, found, strict=True):
        if a.shape != b.shape:
            total += max(a.size, b.size)
        elif not same_bits(a, b):
            equal = (a == b) & (np.signbit(a) == np.signbit(b)) if a.dtype.kind == "f" else a == b
            total += max(1, int(np.count_nonzero(~equal & ~_both_nan(a, b))))
    return total


def _both_nan(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray((a != a) & (b != b))


def place_of_difference(
    part: str, wanted: tuple[NDArray[Any], ...], found: tuple[NDArray[Any], ...]
) -> tuple[int, int]:
    """Row and draw of the first difference, as far as it can be told."""
    if _shapes(wanted) != _shapes(found) and part != "masses":
        return 0, 0
    if part == "masses":
        rows = min(len(wanted[2]), len(found[2])) - 1
        unequal = (b for b in range(rows) if _of_row(part, wanted, b) != _of_row(part, found, b))
        return next(unequal, 0), 0
    for a, b in zip(wanted, found, strict=True):
        if a.shape == b.shape and not same_bits(a, b):
            at = np.argwhere(~((a == b) | _both_nan(a, b)))
            if len(at) and part == "logprobs":
                return int(at[0][1]), 0
            if len(at):
                return int(at[0][0]), int(at[0][-1]) if a.ndim > 1 else 0
    return 0, 0


def _shapes(arrays: tuple[NDArray[Any], ...]) -> list[tuple[int, ...]]:
    return [array.shape for array in arrays]


def _sides(
    part: str,
    wanted: tuple[NDArray[Any], ...],
    found: tuple[NDArray[Any], ...],
    row: int,
    draw: int,
) -> tuple[str, str]:
    """Both sides of a difference; where not even as much came as was asked for, how much did."""
    if part == "laws":
        wanted, found = next(
            ((a,), (b,))
            for a, b in zip(wanted, found, strict=True)
            if a.shape != b.shape or not same_bits(a, b)
        )
    if _shapes(wanted) != _shapes(found) and part != "masses":
        return f"shape {_shapes(wanted)}", f"shape {_shapes(found)}"
    return told(part, wanted, row, draw), told(part, found, row, draw)


def _of_row(part: str, arrays: tuple[NDArray[Any], ...], row: int) -> list[Any]:
    """What the arrays of a part say of one row."""
    if part == "masses":
        tokens, masses, offsets = arrays[:3]
        own = slice(offsets[row], offsets[row + 1])
        return list(zip(tokens[own].tolist(), masses[own].tolist(), strict=True))
    if part == "logprobs":
        return [array[:, row].tolist() for array in arrays]
    return [array[row].tolist() for array in arrays]


def told(part: str, arrays: tuple[NDArray[Any], ...], row: int, draw: int, most: int = 4) -> str:
    """One side of a difference, in words that fit on a line."""
    if not arrays:
        return ""
    said = _of_row(part, arrays, row)
    if part == "token" or (part == "laws" and isinstance(said[0], list)):
        return str(said[0][draw])
    if part == "masses":
        some = ", ".join(f"{token}: {mass}" for token, mass in said[:most])
        return f"{len(said)} kept, {{{some}{', ...' if len(said) > most else ''}}}"
    return str(said[0])
