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
from typing import Any

import numpy as np

from fastsample.engines import TENSOR_ENGINES

from . import cases
from .backends import FULL_EVERY, FULL_FROM, Engine, find_engines, refusal, threads_allowed
from .baselines import PLAIN, plain_checks
from .calls import Backend, PublicApi, Results
from .cases import Case
from .comparison import Comparison, Report
from .environment import describe_environment
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
    """A run: what to check, and the comparisons so far; the worker's part of it where `is_worker`.

    `seconds`, `seed`, `quick`, `logits` and `progress` are those of `fastsample.verify`. `engines`
    are all that can be checked on this machine, unless they are passed.
    """

    seconds: float = 1.0
    seed: int = 0
    quick: bool = False
    logits: Array | None = None
    valid_rows: Sequence[int] = ()
    progress: Callable[[float, int], None] | None = None
    api: PublicApi = field(default_factory=PublicApi)
    engines: list[Engine] = field(default_factory=list)
    is_worker: bool = False

    def __post_init__(self) -> None:
        self.started, self.cases = perf_counter(), Counter[str]()
        self.not_covered: dict[str, str] = {}
        self.rows = self.n_logits = self.largest = 0
        if not self.engines:
            self.engines, self.not_covered = find_engines(self.quick)
        self.modes = [mode for mode in MODES if self.backends(mode)]
        kinds = [(mode, one.name) for mode in MODES for one in INVARIANTS if mode in one.modes]
        self.comparisons = {(mode, name): Comparison(name, mode) for mode, name in kinds}
        fast = [f"fast, {backend.label}" for backend in self.backends("fast")]
        self.baselines = {name: Comparison(name, "fast") for name in fast}
        self.baselines[PLAIN] = Comparison(PLAIN, "exact")

    def backends(
        self, mode: str, case: Case | None = None, with_default: bool = False
    ) -> list[Backend]:
        """Return the backends to check here that have a reduction mode, and the case's stages."""
        engines = [one for one in self.engines if (one[0] in TENSOR_ENGINES) == self.is_worker]
        if not self.is_worker:
            engines = (engines or [("reference", None)]) + [(None, None)] * with_default
        ops = case.ops if case is not None else set()
        backends = [Backend(self.api, name, isa, mode) for name, isa in engines]
        return [one for one in backends if mode in one.record.reductions and ops <= one.record.ops]

    def leave_out(self, reasons: dict[str, str]) -> None:
        """Do not check some engines, and report why."""
        self.engines = [engine for engine in self.engines if engine[0] not in reasons]
        self.not_covered |= reasons

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return perf_counter() - self.started

    @property
    def tokens(self) -> int:
        """How many tokens were compared."""
        return sum(comparison.tokens for comparison in self.comparisons.values())

    def run(self) -> Report:
        """Check everything, in the worker too where there are engines for it."""
        names = [name for name, _ in self.engines if name in TENSOR_ENGINES]
        with threads_allowed(), ExitStack() as stack:
            result = None
            try:
                if names:
                    result = stack.enter_context(forked(partial(self._work, names, os.getpid())))
            except NoForkError as reason:
                why = f"it is checked in a forked process, and {reason}"
                self.leave_out(dict.fromkeys(names, why))
            fingerprints = self.check_fixed()
            self.check_random(LEAST_RANDOM)
            if result is not None:
                self._merge(result, names)
        return self.report(*fingerprints)

    def _work(self, names: list[str], parent: int) -> tuple[dict[str, str], Any]:
        """In the worker: check the same cases; random ones as far as the time goes, if not quick.

        Returns why engines cannot be used, and the comparisons.
        """
        use_one_thread()
        reasons = {name: why for name in names if (why := refusal(name))}
        if len(reasons) == len(names):
            return reasons, {}
        engines = [engine for engine in self.engines if engine[0] not in reasons]

        def progress(share: float, tokens: int) -> None:
            """End with the process that waits for the result."""
            if os.getppid() != parent:
                os._exit(1)

        worker = replace(self, engines=engines, progress=progress, is_worker=True)
        worker.check_fixed()
        if not self.quick:
            worker.check_random(0)
        return reasons, worker.comparisons

    def _merge(self, result: Callable[[float], Any], names: list[str]) -> None:
        """Add the comparisons of the worker; where it failed, that is a mismatch."""
        try:
            reasons, comparisons = result(WORKER_PATIENCE)
        except RuntimeError as error:
            first = self.comparisons["exact", FIRST]
            first.fail(cases.small_case(0), error, "worker", ", ".join(names))
            return
        self.leave_out(reasons)
        for key, comparison in comparisons.items():
            self.comparisons[key].add(comparison)

    def check_fixed(self) -> tuple[str, str | None]:
        """Check the fixed cases, then those of the user's logits; returns their fingerprints."""
        fingerprint, of_logits = self.fingerprint(cases.fixed_cases()), None
        if self.logits is not None:
            own = cases.fixed_logits_cases(self.logits, self.valid_rows)
            of_logits = self.fingerprint(own, "logits")
        self.check(cases.flat_case(FLAT_DRAWS), "flat")
        return fingerprint, of_logits

    def fingerprint(self, some_cases: Sequence[Case], origin: str = "fixed") -> str:
        """Check cases, and hash the tokens, kept sets and masses of the first backend."""
        digest = hashlib.sha256()
        for results in (found for case in some_cases for found in self.check(case, origin)):
            arrays = [
                results[name] for name in ("token", "kept_tokens", "masses") if name in results
            ]
            if "kept_size" in results:
                arrays.append(np.append(0, np.cumsum(results["kept_size"])))
            for array in arrays:
                digest.update(array.astype("<i8").tobytes())
        return digest.hexdigest()

    def check_random(self, least: int) -> None:
        """Check random cases until the time is over: `least` at least, and with time for them."""
        end = max(self.seconds, self.elapsed + (LEAST_SHARE * self.seconds if least else 0))
        for origin, case in self.random_cases():
            if self.cases["random"] >= least and self.elapsed >= end:
                break
            self.check(case, origin)

    def random_cases(self) -> Iterator[tuple[str, Case]]:
        """Yield cases with their origin without end, every other one of the user's rows, if any."""
        for at in count():
            number = (self.seed << 32 | cases.FIRST_RANDOM) + at
            is_large = not self.quick and at % LARGE_EVERY == 0
            yield "random", (cases.large_case if is_large else cases.small_case)(number)
            if self.logits is not None:
                random = RandomWords(number)
                chosen = [random.pick(self.valid_rows) for _ in range(LOGITS_AT_ONCE)]
                yield "logits", cases.logits_case(self.logits, chosen, number)

    def check(self, case: Case, origin: str = "fixed") -> list[Results]:
        """Check all invariants of a case; returns the first backend's results in each mode."""
        invariants = INVARIANTS if origin != "flat" else (DRAWS_ALONE,)
        if self.is_worker and self.quick:
            is_full = self.cases.total() % FULL_EVERY == FULL_FROM
            case, invariants = case.few(), invariants if is_full else invariants[:1]
        self.cases[origin] += 1
        self.rows += len(case.rows)
        self.n_logits += case.rows.size
        self.largest = max(self.largest, case.vocabulary)
        found = []
        for mode in self.modes:
            try:
                expected = expected_results(case, mode)
            except Exception as error:
                self.comparisons[mode, FIRST].fail(case, error, "reference")
                continue
            for one in invariants:
                if mode in one.modes:
                    checks = one.checks(self.backends(mode, case, one.with_default), case, expected)
                    first = self.comparisons[mode, one.name].run(case, checks)
                    found += [first] if one.name == FIRST else []
            if mode == "exact" and not self.is_worker:
                for backend in self.backends("fast", case):
                    baseline = self.baselines[f"fast, {backend.label}"]
                    baseline.run(case, draws([backend], case, expected))
                self.baselines[PLAIN].run(case, plain_checks(case, expected))
        if self.progress is not None:
            self.progress(min(1.0, self.elapsed / self.seconds), self.tokens)
        return found

    def report(self, fingerprint: str = "", logits_fingerprint: str | None = None) -> Report:
        """Return the results so far."""
        lines = tuple(self.comparisons.values())
        empty = [f"{line.invariant}, {line.reduction}" for line in lines if not line.covered]
        not_covered = self.not_covered | dict.fromkeys(empty, "nothing was compared")
        not_covered[f"vocabularies above {self.largest:,}"] = "the largest that was checked"
        engines = self.engines or [("reference", None)]
        compared = all(self.comparisons[mode, FIRST].tokens for mode in MODES)
        return Report(
            ok=compared and all(line.ok for line in lines),
            invariants=lines,
            baselines=tuple(self.baselines.values()),
            environment=describe_environment(engines, not_covered),
            backends=tuple(Backend(self.api, *engine, "exact").label for engine in engines),
            fingerprint=fingerprint,
            logits_fingerprint=logits_fingerprint,
            tokens=self.tokens,
            rows=self.rows,
            logits=self.n_logits,
            cases=dict(self.cases),
            seed=self.seed,
            seconds=round(self.elapsed, 3),
        )


def use_one_thread() -> None:
    """Give torch one thread, the only one that is left after a fork."""
    import torch

    torch.set_num_threads(1)
