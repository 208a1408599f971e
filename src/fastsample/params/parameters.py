"""`SamplingParams`, and checks of seed, position and stream."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import wraps
from typing import Any

import numpy as np

from .ignored_tokens import parse_ignored
from .stages import check_stages, require_stage
from .table import DRAW, MIN_KEEP, PENALTIES, PENALTY_SCOPES, SEED, STAGE_PARAMETERS, STAGES
from .validation import Bad, per_row

MAX_POSITION = 2**64 - 1


class _KeepsPlan:
    __slots__ = ("_prepared",)  # what sequences of these parameters share: api/sequences.py
    _prepared: Any


@dataclass(frozen=True, slots=True)
class SamplingParams(_KeepsPlan):
    """Sampling parameters of one sequence: immutable, hashable and checked.

    Parameters
    ----------
    temperature : float
        0, or finite and > 0. Logits are divided by it; 0 takes the top token and skips the filters.
    top_k : int
        Keep exactly this many top tokens.
    top_p : float
        In [0, 1]. Keep the fewest top tokens whose probabilities sum to at least `top_p`, and at
        least one: nucleus sampling.
    min_p : float
        In [0, 1]. Keep tokens whose probability is at least `min_p` times that of the top token.
    typical_p : float
        In [0, 1]. Keep the tokens whose information content is nearest to the entropy, the fewest
        whose probabilities sum to at least `typical_p`. This can remove the top token.
    epsilon_cutoff : float
        In [0, 1]. Keep tokens with at least this probability.
    top_n_sigma : float
        Finite and >= 0. Keep tokens whose logit is at most this many standard deviations of the
        logits below the top one.
    top_a : float
        In [0, 1]. Keep tokens whose probability is at least `top_a` times the square of that of the
        top token.
    seed : int or None
        In [0, 2**64); int64 of NumPy is read as 64 bits. None draws a fresh one from the system.
    repetition_penalty : float
        Finite and > 0. For each token in the scope, the logit is divided by it if positive, else
        multiplied.
    frequency_penalty : float
        Finite. Subtracted from a logit once per occurrence of its token in the scope.
    presence_penalty : float
        Finite. Subtracted from a logit if its token occurs in the scope.
    repetition_scope, frequency_scope, presence_scope : {"all", "prompt", "output"} or int
        The tokens that a penalty counts: prompt and output, one of them, or the last n of both.
    ignore_tokens : tokens, "outside", or a list of both
        Tokens that no penalty counts, such as a line break, the end of a turn, or placeholders of
        images. They keep their place among the last n. "outside" are all that are not columns of
        the logits; other tokens of a history must be.
    min_keep : int
        At least 1. Every filter keeps at least this many of its top tokens.
    stages : tuple of str
        The order in which the temperature and the filters act, each at most once. A stage that is
        left out must be off: a temperature of 1, a filter at its off value.
    draw : {None, "race", "inverse"}
        How the token is drawn: by a race of the kept tokens, or at a random share of their running
        sum. None is "race" in the reduction "exact", else "inverse".

    Raises
    ------
    TypeError
        A value of another type; bool is neither a number nor an integer.
    ValueError
        A value out of range, an unknown or repeated stage, or a parameter that is on without its
        stage.

    Notes
    -----
    Defaults, and the values that switch a parameter off:

    ==================  ========  ==============
    parameter           default   off
    ==================  ========  ==============
    temperature         1.0       1.0
    top_k               0         0, -1, None
    top_p               1.0       1.0
    min_p               0.0       0.0
    typical_p           1.0       1.0
    epsilon_cutoff      0.0       0.0
    top_n_sigma         0.0       0.0
    top_a               0.0       0.0
    seed                None      (never)
    repetition_penalty  1.0       1.0
    frequency_penalty   0.0       0.0
    presence_penalty    0.0       0.0
    repetition_scope    all       0
    frequency_scope     output    0
    presence_scope      output    0
    ignore_tokens       ()        ()
    min_keep            1         1
    stages              (below)   ()
    draw                None      (never)
    ==================  ========  ==============

    The default order of the stages is ``("top_n_sigma", "temperature", "top_k", "top_p", "top_a",
    "min_p", "typical_p", "epsilon_cutoff")``. Penalties act before all stages: repetition,
    frequency, presence. Top tokens are those with the largest logits, ties by ascending token. All
    values but integers are rounded to float32, and the rounded value must be in range: a top_p of
    1 + 1e-9 is 1.

    Examples
    --------
    >>> from fastsample import SamplingParams
    >>> params = SamplingParams(temperature=0.8, top_k=50, top_p=0.95, min_p=0.05)
    >>> params.top_k, params.repetition_penalty
    (50, 1.0)
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    epsilon_cutoff: float = 0.0
    top_n_sigma: float = 0.0
    top_a: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_scope: str | int = "all"
    frequency_scope: str | int = "output"
    presence_scope: str | int = "output"
    ignore_tokens: Any = ()
    min_keep: int = 1
    stages: tuple[str, ...] = STAGES
    draw: str | None = None

    def __post_init__(self) -> None:
        check_stages(self.stages)
        object.__setattr__(self, "stages", tuple(self.stages))
        for parameter in (*STAGE_PARAMETERS, *PENALTIES, MIN_KEEP):
            number = parameter.scalar(getattr(self, parameter.name))
            object.__setattr__(self, parameter.name, number)
        for parameter in STAGE_PARAMETERS:
            require_stage(parameter, getattr(self, parameter.name), self.stages)
        for parameter in PENALTY_SCOPES:
            scope = getattr(self, parameter.name)
            number = parameter.one(scope)
            object.__setattr__(self, parameter.name, scope if number < 0 else number)
        object.__setattr__(self, "ignore_tokens", parse_ignored(self.ignore_tokens).value)
        DRAW.one(self.draw)
        if self.seed is not None:
            object.__setattr__(self, "seed", SEED.scalar(self.seed))


_NO_FIELDS = {
    "params": "pass it first, without a name",
    "position": "a sampler starts at 0; reset(3) goes to position 3",
    "prompt": "a Sampler, its `add` and `sample` take it",
    "stop": "compare the decoded text in the loop, and end it there",
    "stop_token_ids": "compare each token in the loop, and end it there",
    "max_tokens": "count tokens in the loop",
    "n": "`sample` takes it; a Sampler draws one token for each row",
    "logprobs": "`sample` and Sampler.sample take it",
    "logit_bias": "pass bias= to each draw",
}
"""Names that are no field here, and what does their work."""


def replace_fields(params: SamplingParams | None, keywords: dict[str, Any]) -> SamplingParams:
    """Replace fields of `params`, or of the defaults if it is None, by keywords."""
    if params is not None and not isinstance(params, SamplingParams):
        raise TypeError(
            f"`params` must be a SamplingParams, got {type(params).__name__} (pass a field by its "
            "name, as in SamplingParams(temperature=0.8))"
        )
    if params is not None and not keywords:
        return params
    _refuse_unknown(keywords)
    return SamplingParams(**keywords) if params is None else replace(params, **keywords)


def _refuse_unknown(keywords: dict[str, Any]) -> None:
    names = SamplingParams.__dataclass_fields__
    for unknown in keywords:
        if unknown in names:
            continue
        similar = get_close_matches(unknown, names, n=1)
        way_out = f"did you mean `{similar[0]}`?" if similar else f"the fields: {', '.join(names)}"
        raise TypeError(
            f"`{unknown}` must be a field of SamplingParams, and is not "
            f"({_NO_FIELDS.get(unknown, way_out)})"
        )


def _checking_names(init: Callable[..., None]) -> Callable[..., None]:
    """Refuse unknown names in our own words, before Python does."""

    @wraps(init)
    def checking(self: SamplingParams, *arguments: Any, **keywords: Any) -> None:
        _refuse_unknown(keywords)
        init(self, *arguments, **keywords)

    return checking


SamplingParams.__init__ = _checking_names(SamplingParams.__init__)  # type: ignore[method-assign]


def fresh_seed() -> int:
    """Draw a 64-bit seed from the system's entropy."""
    return int.from_bytes(os.urandom(8), "little")


def resolve_rng_position(
    n_rows: int, seed: Any, position: Any, stream: Any, bad: Bad | None = None
) -> tuple[Any, Any, Any]:
    """Replace a seed, position and stream of None; refuse a call that would repeat draws.

    Returns
    -------
    seed : int, or a new uint64 array of shape (n_rows,)
    position : that of the call; 0 for None with a fresh seed
    stream : that of the call; for None "row" with a fresh seed, else 0
    """
    if seed is None:
        position = 0 if position is None else position
        return fresh_seed(), position, "row" if stream is None else stream
    if position is None:
        raise ValueError(
            "`position` must be given with `seed`, got None (pass how many tokens have been drawn "
            "for this sequence, 0 for the first; a loop without it would repeat its random numbers)"
        )
    if per_row(seed):
        seeds = SEED.column(seed, n_rows, bad).astype(np.uint64)
        return seeds, position, 0 if stream is None else stream
    if stream is None and n_rows > 1:
        raise ValueError(
            f"`stream` must be given with one seed for {n_rows} rows, got None (pass "
            'stream="row" for continuations of one prompt, or one seed per row for sequences of '
            "their own)"
        )
    return SEED.one(seed), position, 0 if stream is None else stream
