"""From logits to tokens: `sample`, and the steps that every caller of an engine goes through."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .adjusted import adjusted_row
from .adjustments import Adjustments, make_adjustments
from .checks import STAGES, logprobs_of
from .engines import resolve
from .job import Job, Outcome
from .logits import Rows, as_rows
from .params import check_draws, check_threads, make_plan, place_draw
from .result import SampleResult, Status, as_given, bad_row, check_out

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


def sample(
    logits: Any,
    *,
    temperature: ArrayLike = 1.0,
    top_k: ArrayLike | None = 0,
    top_p: ArrayLike = 1.0,
    min_p: ArrayLike = 0.0,
    seed: ArrayLike | None = None,
    position: ArrayLike | None = None,
    stream: ArrayLike | None = None,
    n: int | None = None,
    mask: Any = None,
    bias: Any = None,
    prompt: Any = None,
    output: Any = None,
    repetition_penalty: ArrayLike = 1.0,
    frequency_penalty: ArrayLike = 0.0,
    presence_penalty: ArrayLike = 0.0,
    repetition_scope: str | int = "all",
    frequency_scope: str | int = "output",
    presence_scope: str | int = "output",
    min_keep: ArrayLike = 1,
    stages: tuple[str, ...] = STAGES,
    valid_vocab: int | None = None,
    logprobs: int | None = None,
    form: str | tuple[str, ...] = "raw",
    on_invalid: str = "raise",
    engine: str | None = None,
    isa: str | None = None,
    n_threads: int | None = None,
    out: Any = None,
) -> SampleResult:
    """Draw a token for each row of logits. Pure: the same arguments give the same tokens.

    Parameters
    ----------
    logits : array of shape (V,) or (B, V), float32, float16 or bfloat16, on the CPU
        A NumPy array (bfloat16 as the ml_dtypes package has it), a torch tensor, or anything with
        ``__dlpack__``. Read where it lies and never changed; any strides and alignment.
    temperature, top_k, top_p, min_p : scalar, or one per row, shape (B,)
        As in `SamplingParams`.
    seed : int or one per row, optional
        In [0, 2**64); int64 from NumPy and torch is read as 64 bits. None draws a fresh one, which
        the result tells.
    position : int or one per row
        In [0, 2**64): how many tokens have been drawn for this sequence, the prompt not counted; 0
        for the first. Any number that is never used twice with one (seed, stream) will do.
        Required when `seed` is given; 0 otherwise.
    stream : int, one per row, or "row"
        In [0, 2**32): which continuation of the seed. "row" puts row b on stream b. Required with
        one seed for more than one row; "row" when the seed is fresh; 0 otherwise.
    n : int, optional
        Draw so often from each row, on the streams ``stream`` to ``stream + n - 1``; "row" then
        starts row b at ``b * n``. Tokens get a last axis of length n. Not with `logprobs`.
    mask : bool array of shape (B, V), or int32 or uint32 array of shape (B, ceil(V / 32)), optional
        The tokens that are allowed: True, or bit ``t % 32`` of word ``t // 32``, the layout of
        xgrammar and llguidance. Columns may be missing at the end; their tokens are banned. Without
        the axis B, or with B = 1, it holds for all rows.
    bias : dict, list of B dicts (or None), or tuple (tokens, values), optional
        What is added to logits: ``{token: value}``, or two arrays, for all rows; or a dict per row.
        Values are rounded to float32, and finite or -inf.
    prompt, output : list of tokens, or list of B such lists, or integer array (B, T), optional
        The history that the penalties look at: what the model was given, and what it has said.
        Without one, penalties do nothing.
    repetition_penalty, frequency_penalty, presence_penalty : scalar, or one per row, shape (B,)
        As in `SamplingParams`.
    repetition_scope, frequency_scope, presence_scope : {"all", "prompt", "output"} or int
        As in `SamplingParams`; the same for all rows.
    min_keep : int, or one per row, shape (B,)
        As in `SamplingParams`.
    stages : tuple of str
        As in `SamplingParams`; the same for all rows.
    valid_vocab : int, optional
        How many columns are tokens, where the rest is padding, which is not looked at.
    logprobs : int, optional
        Tell log-probabilities: the drawn token's, and those of so many top tokens; 0 for none.
    form : {"raw", "tempered", "processed"} or tuple of these
        Of which law: the row as it came; after mask, bias and penalties, at the temperature; or
        what was drawn from, after the filters too. A tuple gives results an axis of its length.
    on_invalid : {"raise", "mark"}
        What a bad row is: one that after adjusting holds NaN or +inf, or nothing but -inf, or for
        which a parameter given per row is out of range. An error, or the token -1 and a `Status`
        for that row alone.
    engine : {None, "auto", "native", "reference"}
        None and "auto" take the native engine where it is installed. All give the same tokens.
    isa : str, optional
        An instruction set of `info`'s ``isa_usable``; None takes that of the environment's
        FASTSAMPLE_ISA, or the best one.
    n_threads : int, optional
        At least 1; None lets fastsample choose by rows x V. No more are used than `info` tells.
    out : int64 array or torch.int64 CPU tensor of the shape of the tokens, optional
        Written only when nothing is raised; it becomes the result's `tokens`.

    Returns
    -------
    SampleResult
        `tokens`, int64 of shape ``logits.shape[:-1]``, and what else it lists; tensors for torch
        logits.

    Raises
    ------
    TypeError
        An argument of the wrong kind or dtype.
    ValueError
        A value out of range, a shape that does not fit, a token that is not in the vocabulary, or a
        bad row where they are not marked. Nothing is drawn or written then.
    RuntimeError
        An engine or instruction set that this machine lacks.

    Notes
    -----
    A token is drawn with integer masses and a counter-based generator, Philox4x32-10 under the key
    `seed` and the counter (position, stream). Nothing else enters: not the other rows, the number
    of threads, the instruction set or the engine. `info`'s ``rule_version`` names the rule.

    Logits are adjusted in the order mask, bias, repetition, frequency, presence, in float32; a
    logit that is -inf stays so. Adjustments are read as they are: no row is copied for them.

    Raw log-probabilities do not depend on any parameter. A raw law of a row that is only valid
    once it is masked has nan for them.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> logits = np.array([4.0, 2.0, 1.0], dtype=np.float32)
    >>> [int(fastsample.sample(logits, seed=7, position=i).tokens) for i in range(8)]
    [0, 0, 0, 0, 2, 0, 0, 0]
    >>> fastsample.sample(np.stack([logits, -logits]), temperature=0).tokens
    array([0, 2])
    >>> result = fastsample.sample(logits, temperature=0, bias={0: -4.0}, logprobs=2)
    >>> int(result.tokens), round(float(result.logprobs), 3), int(result.ranks), result.top_tokens
    (1, -2.17, 2, array([0, 1]))
    """
    rows = as_rows(logits, valid_vocab)
    n_rows = len(rows.values)
    draws = check_draws(n)
    told = as_told(logprobs, form, rows.vocabulary)
    if n is not None and told.forms:
        raise ValueError(
            f"`n` must be left out with `logprobs`, got {n} (log-probabilities are told of one "
            "draw)"
        )
    shape = rows.shape if n is None else (*rows.shape, draws)
    destination = None if out is None else check_out(out, shape, torch=rows.torch)
    bad = marks(on_invalid, n_rows)
    seed, position, stream = place_draw(n_rows, seed, position, stream, bad)
    plan = make_plan(
        n_rows,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        frequency_penalty=frequency_penalty,
        presence_penalty=presence_penalty,
        repetition_scope=repetition_scope,
        frequency_scope=frequency_scope,
        presence_scope=presence_scope,
        min_keep=min_keep,
        stages=stages,
        seed=seed,
        position=position,
        stream=stream,
        draws=draws,
        bad=bad,
    )
    if bad is not None and isinstance(seed, np.ndarray):
        seed[bad] = 0
    outcome = draw(
        rows,
        plan,
        make_adjustments(rows, mask=mask, bias=bias, prompt=prompt, output=output),
        told,
        draws=draws,
        kept_count=True,
        engine=engine,
        isa=isa,
        n_threads=n_threads,
        on_invalid=on_invalid,
        bad=bad,
    )
    if destination is None:
        return as_result(outcome, rows, seed, told, n=n)
    destination[...] = outcome.tokens.reshape(shape)
    return as_result(outcome, rows, seed, told, n=n, tokens=out)


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
    return Told(logprobs_of(vocabulary).one(logprobs), forms, not isinstance(form, str))


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
    plan : array of SETTINGS, shape (B,)
    adjustments : Adjustments or None
    told : Told
    draws : int
        Tokens of each row; 1 where `told` asks for log-probabilities.
    kept_count : bool
        Whether the outcome has them.
    engine, isa, n_threads
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
    job = Job(rows.values, rows.vocabulary, plan, adjustments)
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
