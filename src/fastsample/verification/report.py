"""What a proof comes to: a line per invariant, what differs elsewhere, and conditions."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Mismatch:
    """One answer that is not what it should be, with all that makes it again.

    Attributes
    ----------
    invariant, reduction, variant, way : str
        What was asked, in which mode, how, and of which engine.
    case : str
        An expression of ``fastsample.verification.cases`` that makes the rows.
    row, vocabulary : int
    kind : str
        What the row is like.
    parameters : dict
        The filters.
    seed, position, stream : int
        Of the draw, or of the row's first one.
    part : str
        "token", "masses", "logprobs", "kept", "laws", or "error".
    expected, got : str
    """

    invariant: str
    reduction: str
    variant: str
    way: str
    case: str
    row: int
    vocabulary: int
    kind: str
    parameters: dict[str, Any]
    seed: int
    position: int
    stream: int
    part: str
    expected: str
    got: str


@dataclass(frozen=True)
class Line:
    """One invariant in one mode.

    Attributes
    ----------
    invariant, reduction : str
    cases : int
        How many it was tried on. None was found to try it on where this is 0.
    tokens, masses, logprobs : int
        How many of each were held against the reference's.
    mismatches : int
        How many of all these are not equal, and how many questions ended in an error.
    seconds : float
        Of this process and of the child that goes on beside, added up.
    groups : tuple of tuple of str
        The ways, by equal answers over all cases; those of the first agree with the reference.
    first : Mismatch or None
    laws : int
        How many values of functions of whole rows were held against the reference's.
    """

    invariant: str
    reduction: str
    cases: int
    tokens: int
    masses: int
    logprobs: int
    mismatches: int
    seconds: float
    groups: tuple[tuple[str, ...], ...]
    first: Mismatch | None
    laws: int = 0

    @property
    def ok(self) -> bool:
        """Whether every answer was equal."""
        return not self.mismatches

    @property
    def covered(self) -> bool:
        """Whether anything was compared: a line without that proves nothing."""
        return bool(self.cases and (self.tokens or self.masses or self.logprobs or self.laws))


@dataclass(frozen=True)
class Shown:
    """How often something that promises nothing drew another token than exact does.

    `errors` counts the cases in which it drew none, but raised.
    """

    name: str
    draws: int
    differ: int
    first: Mismatch | None
    errors: int = 0


@dataclass(frozen=True)
class Report:
    """What `fastsample.verify` found.

    Attributes
    ----------
    ok : bool
        Whether something was compared in every mode, and no invariant was broken.
    invariants : tuple of Line
    shown : tuple of Shown
        Reductions that promise nothing, and a plain float32 softmax: no part of `ok`.
    conditions : dict
        What it holds for: versions, processor, instruction sets, engines, threads, dtypes, and what
        was not covered, and why.
    fingerprint : str
        Hash of all tokens and masses of the fixed cases: equal on every machine where `ok`.
    logits_fingerprint : str or None
        The same of the logits given.
    tokens : int
        How many tokens were compared.
    rows, logits : int
        How many rows had a case, and how many logits these are.
    seed : int
        What makes the same random cases again.
    seconds : float
    fixed_cases, given_cases, random_cases : int
        How many cases there were, by where they came from.
    """

    ok: bool
    invariants: tuple[Line, ...]
    shown: tuple[Shown, ...]
    conditions: dict[str, Any]
    fingerprint: str
    logits_fingerprint: str | None
    tokens: int
    rows: int
    logits: int
    seed: int
    seconds: float
    fixed_cases: int = 0
    given_cases: int = 0
    random_cases: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The same in dicts, lists, numbers and strings, as JSON has them."""
        return asdict(self)
