"""From checked arguments to tokens: the steps that every caller of an engine goes through."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsample.api.result import SampleResult, Status, as_given, bad_row
from fastsample.engines.reference.adjusted import adjusted_row
from fastsample.inputs.logits import Rows
from fastsample.inputs.logits_processors import Adjustments
from fastsample.params.parameters import check_draws, check_threads
from fastsample.params.validation import logprobs_parameter

from . import resolve
from .contract import Job, Outcome

FORMS = ("raw", "tempered", "processed")
"""The laws that log-probabilities are told of."""


class Told(NamedTuple):
    """What is wanted beside the tokens.

    Attributes
    ----------
    logprobs : int or None
        Of how many top tokens; None for no log-probabilities at all.
    forms : tuple of str
        Of which laws; empty where `logprobs` is None.
    by_form : bool
        Whether the caller named several forms, so that results have an axis for them.
    """

    logprobs: int | None
    forms: tuple[str, ...]
    by_form: bool


NOTHING = Told(None, (), False)


def as_told(logprobs: Any, form: Any, vocabulary: int) -> Told:
    """Check `logprobs` and `form`, and say what the engine has to tell beside the tokens."""
    if logprobs is None and form == "raw":
        return NOTHING
    forms = (form,) if isinstance(form, str) else form
    if not isinstance(forms, tuple):
        raise TypeError(
            f"`form` must be a name or a tuple of names, got {type(form).__name__} {form!r} "
            f"(they are {FORMS})"
        )
    if not forms or any(name not in FORMS or forms.count(name) > 1 for name in forms):
        raise ValueError(f"`form` must be some of {FORMS}, each once, got {form!r} (one is enough)")
    if logprobs is None:
        return NOTHING
    return Told(logprobs_parameter(vocabulary).one(logprobs), forms, not isinstance(form, str))


def check_n(n: Any, told: Told) -> int:
    """Check `n`, and say how many draws it asks for."""
    draws = check_draws(n)
    if n is not None and told.forms:
        raise ValueError(
            f"`n` must be left out with `logprobs`, got {n} (log-probabilities are told of one "
            "draw)"
        )
    return draws


def marks(on_invalid: Any, n_rows: int) -> NDArray[np.bool_] | None:
    """Check `on_invalid`: where to mark rows with a bad parameter, None if they are errors."""
    if on_invalid == "raise":
        return None
    if on_invalid != "mark":
        raise ValueError(
            f'`on_invalid` must be "raise" or "mark", got {on_invalid!r} ("mark" gives a bad row '
            "the token -1 and a status)"
        )
    return np.zeros(n_rows, np.bool_)


def draw(
    rows: Rows,
    plan: NDArray[np.void],
    adjustments: Adjustments | None,
    told: Told = NOTHING,
    *,
    draws: int = 1,
    kept_count: bool = False,
    reduction: str = "exact",
    engine: str | None = None,
    isa: str | None = None,
    n_threads: Any = None,
    on_invalid: str = "raise",
    bad: NDArray[np.bool_] | None = None,
) -> Outcome:
    """Run an engine on checked arguments.

    Parameters
    ----------
    rows : Rows
    plan : array of PLAN, shape (B,)
    adjustments : Adjustments or None
    told : Told
    draws : int
        Tokens of each row; 1 where `told` asks for log-probabilities.
    kept_count : bool
        Whether the outcome has them.
    reduction, engine, isa, n_threads
        As in `sample`.
    on_invalid : {"raise", "mark"}
        The first row from which nothing can be drawn is an error, or such rows get a status.
    bad : bool array of shape (B,), or None
        Rows that are left alone, and marked BAD_PARAM.

    Raises
    ------
    ValueError
        A bad row, where they are not marked.
    """
    n_rows = len(plan)
    status = np.zeros(n_rows, np.uint8)
    if bad is not None:
        status[bad] = Status.BAD_PARAM
    outcome = Outcome(
        np.empty((n_rows, draws), np.int64),
        status,
        np.empty(n_rows, np.int64) if kept_count else None,
        *(_no_room(n_rows) if told.logprobs is None else _room_to_tell(told, n_rows)),
    )
    job = Job(rows.values, rows.vocabulary, plan, adjustments, reduction)
    resolve(engine, isa).run(job, outcome, isa=isa, n_threads=check_threads(n_threads))
    if on_invalid != "mark" and np.count_nonzero(status):
        raise first_bad(job, rows.shape, status)
    return outcome


def _room_to_tell(told: Told, n_rows: int) -> tuple[Any, ...]:
    """Make the arrays that what is told goes into."""
    some = (len(told.forms), n_rows)
    many = (*some, told.logprobs or 0)
    return (
        told.forms,
        np.empty(some, np.float64),
        np.empty(some, np.int64),
        np.empty(many, np.int64),
        np.empty(many, np.float64),
    )


@lru_cache(maxsize=64)
def _no_room(n_rows: int) -> tuple[Any, ...]:
    """Arrays without an element, which all calls that are told nothing can share."""
    return _room_to_tell(NOTHING, n_rows)


def first_bad(job: Job, shape: tuple[int, ...], status: NDArray[np.uint8]) -> ValueError:
    """Make the error for the first row of a job whose status is not OK."""
    row = int(np.flatnonzero(status)[0])
    adjusted = {row: adjusted_row(job, row)}
    return bad_row(adjusted, shape, status, adjusted=job.adjustments is not None)


def as_result(
    outcome: Outcome, rows: Rows, seed: Any, told: Told, *, n: int | None = None, tokens: Any = None
) -> SampleResult:
    """Give an outcome the shapes and the form that its caller expects.

    Parameters
    ----------
    outcome : Outcome
    rows : Rows
    seed : int or array of shape (B,)
    told : Told
    n : int or None
        None where the tokens of a row have no axis of their own.
    tokens : array or tensor, optional
        The caller's own, with the tokens already in it.
    """
    shape, torch = rows.shape, rows.torch
    if tokens is None:
        token_shape = shape if n is None else (*shape, n)
        tokens = as_given(outcome.tokens, token_shape, torch=torch)
    kept_count = outcome.kept_count
    if kept_count is not None:
        kept_count = as_given(kept_count, shape, torch=torch)
    status = as_given(outcome.status, shape, torch=torch)
    if told.logprobs is None:
        return SampleResult(tokens, None, None, None, None, kept_count, status, seed)
    some = (len(told.forms), *shape) if told.by_form else shape
    many = (*some, told.logprobs)
    return SampleResult(
        tokens,
        as_given(outcome.logprobs, some, torch=torch),
        as_given(outcome.ranks, some, torch=torch),
        as_given(outcome.top_tokens, many, torch=torch),
        as_given(outcome.top_logprobs, many, torch=torch),
        kept_count,
        status,
        seed,
    )
