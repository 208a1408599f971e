"""The calls that are compared: one engine behind the public functions; results as named arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastsample.api.filtering import KeptSet, kept_set
from fastsample.api.sample import sample
from fastsample.api.sampler import Sampler
from fastsample.api.softmax import log_softmax, logsumexp, softmax
from fastsample.engines import ENGINES, EngineRecord, reference, resolve

from .cases import INVERSE, RNG, Case
from .rows import Array

TOP = 5  # So many top log-probabilities are compared.
DISTINCT = 6  # So many tokens are drawn without replacement.
FUNCTIONS = ("softmax", "log_softmax", "logsumexp")
PER_KEPT_TOKEN = ("kept_tokens", "masses", "logits")
"""Arrays of kept sets, one row after the other, of the lengths in "kept_size"."""
PER_MODE = ("logprob", "rank", "top_tokens", "top_logprobs")
"""Arrays with an axis of log-probability modes before that of rows."""

Results = dict[str, Array]
"""Arrays by name: "token", those above, and others with rows as the first axis."""


class Check(NamedTuple):
    """Results to compare with the expected ones.

    `draws` is how many draws of each row were wanted, where not all were, and `seed` is that of the
    draws, where it is not the case's.
    """

    backend: str
    expected: Results
    variant: str
    got: Results
    draws: int | None = None
    seed: int | None = None


class PublicApi(NamedTuple):
    """The functions under test. Tests pass faulty ones."""

    sample: Callable[..., Any] = sample
    kept_set: Callable[..., Any] = kept_set
    sampler: Callable[..., Any] = Sampler
    softmax: Callable[..., Any] = softmax
    log_softmax: Callable[..., Any] = log_softmax
    logsumexp: Callable[..., Any] = logsumexp


class Backend(NamedTuple):
    """One engine, on one instruction set, in one reduction mode; the engine None is the default."""

    api: PublicApi
    engine: str | None
    isa: str | None
    reduction: str

    @property
    def label(self) -> str:
        """The name in reports."""
        return "default" if self.engine is None else f"{self.engine} {self.isa or ''}".rstrip()

    @property
    def record(self) -> EngineRecord:
        """What its engine can do."""
        return ENGINES[self.engine or resolve().name]

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that choose it."""
        return {"engine": self.engine, "isa": self.isa, "reduction": self.reduction}

    def draw(self, logits: Any, settings: dict[str, Any], n: int | None, **options: Any) -> Array:
        """Draw `n` tokens from each row, or one without an axis of its own where `n` is None."""
        found = self.api.sample(logits, **settings, n=n, **self.options, **options)
        return np.asarray(found.tokens)

    def kept_set(self, logits: Any, settings: dict[str, Any], **options: Any) -> Results:
        """Find the kept sets of rows, with their masses: none but in exact."""
        if self.reduction != "exact":
            return {}
        of_draws = {*RNG, *INVERSE}
        options |= {name: value for name, value in settings.items() if name not in of_draws}
        found: KeptSet = self.api.kept_set(logits, engine=self.engine, isa=self.isa, **options)
        return {
            "kept_size": np.diff(found.offsets),
            "kept_tokens": np.asarray(found.tokens),
            "masses": np.asarray(found.masses).view(np.uint64),
            "logits": reference.read(np.asarray(found.logits)),
        }

    def draw_and_weigh(self, case: Case, logits: Any, **options: Any) -> Results:
        """Draw all tokens, and find kept sets; not of large rows, which take long to sort."""
        tokens = self.draw(logits, case.settings, case.draws, **options)
        kept = {} if case.is_large else self.kept_set(logits, case.settings, **options)
        return {"token": tokens, **kept}

    def logprobs(self, case: Case, count: int, modes: tuple[str, ...]) -> Results:
        """Draw a token of each row, with log-probabilities in some modes."""
        outputs = {"logprobs": min(count, case.vocabulary), "logprobs_mode": modes}
        options = case.settings | self.options | outputs
        found = self.api.sample(case.rows, **options, kept_count=True)
        return {
            "token": found.tokens[:, None],
            "kept_count": found.kept_count,
            "logprob": found.logprobs,
            "rank": found.ranks,
            "top_tokens": found.top_tokens,
            "top_logprobs": found.top_logprobs,
        }

    def distinct(self, case: Case) -> Results:
        """Draw distinct tokens of each row of a race, where the engine does; -1 for missing."""
        if not (case.is_race and self.record.has_distinct):
            return {}
        options = case.settings | self.options | {"n": min(DISTINCT, case.vocabulary)}
        found = self.api.sample(case.rows, **options, replacement=False, on_invalid="mark")
        return {"distinct": np.asarray(found.tokens)}

    def functions(self, case: Case) -> Results:
        """Call the functions of whole rows; logsumexp needs a temperature above 0."""
        temperature = case.settings["temperature"]
        above = {"logsumexp": np.where(temperature == 0, 1.0, temperature)}
        return {
            name: getattr(self.api, name)(case.rows, above.get(name, temperature), **self.options)
            for name in FUNCTIONS
        }

    def everything(self, case: Case) -> Results:
        """Return all draws, log-probabilities in each mode, kept sets and distinct tokens."""
        results = self.logprobs(case, TOP, case.logprobs_modes) | self.distinct(case)
        results["token"] = self.draw(case.rows, case.settings, case.draws)
        return results | self.kept_set(case.rows, case.settings)


def split(results: Results) -> list[Results]:
    """Return the results of each row; not for arrays of PER_MODE."""
    n_rows = len(next(iter(results.values())))
    ends = np.cumsum(results.get("kept_size", np.zeros(n_rows, np.int64)))
    starts = np.append(0, ends)
    rows = []
    for b, kept in enumerate(map(slice, starts, ends)):
        own = {name: kept if name in PER_KEPT_TOKEN else slice(b, b + 1) for name in results}
        rows.append({name: results[name][part] for name, part in own.items()})
    return rows


def join(rows: list[Results]) -> Results:
    """Return the results of rows together."""
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
