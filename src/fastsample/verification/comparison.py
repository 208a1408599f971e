"""Compare results bit for bit, count them, and group backends by equal results."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from .calls import FUNCTIONS, PER_KEPT_TOKEN, PER_MODE, Check, Results
from .cases import Case
from .rows import Array

COUNTED = {"token": "tokens", "masses": "masses"}
"""What the values of an array are counted as."""
COUNTED |= dict.fromkeys(("logprob", "top_logprobs"), "logprobs")
COUNTED |= dict.fromkeys(FUNCTIONS, "function_values")


@dataclass(frozen=True)
class Mismatch:
    """A result that differs from the reference's, with everything needed to reproduce it.

    `case` is an expression of ``fastsample.verification.cases``, `row` one of its rows, and
    `parameters` are arguments of `sample`. `part` names the array that differs, as "token" or
    "masses"; it is "error" for an exception.
    """

    variant: str
    backend: str
    case: str
    row: int
    kind: str
    parameters: dict[str, Any]
    part: str
    expected: str
    got: str


@dataclass
class Comparison:
    """All comparisons of one invariant in one reduction mode.

    Counted are the cases; the tokens, masses, log-probabilities and values of functions that were
    compared; and those that differ, with the calls that raised. `first` is the first mismatch, and
    `seconds` are summed over this process and the worker.
    """

    invariant: str
    reduction: str
    cases: int = 0
    tokens: int = 0
    masses: int = 0
    logprobs: int = 0
    function_values: int = 0
    mismatches: int = 0
    errors: int = 0
    seconds: float = 0.0
    first: Mismatch | None = None
    deviations: dict[tuple[str, str], str] = field(default_factory=dict)
    """For each variant and backend a hash of all results that differ; "" for none."""

    @property
    def ok(self) -> bool:
        """Whether every result was equal."""
        return not self.mismatches

    @property
    def covered(self) -> bool:
        """Whether anything was compared."""
        return any((self.tokens, self.masses, self.logprobs, self.function_values))

    @property
    def groups(self) -> list[list[str]]:
        """Variants and backends by equal results; the first group agrees with the reference."""
        groups, variants = {"": ["reference"]}, {variant for variant, _ in self.deviations}
        for (variant, backend), digest in self.deviations.items():
            digests = {other for key, other in self.deviations.items() if key[0] == variant}
            label = f"{variant} on {backend}" if len(digests) > 1 else variant
            group = groups.setdefault(digest, [])
            group += {backend if len(variants) == 1 else label} - {*group}
        return list(groups.values())

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as dicts, lists, numbers and strings."""
        found = asdict(self) | {"groups": self.groups}
        del found["deviations"]
        return found

    def add(self, other: Comparison) -> None:
        """Add what was compared with other backends, on the same cases or on fewer."""
        self.cases, self.first = max(self.cases, other.cases), self.first or other.first
        self.deviations |= other.deviations
        for name in {*COUNTED.values(), "mismatches", "errors", "seconds"}:
            vars(self)[name] += vars(other)[name]

    def run(self, case: Case, checks: Iterable[Check]) -> Results:
        """Make and compare the checks of one case; an exception is a mismatch.

        Returns the first results, empty where there are none.
        """
        started, after = perf_counter(), "at the start"
        first: Results = {}
        try:
            for check in checks:
                first = first or check.got
                self._compare(case, check)
                after = f"after {check.variant} of {check.backend}"
        except Exception as error:
            self.fail(case, error, after)
        self.cases += bool(first)
        self.seconds += perf_counter() - started
        return first

    def fail(self, case: Case, error: Exception, variant: str, backend: str = "") -> None:
        """Count a call that raised as a mismatch: the reference has a result."""
        self.errors += 1
        check = Check(backend, {}, f"error {variant}", {})
        self._differs(case, check, "error", ("a result", repr(error)))

    def _compare(self, case: Case, check: Check) -> None:
        self.deviations.setdefault((check.variant, check.backend), "")
        for name, got in check.got.items():
            expected = check.expected[name]
            if name == "token":
                expected = expected[:, : check.draws]
            if name in COUNTED:
                compared = np.count_nonzero(got >= 0) if name == "token" else got.size
                vars(self)[COUNTED[name]] += int(compared)
            if got.shape != expected.shape or got.dtype != expected.dtype:
                texts = [f"{one.dtype} of shape {one.shape}" for one in (expected, got)]
                self._differs(case, check, name, texts, count=max(expected.size, got.size))
            elif got.tobytes() != expected.tobytes():
                bits = f"u{got.itemsize}"
                unequal = np.argwhere(np.array(got).view(bits) != np.array(expected).view(bits))
                texts = [str(one[tuple(unequal[0])]) for one in (expected, got)]
                place = row_and_draw(name, unequal[0], check)
                self._differs(case, check, name, texts, *place, len(unequal))

    def _differs(
        self,
        case: Case,
        check: Check,
        part: str,
        texts: Sequence[str],
        row: int = 0,
        draw: int = 0,
        count: int = 1,
    ) -> None:
        self.mismatches += count
        key, data = (check.variant, check.backend), check.got.get(part, np.empty(0)).tobytes()
        before = f"{self.deviations.get(key, '')} {case.name} {part} {texts[1]} ".encode()
        self.deviations[key] = hashlib.sha256(before + data).hexdigest()
        kind, rng = f"{case.kinds[row]}, V = {case.vocabulary:,}", case.rng(row)
        rng["stream"] += draw
        rng["seed"] = rng["seed"] if check.seed is None else check.seed
        how = {"draw": case.settings["draw"], "reduction": self.reduction}
        parameters = {**case.filters(row), **rng, **how}
        mismatch = Mismatch(*key, case.name, row, kind, parameters, part, *texts)
        self.first = self.first or mismatch


@dataclass(frozen=True)
class Report:
    """The results of a run.

    `ok` says whether every result was equal, and something was compared in every mode. There is a
    comparison for each of `invariants` and reduction modes; and for each of `baselines`, samplers
    without guarantees, whose mismatches are draws that differ from exact and do not count for `ok`.

    `environment` is what the result holds for: `fastsample.info()` and more, ``backends``, the
    engines that were checked, and ``not_covered``, what was not, and why. `fingerprint` is a hash
    of all tokens and masses of the fixed cases, equal on every machine where `ok`, and
    `logits_fingerprint` the same for your rows. `tokens` were compared; all cases together have
    `rows` and `logits`. `cases` counts those that were "fixed", made from your "logits", "random",
    and of "flat" distributions. `seed` reproduces the random ones.
    """

    ok: bool
    invariants: tuple[Comparison, ...]
    baselines: tuple[Comparison, ...]
    environment: dict[str, Any]
    fingerprint: str
    logits_fingerprint: str | None
    tokens: int
    rows: int
    logits: int
    cases: dict[str, int]
    seed: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return the report as dicts, lists, numbers and strings, ready for JSON."""
        found = dict(vars(self))
        for name in ("invariants", "baselines"):
            found[name] = [one.as_dict() for one in found[name]]
        return found


def row_and_draw(name: str, index: Array, check: Check) -> tuple[int, int]:
    """Return the row, and the draw if any, that an index into a named array belongs to."""
    if name in PER_KEPT_TOKEN:
        ends = np.cumsum(check.expected["kept_size"])
        return int(np.searchsorted(ends, index[0], side="right")), 0
    if name in PER_MODE:
        return int(index[1]), 0
    return int(index[0]), int(index[1]) if name == "token" else 0
