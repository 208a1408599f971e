"""Check case after case on every backend until the time is over."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from time import perf_counter

import numpy as np

from fastsample.api.threads import threads_allowed
from fastsample.engines import ENGINES, TENSOR_ENGINES
from fastsample.params.ops import DrawMethod

from . import backends, cases
from .baselines import PLAIN, plain_checks
from .calls import Backend, PublicApi, Results
from .comparison import Comparison, Report
from .invariants import DRAWS_ALONE, FLAT_DRAWS, INVARIANTS, draws, expected_results
from .rows import Array, RandomWords
from .worker import NoForkError, forked

MODES = ("exact", "fixed")
FIRST = INVARIANTS[0].name
LOGITS_AT_ONCE = 2  # So many of the user's rows are in a random case.
LARGE_EVERY = 5  # One of so many random cases is large, in runs that are not quick.
LEAST_RANDOM, LEAST_SHARE = 2, 0.05
"""So many random cases, and so much of the time for them, however long the fixed ones took."""
WORKER_PATIENCE = 600.0
"""Seconds to wait for the worker once everything here is done."""


@dataclass
class Verification:
    """A run: what to check, and the comparisons so far.

    `seconds`, `seed`, `quick`, `logits` and `progress` are those of `fastsample.verify`. Engines of
    tensors are checked by the worker, another `Verification` in a forked process: torch takes
    seconds to load, its threads do not survive a fork, and how many it has is the user's choice.
    """

    seconds: float = 1.0
    seed: int = 0
    quick: bool = False
    logits: Array | None = None
    valid_rows: Sequence[int] = ()
    progress: Callable[[float, int], None] | None = None
    api: PublicApi = field(default_factory=PublicApi)
    engines: list[backends.Engine] | None = None
    is_worker: bool = False

    def __post_init__(self) -> None:
        self.started = perf_counter()
        found, self.not_covered = backends.find_engines(self.quick)
        found = found if self.engines is None else self.engines
        self.can_race = all(DrawMethod.RACE in ENGINES[name].draws for name, _ in found)
        if not self.can_race:
            self.not_covered["random cases by race"] = "an engine that is checked has no race"
        self.of_worker = [one for one in found if one[0] in TENSOR_ENGINES]
        here = [one for one in found if one not in self.of_worker] or [("reference", None)]
        self.checked = self.of_worker if self.is_worker else here
        self.sizes: list[tuple[str, int, int]] = []
        """Origin, rows and vocabulary of each case."""
        kinds = [(mode, one.name) for mode in MODES for one in INVARIANTS if mode in one.modes]
        self.comparisons = {(mode, name): Comparison(name, mode) for mode, name in kinds}
        fast = {f"fast, {one.label}": "fast" for one in self.backends("fast")} | {PLAIN: "exact"}
        self.baselines = {name: Comparison(name, mode) for name, mode in fast.items()}

    def backends(
        self, mode: str, case: cases.Case | None = None, with_default: bool = False
    ) -> list[Backend]:
        """Return the backends to check here that have a mode, and the case's stages and draw."""
        found = [Backend(self.api, name, isa, mode) for name, isa in self.checked]
        if with_default and not self.is_worker:
            found.append(Backend(self.api, None, None, mode))
        if case is not None:
            draw = DrawMethod.RACE if case.is_race else DrawMethod.INVERSE
            able = (one for one in found if draw in one.record.draws)
            found = [one for one in able if case.ops <= one.record.ops]
        return [one for one in found if mode in one.record.reductions]

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return perf_counter() - self.started

    def run(self) -> Report:
        """Check everything, in the worker too where there are engines for it."""
        names, result = [name for name, _ in self.of_worker], None
        with threads_allowed(max(backends.THREADS)), ExitStack() as stack:
            try:
                if names:
                    worker = replace(self, engines=self.of_worker, is_worker=True)
                    result = stack.enter_context(forked(partial(worker.work, os.getpid())))
            except NoForkError as reason:
                why = f"it is checked in a forked process, and {reason}"
                self._leave_out(dict.fromkeys(names, why))
            fingerprints = self.check_fixed()
            self.check_random(LEAST_RANDOM)
            try:
                reasons, comparisons = result(WORKER_PATIENCE) if result else ({}, {})
                self._leave_out(reasons)
                for key, comparison in comparisons.items():
                    self.comparisons[key].add(comparison)
            except RuntimeError as error:
                case = cases.small_case(0)
                self.comparisons["exact", FIRST].fail(case, error, "worker", ", ".join(names))
        return self.report(*fingerprints)

    def _leave_out(self, reasons: dict[str, str]) -> None:
        """Report why engines of the worker are not checked."""
        self.of_worker = [one for one in self.of_worker if one[0] not in reasons]
        self.not_covered |= reasons

    def work(self, parent: int) -> tuple[dict[str, str], dict[tuple[str, str], Comparison]]:
        """In the worker: check the same cases; random ones as far as the time goes, if not quick.

        Returns why engines cannot be used, and the comparisons.
        """

        def progress(share: float, tokens: int) -> None:
            """End with the process that waits for the result."""
            if os.getppid() != parent:
                os._exit(1)

        use_one_thread()
        reasons = {name: why for name, _ in self.checked if (why := backends.refusal(name))}
        self.checked = [one for one in self.checked if one[0] not in reasons]
        self.progress = progress
        if self.checked:
            self.check_fixed()
            if not self.quick:
                self.check_random(0)
        return reasons, self.comparisons

    def check_fixed(self) -> tuple[str, str | None]:
        """Check the fixed cases, then those of the user's logits; returns their fingerprints."""
        fingerprint, of_logits = self.fingerprint(cases.fixed_cases()), None
        if self.logits is not None:
            own = cases.fixed_logits_cases(self.logits, self.valid_rows)
            of_logits = self.fingerprint(own, "logits")
        self.check(cases.flat_case(FLAT_DRAWS), "flat")
        return fingerprint, of_logits

    def fingerprint(self, some_cases: Sequence[cases.Case], origin: str = "fixed") -> str:
        """Check cases, and hash the tokens, kept sets and masses of the first backend.

        Of the reference where no backend can draw a case.
        """
        digest = hashlib.sha256()
        for results in (found for case in some_cases for found in self.check(case, origin)):
            if "kept_size" in results:
                results["offsets"] = np.append(0, np.cumsum(results["kept_size"]))
            for name in ("token", "kept_tokens", "masses", "offsets"):
                digest.update(results.get(name, np.empty(0)).astype("<i8").tobytes())
        return digest.hexdigest()

    def check_random(self, least: int) -> None:
        """Check random cases until the time is over: `least` at least, and with time for them."""
        end = max(self.seconds, self.elapsed + (LEAST_SHARE * self.seconds if least else 0))
        made = 0
        for origin, case in self.random_cases():
            if made >= least and self.elapsed >= end:
                break
            self.check(case, origin)
            made += origin == "random"

    def random_cases(self) -> Iterator[tuple[str, cases.Case]]:
        """Yield cases with their origin without end, every other one of the user's rows, if any."""
        for at in count():
            number = (self.seed << 32 | cases.FIRST_RANDOM) + at
            is_large = not self.quick and at % LARGE_EVERY == 0
            case = (cases.large_case if is_large else cases.small_case)(number)
            is_race = self.can_race and at % 2
            yield "random", case.by_race() if is_race else case
            if self.logits is not None:
                random = RandomWords(number)
                chosen = [random.pick(self.valid_rows) for _ in range(LOGITS_AT_ONCE)]
                case = cases.logits_case(self.logits, chosen, number)
                yield "logits", case.by_race() if is_race else case

    def check(self, case: cases.Case, origin: str = "fixed") -> list[Results]:
        """Check all invariants of a case; returns the first backend's results in each mode."""
        invariants = INVARIANTS if origin != "flat" else (DRAWS_ALONE,)
        if self.is_worker and self.quick:
            is_full = len(self.sizes) % backends.FULL_EVERY == backends.FULL_FROM
            case, invariants = case.few(), invariants if is_full else invariants[:1]
        self.sizes.append((origin, *case.rows.shape))
        found = []
        for mode in filter(self.backends, MODES[:1] if case.is_race else MODES):
            try:
                expected = expected_results(case, mode)
            except Exception as error:
                self.comparisons[mode, FIRST].fail(case, error, "reference")
                continue
            for one in invariants:
                if mode in one.modes:
                    checks = one.checks(self.backends(mode, case, one.with_default), case, expected)
                    first = self.comparisons[mode, one.name].run(case, checks)
                    found += [first or expected] if one.name == FIRST else []
            if mode == "exact" and not self.is_worker and not case.is_race:
                for backend in self.backends("fast", case):
                    baseline = self.baselines[f"fast, {backend.label}"]
                    baseline.run(case, draws([backend], case, expected))
                self.baselines[PLAIN].run(case, plain_checks(case, expected))
        if self.progress is not None:
            tokens = sum(comparison.tokens for comparison in self.comparisons.values())
            self.progress(min(1.0, self.elapsed / self.seconds), tokens)
        return found

    def report(self, fingerprint: str = "", logits_fingerprint: str | None = None) -> Report:
        """Return the results so far."""
        lines, largest = tuple(self.comparisons.values()), max([0, *(one[2] for one in self.sizes)])
        empty = [f"{line.invariant}, {line.reduction}" for line in lines if not line.covered]
        not_covered = self.not_covered | dict.fromkeys(empty, "nothing was compared")
        not_covered[f"vocabularies above {largest:,}"] = "the largest that was checked"
        engines = self.checked + ([] if self.is_worker else self.of_worker)
        checked = [Backend(self.api, *engine, "exact") for engine in engines]
        compared = all(self.comparisons[mode, FIRST].tokens for mode in MODES)
        return Report(
            ok=compared and all(line.ok for line in lines),
            invariants=lines,
            baselines=tuple(self.baselines.values()),
            environment=backends.describe_environment(checked, not_covered),
            fingerprint=fingerprint,
            logits_fingerprint=logits_fingerprint,
            tokens=sum(line.tokens for line in lines),
            rows=sum(rows for _, rows, _ in self.sizes),
            logits=sum(rows * size for _, rows, size in self.sizes),
            cases=dict(Counter(origin for origin, _, _ in self.sizes)),
            seed=self.seed,
            seconds=round(self.elapsed, 3),
        )


def use_one_thread() -> None:
    """Give torch one thread, the only one that is left after a fork."""
    import torch

    torch.set_num_threads(1)
