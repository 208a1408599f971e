"""What a caller may ask for: sampling parameters, checked once, laid out as one plan row per row.

Engines read the plan and check nothing.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import validation as checks
from .validation import POSITION, SEED, STAGES, STREAM, Bad, per_row

SETTINGS = np.dtype(
    [
        ("temperature", "<f8"),
        ("top_p", "<f8"),
        ("min_p", "<f8"),
        ("repetition_penalty", "<f8"),
        ("frequency_penalty", "<f8"),
        ("presence_penalty", "<f8"),
        ("top_k", "<i8"),
        ("min_keep", "<i8"),
        ("repetition_scope", "<i8"),
        ("frequency_scope", "<i8"),
        ("presence_scope", "<i8"),
        ("seed", "<u8"),
        ("position", "<u8"),
        ("stream", "<u4"),
        ("stages", "<u4"),
    ]
)
"""One row's settings, as the kernels read them; ``top_k`` 0 is off."""

MAX_POSITION = 2**64 - 1

# SETTINGS in two parts: what a row's parameters say, and where its draw is made.
_BY_ROW = (
    checks.TEMPERATURE,
    checks.TOP_P,
    checks.MIN_P,
    checks.REPETITION_PENALTY,
    checks.FREQUENCY_PENALTY,
    checks.PRESENCE_PENALTY,
    checks.TOP_K,
    checks.MIN_KEEP,
)
_SCOPES = (checks.REPETITION_SCOPE, checks.FREQUENCY_SCOPE, checks.PRESENCE_SCOPE)
_pack_choices = struct.Struct("<6d5q").pack
_pack_place = struct.Struct("<QQII").pack

OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""The value of a parameter that needs no stage."""

Choices = tuple[bytes, int]
"""A row's parameters as SETTINGS begins with them, and the code of its stages, which ends it."""

Columns = list[tuple[str, NDArray[Any]]]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose a token: scalars, checked when made, hashable, never changed.

    Parameters
    ----------
    temperature : float
        0, or finite and > 0. Logits are divided by it; 0 takes the top token and skips the filters.
    top_k : int
        Keep the first `top_k` tokens, exactly that many.
    top_p : float
        In [0, 1]. Keep the shortest head of the tokens whose mass reaches this share; at least one.
    min_p : float
        In [0, 1]. Keep tokens at least this probable, measured against the top token.
    seed : int or None
        In [0, 2**64); NumPy's int64 is read as 64 bits. None: a fresh one from the system.
    repetition_penalty : float
        Finite and > 0. Divides the positive logits of the tokens in its scope, and multiplies the
        others; once per token, however often it is there.
    frequency_penalty : float
        Finite. Subtracted from a logit once for every time that the scope holds the token.
    presence_penalty : float
        Finite. Subtracted from a logit once if the scope holds the token.
    repetition_scope, frequency_scope, presence_scope : {"all", "prompt", "output"} or int
        What the penalty looks at: prompt and output, one of them, or the last n tokens of both.
    min_keep : int
        At least 1. Every filter keeps at least the first `min_keep` tokens that it is given.
    stages : tuple of str
        The order in which temperature, top_k, top_p and min_p act, each at most once. What is left
        out must be off: a temperature of 1, a filter at its off value.

    Raises
    ------
    TypeError
        A value that is not a number, or not an integer where one is needed; bool is neither.
    ValueError
        A value outside its range, an unknown or repeated stage, or one that is missing.

    Notes
    -----
    Each parameter, the value that it has when left out and the ones that switch it off:

    ==================  ========  ==============
    parameter           default   off
    ==================  ========  ==============
    temperature         1.0       1.0
    top_k               0         0, -1, None
    top_p               1.0       1.0
    min_p               0.0       0.0
    seed                None      (never)
    repetition_penalty  1.0       1.0
    frequency_penalty   0.0       0.0
    presence_penalty    0.0       0.0
    repetition_scope    all       0
    frequency_scope     output    0
    presence_scope      output    0
    min_keep            1         1
    stages              (below)   ()
    ==================  ========  ==============

    The default order of the stages is ``("temperature", "top_k", "top_p", "min_p")``. Penalties act
    before all of them: repetition, frequency, presence. Tokens are ordered by logit, the higher
    first, and equal logits by token, the lower first. temperature, top_p, min_p and the penalties
    are rounded to float32 before use, and it is the rounded value that must be in range: a top_p
    of 1 + 1e-9 is 1.

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
    seed: int | None = None
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_scope: str | int = "all"
    frequency_scope: str | int = "output"
    presence_scope: str | int = "output"
    min_keep: int = 1
    stages: tuple[str, ...] = STAGES

    def __post_init__(self) -> None:
        checks.stages_code(self.stages)
        object.__setattr__(self, "stages", tuple(self.stages))
        for parameter in _BY_ROW:
            number = parameter.scalar(getattr(self, parameter.name))
            _need_stage(parameter.name, number, self.stages)
            object.__setattr__(self, parameter.name, number)
        for parameter in _SCOPES:
            given = getattr(self, parameter.name)
            number = parameter.one(given)
            object.__setattr__(self, parameter.name, given if number < 0 else number)
        if self.seed is not None:
            object.__setattr__(self, "seed", SEED.scalar(self.seed))


_NO_FIELDS = {
    "params": "pass it first, without a name",
    "position": "a sampler starts at 0; reset(3) goes to position 3",
}


def replace_fields(params: SamplingParams | None, keywords: dict[str, Any]) -> SamplingParams:
    """Lay keywords over parameters, the defaults where `params` is None."""
    if params is not None and not isinstance(params, SamplingParams):
        raise TypeError(
            f"`params` must be a SamplingParams, got {type(params).__name__} (pass a field by its "
            "name, as in temperature=0.8)"
        )
    names = [field.name for field in fields(SamplingParams)]
    unknown = next((name for name in keywords if name not in names), None)
    if unknown is not None:
        way_out = _NO_FIELDS.get(unknown, f"the fields are {', '.join(names)}")
        raise TypeError(f"`{unknown}` must be a field of SamplingParams, and is not ({way_out})")
    return SamplingParams(**keywords) if params is None else replace(params, **keywords)


def settings_of(params: SamplingParams) -> dict[str, Any]:
    """Give every field but the seed, as keywords of `make_plan`."""
    return {
        field.name: getattr(params, field.name)
        for field in fields(SamplingParams)
        if field.name != "seed"
    }


def fresh_seed() -> int:
    """Draw a 64-bit seed from the system's entropy."""
    return int.from_bytes(os.urandom(8), "little")


def check_position(position: Any) -> int:
    """Check one position: an integer in [0, 2**64)."""
    checked: int = POSITION.one(position)
    return checked


def check_threads(n_threads: Any) -> int | None:
    """Check a number of threads: a positive integer, or None to let the engine choose."""
    return None if n_threads is None else checks.THREADS.one(n_threads)


def check_draws(n: Any) -> int:
    """Check a number of draws: a positive integer, or None, which is one."""
    return 1 if n is None else checks.DRAWS.one(n)


def place_draw(
    n_rows: int, seed: Any, position: Any, stream: Any, bad: Bad | None = None
) -> tuple[Any, Any, Any]:
    """Settle what was left out of seed, position and stream; refuse what would repeat draws.

    Returns
    -------
    seed : int, or a new uint64 array of shape (n_rows,)
    position : the one given, or 0 with a fresh seed
    stream : the one given, or 0, or "row" with a fresh seed
    """
    if seed is None:
        position = 0 if position is None else position
        return fresh_seed(), position, "row" if stream is None else stream
    if position is None:
        raise ValueError(
            "`position` must be given with `seed`, got None (pass how many tokens have been drawn "
            "for this sequence, 0 for the first; a loop that leaves it out would draw with one "
            "number for ever)"
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


def make_plan(
    n_rows: int,
    *,
    temperature: ArrayLike = 1.0,
    top_k: ArrayLike | None = 0,
    top_p: ArrayLike = 1.0,
    min_p: ArrayLike = 0.0,
    repetition_penalty: ArrayLike = 1.0,
    frequency_penalty: ArrayLike = 0.0,
    presence_penalty: ArrayLike = 0.0,
    repetition_scope: str | int = "all",
    frequency_scope: str | int = "output",
    presence_scope: str | int = "output",
    min_keep: ArrayLike = 1,
    stages: tuple[str, ...] = STAGES,
    seed: ArrayLike = 0,
    position: ArrayLike = 0,
    stream: ArrayLike = 0,
    draws: int = 1,
    bad: Bad | None = None,
) -> NDArray[np.void]:
    """Check every parameter, a scalar or one per row, and lay out one plan row per row.

    Parameters
    ----------
    draws : int
        How many streams a row draws on, from its `stream` upwards; "row" leaves room for them.
    bad : bool array of shape (n_rows,), optional
        Rows whose own value is out of range are marked here, where they would be an error.

    Returns
    -------
    plan : array of SETTINGS, shape (n_rows,), C-contiguous and writable
    """
    given: tuple[Any, ...] = (
        *(temperature, top_p, min_p, repetition_penalty, frequency_penalty, presence_penalty),
        *(top_k, min_keep, repetition_scope, frequency_scope, presence_scope, stages),
    )
    columns: Columns = []
    try:
        choices = remembered_choices(*given)
    except TypeError:
        choices = None
    if choices is None:
        choices, columns = _choices(n_rows, given, bad)
    if isinstance(stream, str):
        stream = _streams_by_row(stream, n_rows, draws)
    if draws > 1:
        stream = _first_streams(stream, n_rows, draws, bad)
    place, more_columns = _place(n_rows, (seed, position, stream), bad)
    plan = plan_of(n_rows, choices, place)
    for name, column in (*columns, *more_columns):
        plan[name] = column
    return plan


def plan_of(n_rows: int, choices: Choices, place: tuple[int, int, int]) -> NDArray[np.void]:
    """Lay out a plan whose rows are all the same: parameters, and seed, position and stream."""
    record = choices[0] + _pack_place(*place, choices[1])
    plan: NDArray[np.void] = np.ndarray((n_rows,), SETTINGS, bytearray(record * n_rows))
    return plan


def _place(
    n_rows: int, given: tuple[Any, ...], bad: Bad | None
) -> tuple[tuple[Any, Any, Any], Columns]:
    """Check where draws are made: numbers that are the same for all rows, and columns."""
    seed, position, stream = given
    if type(seed) is type(position) is type(stream) is int:
        return (SEED.one(seed), POSITION.one(position), STREAM.one(stream)), []
    place: list[Any] = []
    columns: Columns = []
    for parameter, value in zip((SEED, POSITION, STREAM), given, strict=True):
        if per_row(value):
            place.append(0)
            columns.append((parameter.name, parameter.column(value, n_rows, bad)))
        else:
            place.append(parameter.one(value))
    return (place[0], place[1], place[2]), columns


def _choices(n_rows: int, given: tuple[Any, ...], bad: Bad | None) -> tuple[Choices, Columns]:
    """Lay out a row's parameters, and its stages: what is the same for all rows, and columns."""
    *numbers, stages = given
    code = checks.stages_code(stages)
    record: list[Any] = []
    columns: Columns = []
    for parameter, value in zip(_BY_ROW, numbers, strict=False):
        if per_row(value):
            column = parameter.column(value, n_rows, bad)
            _need_stage(parameter.name, column, stages, bad)
            record.append(1)
            columns.append((parameter.name, column))
        else:
            record.append(parameter.one(value))
            _need_stage(parameter.name, record[-1], stages)
    record += [scope.one(value) for scope, value in zip(_SCOPES, numbers[-3:], strict=True)]
    return (_pack_choices(*record), code), columns


@lru_cache(maxsize=256, typed=True)
def remembered_choices(*given: Any) -> Choices | None:
    """Lay out parameters that are the same for all rows, once for each set of them.

    None, or a TypeError, where they are not, or could change behind the memory's back, or are
    float32, whose denormals may equal 0 here.
    """
    if all(isinstance(value, (int, float, str, np.integer, NoneType)) for value in given[:-1]):
        return _choices(1, given, None)[0]
    return None


def _need_stage(name: str, numbers: Any, stages: tuple[str, ...], bad: Bad | None = None) -> None:
    """Refuse a parameter that is on and has no stage to act in, for all rows or one per row."""
    if name not in OFF or name in stages:
        return
    on = np.flatnonzero(np.asarray(numbers, np.float32) != OFF[name])
    if bad is not None:
        bad[on] = True
    elif len(on):
        number, at = (numbers[on[0]], f" at row {on[0]}") if np.ndim(numbers) else (numbers, "")
        raise ValueError(
            f"`stages` must hold {name!r} where `{name}` is on, got {name}={number}{at} and "
            f"stages={tuple(stages)} (add the stage, or leave `{name}` out)"
        )


def _streams_by_row(name: str, n_rows: int, draws: int) -> NDArray[np.int64]:
    if name != "row":
        raise ValueError(
            f'`stream` must be "row", an integer or one integer per row, got {name!r} '
            f"({STREAM.way_out})"
        )
    return np.arange(0, n_rows * draws, draws)


def _first_streams(stream: Any, n_rows: int, draws: int, bad: Bad | None) -> Any:
    """Check streams of which each is the first of several."""
    first = replace(
        STREAM,
        rule=f"in [0, 2**32 - {draws - 1})",
        way_out=f"{draws} draws take as many streams, from this one upwards",
        high=STREAM.high - (draws - 1),
    )
    return first.column(stream, n_rows, bad) if per_row(stream) else first.one(stream)
