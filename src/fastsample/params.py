"""What a caller may ask for: sampling parameters, checked once, laid out as one plan row per row.

Every message about a parameter is made here. Engines read the plan and check nothing.
"""

from __future__ import annotations

import math
import secrets
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

SETTINGS = np.dtype(
    [
        ("temperature", "<f8"),
        ("top_p", "<f8"),
        ("min_p", "<f8"),
        ("top_k", "<i8"),
        ("seed", "<u8"),
        ("position", "<u8"),
        ("stream", "<u4"),
        ("unused", "<u4"),
    ]
)
"""One row's settings, as the kernels read them; ``top_k`` 0 is off."""

MAX_POSITION = 2**64 - 1

_pack_settings = struct.Struct("<dddqQQII").pack


def _per_row(value: Any) -> bool:
    """Tell a value given per row from one given for all rows."""
    return isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > 0


def _bare(value: Any) -> Any:
    """Take a NumPy scalar, or an array without dimensions, out of its box."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def _is_int64(value: Any) -> bool:
    return str(getattr(value, "dtype", "")) in ("int64", ">i8", "torch.int64")


def _at(row: int | None) -> str:
    return "" if row is None else f" at row {row}"


@dataclass(frozen=True)
class _Parameter(ABC):
    """One numeric parameter: its name, what it must be, the way out, and its closed range."""

    name: str
    rule: str
    way_out: str
    low: float
    high: float
    dtype: type[np.generic]
    plain: ClassVar[Any]
    kind: ClassVar[str]
    dtype_kinds: ClassVar[str]

    @abstractmethod
    def number(self, value: Any, row: int | None = None) -> Any:
        """Return `value` as the Python number that the parameter holds, its range unchecked."""

    def wrong_kind(self, got: str, row: int | None = None) -> TypeError:
        return TypeError(f"`{self.name}` must be {self.kind}, got {got}{_at(row)} ({self.way_out})")

    def one(self, value: Any, row: int | None = None) -> Any:
        """Check a value for one row, or for all rows where `row` is None."""
        if type(value) is self.plain and self.low <= value <= self.high:
            return value
        number = self.number(value, row)
        if self.low <= number <= self.high:
            return number
        raise ValueError(
            f"`{self.name}` must be {self.rule}, got {number}{_at(row)} ({self.way_out})"
        )

    def scalar(self, value: Any) -> Any:
        """Check a value that may not be given per row."""
        if _per_row(value):
            raise TypeError(
                f"`{self.name}` must be {self.kind}, got {type(value).__name__} (for one value per "
                "row call sample(), which takes them)"
            )
        return self.one(value)

    def column(self, value: Any, n_rows: int) -> NDArray[Any]:
        """Check a value given per row: shape, kind and range, the first bad row named."""
        array = None if isinstance(value, (list, tuple)) else self._array(value)
        shape = (len(value),) if array is None else array.shape
        if shape != (n_rows,):
            raise ValueError(
                f"`{self.name}` must be a scalar or have shape (B,) = ({n_rows},), got {shape} "
                "(one value per row of `logits`)"
            )
        if array is None:
            return self._one_by_one(value)
        if array.dtype.kind not in self.dtype_kinds:
            raise self.wrong_kind(f"an array of {array.dtype}")
        # Python's comparisons are exact between integer types, where NumPy's depend on its version.
        if n_rows and not (self.low <= array.min().item() and array.max().item() <= self.high):
            return self._one_by_one(array.tolist())
        return array

    def _one_by_one(self, values: Sequence[Any]) -> NDArray[Any]:
        return np.array([self.one(value, row) for row, value in enumerate(values)], self.dtype)

    def _array(self, value: Any) -> NDArray[Any]:
        try:
            return np.asarray(value)
        except (TypeError, RuntimeError) as error:
            raise self.wrong_kind(f"{type(value).__name__}: {error}") from error


class _Real(_Parameter):
    """A parameter that the rule rounds to float32; its range is that of the rounded value."""

    plain = float
    kind = "a number"
    dtype_kinds = "fiu"

    def number(self, value: Any, row: int | None = None) -> float:
        bare = _bare(value)
        if isinstance(bare, bool) or not isinstance(bare, (int, float, np.floating)):
            raise self.wrong_kind(f"{type(value).__name__} {value!r}", row)
        try:
            return float(bare)
        except OverflowError:
            return math.inf if bare > 0 else -math.inf


class _Whole(_Parameter):
    """A parameter that is an integer."""

    plain = int
    kind = "an integer"
    dtype_kinds = "iu"

    def number(self, value: Any, row: int | None = None) -> int:
        bare = _bare(value)
        if isinstance(bare, bool) or not isinstance(bare, int):
            raise self.wrong_kind(f"{type(value).__name__} {value!r}", row)
        return int(bare)


class _TopK(_Whole):
    """top_k: None and -1 are other spellings of 0, off."""

    def number(self, value: Any, row: int | None = None) -> int:
        number = 0 if value is None else super().number(value, row)
        return 0 if number == -1 else number


class _Seed(_Whole):
    """seed: int64 from NumPy and torch, which lack or avoid uint64, is read as 64 bits."""

    def number(self, value: Any, row: int | None = None) -> int:
        number = super().number(value, row)
        return number & (2**64 - 1) if _is_int64(value) else number

    def _array(self, value: Any) -> NDArray[Any]:
        array = super()._array(value)
        return array.astype(np.int64).view(np.uint64) if _is_int64(array) else array


# The last float64 values that float32 rounds to something allowed: -2^-150 to zero, 1 + 2^-24 to
# one, and the last one under half a step past float32's largest to that largest.
_ZERO, _ONE = -(2.0**-150), 1.0 + 2.0**-24
_FINITE = math.nextafter(2.0**128 - 2.0**103, 0.0)

_TEMPERATURE = _Real(
    name="temperature",
    rule="0 or a finite number > 0",
    way_out="0 takes the top token, 1 changes nothing",
    low=_ZERO,
    high=_FINITE,
    dtype=np.float64,
)
_TOP_P = _Real(
    name="top_p",
    rule="in [0, 1]",
    way_out="a share of the mass such as 0.95; 1 is off",
    low=_ZERO,
    high=_ONE,
    dtype=np.float64,
)
_MIN_P = _Real(
    name="min_p",
    rule="in [0, 1]",
    way_out="a share of the top token's probability such as 0.05; 0 is off",
    low=_ZERO,
    high=_ONE,
    dtype=np.float64,
)
_TOP_K = _TopK(
    name="top_k",
    rule="a count of tokens in [1, 2**63), or off",
    way_out="0, -1 and None are off",
    low=0,
    high=2**63 - 1,
    dtype=np.int64,
)
_SEED = _Seed(
    name="seed",
    rule="in [0, 2**64)",
    way_out="take it modulo 2**64, or leave `seed` out for a fresh one",
    low=0,
    high=2**64 - 1,
    dtype=np.uint64,
)
_POSITION = _Whole(
    name="position",
    rule="in [0, 2**64)",
    way_out="how many tokens have been drawn for this sequence",
    low=0,
    high=MAX_POSITION,
    dtype=np.uint64,
)
_STREAM = _Whole(
    name="stream",
    rule="in [0, 2**32)",
    way_out='which continuation of one seed; "row" puts row b on stream b',
    low=0,
    high=2**32 - 1,
    dtype=np.uint32,
)
_THREADS = _Whole(
    name="n_threads",
    rule="in [1, 2**31)",
    way_out="None lets fastsample choose",
    low=1,
    high=2**31 - 1,
    dtype=np.int64,
)
_FIELDS = (_TEMPERATURE, _TOP_P, _MIN_P, _TOP_K, _SEED, _POSITION, _STREAM)


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

    Raises
    ------
    TypeError
        A value that is not a number, or not an integer where one is needed; bool is neither.
    ValueError
        A value outside its range.

    Notes
    -----
    Each parameter, the value that it has when left out and the ones that switch it off:

    ===========  =======  ==============
    parameter    default  off
    ===========  =======  ==============
    temperature  1.0      1.0
    top_k        0        0, -1, None
    top_p        1.0      1.0
    min_p        0.0      0.0
    seed         None     (never)
    ===========  =======  ==============

    Filters act in the order temperature, top_k, top_p, min_p. Tokens are ordered by logit, the
    higher first, and equal logits by token, the lower first. temperature, top_p and min_p are
    rounded to float32 before use, and it is the rounded value that must be in range: 1 + 1e-9 is 1.

    Examples
    --------
    >>> from fastsample import SamplingParams
    >>> SamplingParams(temperature=0.8, top_k=50, top_p=0.95, min_p=0.05)
    SamplingParams(temperature=0.8, top_k=50, top_p=0.95, min_p=0.05, seed=None)
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        for parameter in (_TEMPERATURE, _TOP_K, _TOP_P, _MIN_P):
            value = parameter.scalar(getattr(self, parameter.name))
            object.__setattr__(self, parameter.name, value)
        if self.seed is not None:
            object.__setattr__(self, "seed", _SEED.scalar(self.seed))


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


def fresh_seed() -> int:
    """Draw a 64-bit seed from the system's entropy."""
    return secrets.randbits(64)


def check_position(position: Any) -> int:
    """Check one position: an integer in [0, 2**64)."""
    checked: int = _POSITION.one(position)
    return checked


def check_threads(n_threads: Any) -> int | None:
    """Check a number of threads: a positive integer, or None to let the engine choose."""
    return None if n_threads is None else _THREADS.one(n_threads)


def place_draw(n_rows: int, seed: Any, position: Any, stream: Any) -> tuple[Any, Any, Any]:
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
    if _per_row(seed):
        seeds = _SEED.column(seed, n_rows).astype(np.uint64)
        return seeds, position, 0 if stream is None else stream
    if stream is None and n_rows > 1:
        raise ValueError(
            f"`stream` must be given with one seed for {n_rows} rows, got None (pass "
            'stream="row" for continuations of one prompt, or one seed per row for sequences of '
            "their own)"
        )
    return _SEED.one(seed), position, 0 if stream is None else stream


def make_plan(
    n_rows: int,
    *,
    temperature: ArrayLike = 1.0,
    top_k: ArrayLike | None = 0,
    top_p: ArrayLike = 1.0,
    min_p: ArrayLike = 0.0,
    seed: ArrayLike = 0,
    position: ArrayLike = 0,
    stream: ArrayLike = 0,
) -> NDArray[np.void]:
    """Check every parameter, a scalar or one per row, and lay out one plan row per row.

    Returns
    -------
    plan : array of SETTINGS, shape (n_rows,), C-contiguous and writable
    """
    if isinstance(stream, str):
        stream = _stream_by_name(stream, n_rows)
    given = (temperature, top_p, min_p, top_k, seed, position, stream)
    record, columns = [], []
    for parameter, value in zip(_FIELDS, given, strict=True):
        if type(value) is parameter.plain or not _per_row(value):
            record.append(parameter.one(value))
        else:
            record.append(0)
            columns.append((parameter.name, parameter.column(value, n_rows)))
    plan: NDArray[np.void]
    plan = np.ndarray((n_rows,), SETTINGS, bytearray(_pack_settings(*record, 0) * n_rows))
    for name, column in columns:
        plan[name] = column
    return plan


def _stream_by_name(name: str, n_rows: int) -> NDArray[np.uint32]:
    if name != "row":
        raise ValueError(
            f'`stream` must be "row", an integer or one integer per row, got {name!r} '
            f"({_STREAM.way_out})"
        )
    return np.arange(n_rows, dtype=np.uint32)
