"""What is asked of fastsample, through which doors, and how two answers are held together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.api.filtering import kept_set
from fastsample.api.sample import sample
from fastsample.api.sampler import Sampler
from fastsample.api.softmax import log_softmax, logsumexp, softmax
from fastsample.engines.contract import LogprobRequest, SampleOutput, SampleRequest
from fastsample.engines.execution import Execution
from fastsample.engines.plan import make_plan
from fastsample.inputs.logits import as_rows
from fastsample.inputs.logits_processors import make_adjustments

from .cases import PLACE, Case

TOP = 5
ADJUSTED = ("mask", "bias", "prompt", "output")
"""What changes a row before anything is drawn, but for the penalties."""


@dataclass(frozen=True)
class Doors:
    """What fastsample is asked by. Tests hand in doors that are faulty, to see that it shows."""

    sample: Callable[..., Any] = sample
    kept_set: Callable[..., Any] = kept_set
    sampler: Callable[..., Any] = Sampler
    softmax: Callable[..., Any] = softmax
    log_softmax: Callable[..., Any] = log_softmax
    logsumexp: Callable[..., Any] = logsumexp


@dataclass(frozen=True)
class Answer:
    """What came back: only what was asked for.

    Attributes
    ----------
    tokens : int64 array of shape (B, n), or None
    masses : tuple of (tokens, masses, offsets), or None
        Kept sets end to end, as `KeptSet` has them.
    told : tuple of (logprobs, ranks, top_tokens, top_logprobs), or None
    kept : array, or None
        Whatever else says what was kept: counts, or logits.
    laws : tuple of (softmax, log_softmax, logsumexp), or None
        Of the whole rows.
    draws : int, or None
        How many of a row's draws were asked for; None for all of them. `tokens` may tell of fewer.
    """

    tokens: NDArray[np.int64] | None = None
    masses: tuple[NDArray[Any], ...] | None = None
    told: tuple[NDArray[Any], ...] | None = None
    kept: NDArray[Any] | None = None
    laws: tuple[NDArray[Any], ...] | None = None
    draws: int | None = None

    def parts(self) -> dict[str, tuple[NDArray[Any], ...]]:
        """The arrays that were asked for, by what they are."""
        tokens = None if self.tokens is None else (self.tokens,)
        kept = None if self.kept is None else (self.kept,)
        named = {"token": tokens, "masses": self.masses, "logprobs": self.told, "kept": kept}
        named["laws"] = self.laws
        return {name: part for name, part in named.items() if part is not None}

    def first_rows(self, count: int) -> Answer:
        """The tokens and masses of the first rows."""
        assert self.tokens is not None and self.masses is not None
        kept, weights, offsets = self.masses
        own = slice(offsets[count])
        return Answer(self.tokens[:count], (kept[own], weights[own], offsets[: count + 1]))

    def size(self, name: str) -> int:
        """How many numbers of a part are compared; of masses and log-probabilities, those."""
        part = self.parts().get(name, ())
        if name == "masses" and part:
            return part[1].size
        if name == "logprobs" and part:
            return part[0].size + part[3].size
        return sum(array.size for array in part)


def same_bits(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Equal in shape and in every bit: -0 is not 0, and nan is nan."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def differing(expected: Answer, got: Answer) -> list[str]:
    """Names of the parts that came back other than expected."""
    wanted = expected.parts()
    return [
        name
        for name, part in got.parts().items()
        if not all(same_bits(a, b) for a, b in zip(wanted[name], part, strict=True))
    ]


@dataclass(frozen=True)
class Way:
    """One engine, on one instruction set, in one reduction mode, behind given doors.

    The engine None is what people get who name none.
    """

    doors: Doors
    engine: str | None
    isa: str | None
    reduction: str

    @property
    def label(self) -> str:
        """What the report calls it."""
        if self.engine is None:
            return "default"
        return self.engine if self.isa is None else f"{self.engine} {self.isa}"

    @property
    def is_exact(self) -> bool:
        """Whether masses are integers: only then kept sets tell what was drawn from."""
        return self.reduction == "exact"

    @property
    def choice(self) -> dict[str, Any]:
        """The keywords that choose the engine."""
        return {"engine": self.engine, "isa": self.isa}

    def draw(
        self,
        logits: Any,
        settings: dict[str, Any],
        draws: int | None,
        **how: Any,
    ) -> NDArray[np.int64]:
        """Tokens of shape (B, n), or whatever `sample` gives where `draws` is None."""
        drawn = self.doors.sample(
            logits, **settings, n=draws, **self.choice, reduction=self.reduction, **how
        )
        return np.asarray(drawn.tokens)

    def weigh(self, logits: Any, settings: dict[str, Any], **how: Any) -> Any:
        """The kept sets of rows, as `kept_set` gives them."""
        filters = {name: value for name, value in settings.items() if name not in PLACE}
        return self.doors.kept_set(logits, **filters, **self.choice, **how)

    def masses(self, logits: Any, settings: dict[str, Any], **how: Any) -> Any:
        """The kept sets of rows as an answer has them; None where sums are not of integers."""
        if not self.is_exact:
            return None
        found = self.weigh(logits, settings, **how)
        tokens, masses, offsets = map(np.asarray, (found.tokens, found.masses, found.offsets))
        return tokens, masses.view(np.uint64), offsets

    def tell(self, case: Case, count: int, forms: tuple[str, ...]) -> Answer:
        """The first draw of each row, and what log-probabilities say of it."""
        told = self.doors.sample(
            case.rows,
            **case.settings,
            logprobs=min(count, case.vocabulary),
            logprobs_mode=forms,
            **self.choice,
            reduction=self.reduction,
        )
        parts = (told.logprobs, told.ranks, told.top_tokens, told.top_logprobs)
        return Answer(tokens=told.tokens[:, None], told=parts, kept=told.kept_count, draws=1)

    def laws(self, case: Case) -> Answer:
        """What the functions of whole rows say; the logarithm of a sum needs a temperature."""
        temperature = case.settings["temperature"]
        above = np.where(temperature == 0, 1.0, temperature)
        how: dict[str, Any] = {**self.choice, "reduction": self.reduction}
        laws = (
            self.doors.softmax(case.rows, temperature, **how),
            self.doors.log_softmax(case.rows, temperature, **how),
            self.doors.logsumexp(case.rows, above, **how),
        )
        return Answer(laws=laws)

    def whole(self, case: Case) -> Answer:
        """Every draw, the masses, and the log-probabilities of the first draw in each form."""
        told = self.tell(case, TOP, case.forms)
        tokens = self.draw(case.rows, case.settings, case.draws)
        masses = self.masses(case.rows, case.settings)
        return Answer(tokens=tokens, masses=masses, told=told.told, kept=told.kept)


def seen_once(case: Case, reduction: str) -> Answer:
    """What a way's `whole` is of the reference, but for masses, in one look at each row.

    `sample` gives either many draws or log-probabilities; asked twice, it would sort a row twice.
    """
    rows = as_rows(case.rows)
    settings = {name: value for name, value in case.settings.items() if name not in ADJUSTED}
    adjusted = {name: case.settings.get(name) for name in ADJUSTED}
    plan = make_plan(len(case.rows), **settings, draws=case.draws)
    adjustments = make_adjustments(rows, **adjusted)
    request = SampleRequest(rows.values, rows.vocabulary, plan, adjustments, reduction)
    logprobs = LogprobRequest(case.forms, min(TOP, case.vocabulary), has_mode_axis=True)
    seen = SampleOutput.empty(len(case.rows), draws=case.draws, kept_count=True, logprobs=logprobs)
    Execution.of("reference", None, None).sample(request, seen)
    told = None if seen.logprobs is None else seen.logprobs[1:]
    return Answer(tokens=seen.tokens, told=told, kept=seen.kept_count)
