"""Checks of parameter values: kinds, ranges, values per row, and the error messages."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .foreign import array_of_tensor, at, brief, is_tensor, reason_of, shown
from .hints import way_to_number
from .ops import DrawMethod, Op

Bad = NDArray[np.bool_]
"""Which rows have a value out of range, where that is noted instead of raised."""


def per_row(value: Any) -> bool:
    """Whether a value has one element per row."""
    return isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > 0


def _bare(value: Any) -> Any:
    """Take a NumPy scalar, or an array without dimensions, out of its box; a time stays in it."""
    if getattr(value, "ndim", None) != 0 or isinstance(value, np.ma.MaskedArray):
        return value
    dtype = getattr(value, "dtype", None)
    if getattr(dtype, "kind", "") in _TIMES:
        return value
    try:
        bare = value.item()
    except Exception:  # of another library: a tensor without values, for example
        return value
    if bare == 0 and str(dtype).removeprefix("torch.") in ("float32", "bfloat16"):
        # Neither of the conversions of bfloat16 to float32 is arithmetic: each moves the bits.
        single = value.detach().float().cpu() if hasattr(value, "detach") else value
        return _widened(np.asarray(single, np.float32)).item()
    return bare


_TIMES = ("m", "M")  # kinds of dtypes whose item() may be an int


def _widened(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Widen float32, denormals by their bits: the processor may be set to read them as 0."""
    bits = np.array(values).view(np.uint32)
    size = (bits & np.uint32(0x7FFFFFFF)) * 2.0**-149
    denormal = np.where(bits >> np.uint32(31), -size, size)
    is_denormal = (bits & np.uint32(0x7F800000)) == 0
    return np.where(is_denormal, denormal, values.astype(np.float64))


def _is_int64(value: Any) -> bool:
    return str(getattr(value, "dtype", "")) in ("int64", ">i8", "torch.int64")


@dataclass(frozen=True, kw_only=True)
class Parameter(ABC):
    """One numeric parameter of the table."""

    name: str
    help: str = ""  # what it does, in a sentence: the command line shows it
    rule: str  # what a value must be, and
    way_out: str  # what to do about one that is not: error messages quote both
    low: float
    high: float  # of the closed range
    default: Any = None  # the value that a call without it has
    off: tuple[Any, ...] = ()  # what switches it off, a plan's first: the default, unless given
    op: Op | None = None  # what the stage of this name does
    per_row: bool = True  # whether a call of `sample` takes one value per row
    dtype: type[np.generic]  # of a column of values
    plain: ClassVar[Any]
    kind: ClassVar[str]
    dtype_kinds: ClassVar[str]
    is_number: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.off and self.default is not None:
            object.__setattr__(self, "off", (self.default,))

    @abstractmethod
    def number(self, value: Any, row: int | None = None) -> Any:
        """Return `value` as the Python number that the parameter holds, its range unchecked."""

    def wrong_kind(self, got: str, value: Any, row: int | None = None) -> TypeError:
        """Make the error for a value of another kind."""
        way_out = self.way_out
        if row is None and self.is_number:
            off = self.off[0] if self.off else 0
            is_integer = isinstance(self, IntParameter)
            cast = way_to_number(self.name, value, is_integer=is_integer, off=off)
            way_out = f"{cast}; {way_out}" if cast else way_out
        return TypeError(f"`{self.name}` must be {self.kind}, got {got}{at(row)} ({way_out})")

    def out_of_range(self, number: Any, row: int | None = None) -> ValueError:
        """Make the error for a number out of range."""
        way_out = self.way_into_range(row)
        return ValueError(f"`{self.name}` must be {self.rule}, got {number}{at(row)} ({way_out})")

    def way_into_range(self, row: int | None) -> str:
        """Say what to do about a number out of range."""
        return self.way_out

    def one(self, value: Any, row: int | None = None) -> Any:
        """Check a value for all rows, or that of one row."""
        if type(value) is self.plain and self.low <= value <= self.high:
            return value
        number = self.number(value, row)
        if self.low <= number <= self.high:
            return number
        raise self.out_of_range(number, row)

    def optional(self, value: Any) -> Any:
        """Check a value for all rows where None is allowed."""
        return None if value is None else self.one(value)

    def scalar(self, value: Any) -> Any:
        """Check a value that may not be given per row."""
        if per_row(value):
            raise TypeError(
                f"`{self.name}` must be {self.kind}, got {type(value).__name__} (for one value per "
                "row call sample(), which takes them)"
            )
        return self.one(value)

    def values(self, value: Any, n_rows: int, bad: Bad | None = None) -> Any:
        """Check a value for all rows, or one per row where the parameter may be: see `column`."""
        is_column = self.per_row and per_row(value)
        return self.column(value, n_rows, bad) if is_column else self.one(value)

    def column(self, value: Any, n_rows: int, bad: Bad | None = None) -> NDArray[Any]:
        """Check a value given per row: shape, kind and range.

        The first row out of range is an error. With `bad`, all of them are marked there, and any
        value stands in for theirs.
        """
        array = None if isinstance(value, (list, tuple)) else self._array(value)
        shape = (len(value),) if array is None else array.shape
        if shape != (n_rows,):
            raise ValueError(
                f"`{self.name}` must be a scalar or have shape (B,) = ({n_rows},), got {shape} "
                "(one value per row of `logits`)"
            )
        if array is None:
            return self._one_by_one(value, bad)
        if array.dtype.kind not in self.dtype_kinds:
            raise self.wrong_kind(f"an array of {array.dtype}", value)
        # Python's comparisons are exact between integer types, where NumPy's depend on its version.
        if n_rows and not (self.low <= array.min().item() and array.max().item() <= self.high):
            return self._one_by_one(array.tolist(), bad)
        return array

    def _one_by_one(self, values: Sequence[Any], bad: Bad | None) -> NDArray[Any]:
        numbers = []
        for row, value in enumerate(values):
            try:
                numbers.append(self.one(value, row))
            except ValueError:
                if bad is None:
                    raise
                bad[row] = True
                numbers.append(1)  # which every parameter may be
        return np.array(numbers, self.dtype)

    def _array(self, value: Any) -> NDArray[Any]:
        if isinstance(value, np.ma.MaskedArray):
            raise self.wrong_kind("a masked array", value)
        if is_tensor(value):
            return array_of_tensor(self.name, value)
        try:
            return np.asarray(value)
        except Exception as error:  # of another library, and of any type
            raise self.wrong_kind(f"{type(value).__name__}: {reason_of(error)}", value) from error


@dataclass(frozen=True, kw_only=True)
class FloatParameter(Parameter):
    """A parameter that the rule rounds to float32; its range is that of the rounded value."""

    dtype: type[np.generic] = np.float64
    plain = float
    kind = "a number"
    dtype_kinds = "fiu"

    def number(self, value: Any, row: int | None = None) -> float:
        bare = _bare(value)
        if isinstance(bare, bool) or not isinstance(bare, (int, float, np.floating)):
            raise self.wrong_kind(shown(value), value, row)
        try:
            return float(bare)
        except OverflowError:
            return math.inf if bare > 0 else -math.inf

    def _array(self, value: Any) -> NDArray[Any]:
        array = super()._array(value)
        return _widened(array) if array.dtype == np.float32 else array


@dataclass(frozen=True, kw_only=True)
class IntParameter(Parameter):
    """A parameter that is an integer."""

    low: float = 0
    high: float = 2**63 - 1
    dtype: type[np.generic] = np.int64
    plain = int
    kind = "an integer"
    dtype_kinds = "iu"

    def number(self, value: Any, row: int | None = None) -> int:
        bare = _bare(value)
        if isinstance(bare, bool) or not isinstance(bare, int):
            raise self.wrong_kind(shown(value), value, row)
        return int(bare)


class CountParameter(IntParameter):
    """top_k: None and -1 are other spellings of 0, off."""

    def number(self, value: Any, row: int | None = None) -> int:
        number = 0 if value is None else super().number(value, row)
        return 0 if number == -1 else number


class SeedParameter(IntParameter):
    """seed: int64 from NumPy and torch, which lack or avoid uint64, is read as 64 bits."""

    def number(self, value: Any, row: int | None = None) -> int:
        number = super().number(value, row)
        return number & (2**64 - 1) if _is_int64(value) else number

    def way_into_range(self, row: int | None) -> str:
        """Say what to do about a number out of range."""
        code = f"int({self.name}) % 2**64"
        if row is not None:
            code = f"[int(one) % 2**64 for one in {self.name}]"
        return f"pass `{code}`, or {self.way_out}"

    def _array(self, value: Any) -> NDArray[Any]:
        array = super()._array(value)
        return array.astype(np.int64).view(np.uint64) if _is_int64(array) else array


SCOPE_CODES = {"all": -1, "prompt": -2, "output": -3}
"""The scopes that have names, by the numbers that engines know them by."""


@dataclass(frozen=True, kw_only=True)
class ScopeParameter(IntParameter):
    """A penalty's scope: one of three names, or how many of the last tokens it sees."""

    per_row: bool = False
    kind = "a name or an integer"

    def one(self, value: Any, row: int | None = None) -> Any:
        """Check a scope, and return the number that engines know it by."""
        if not isinstance(value, str):
            return super().one(value, row)
        if value not in SCOPE_CODES:
            raise self.out_of_range(repr(value))
        return SCOPE_CODES[value]


DRAW_METHODS = {
    None: DrawMethod.AUTOMATIC,
    "race": DrawMethod.RACE,
    "inverse": DrawMethod.INVERSE,
}


@dataclass(frozen=True, kw_only=True)
class DrawParameter(IntParameter):
    """How a token is drawn: a name, or None."""

    per_row: bool = False
    kind = "a name or None"
    is_number = False

    @property
    def names(self) -> list[str]:
        """The names."""
        return [name for name in DRAW_METHODS if name is not None]

    def one(self, value: Any, row: int | None = None) -> int:
        """Check a name, and return the number that engines know it by."""
        if value is not None and not isinstance(value, str):
            raise self.wrong_kind(shown(value), value)
        if value not in DRAW_METHODS:
            raise self.out_of_range(repr(value))
        return int(DRAW_METHODS[value])


@lru_cache(maxsize=32)
def vocabulary_parameter(name: str, low: int, vocabulary: int, way_out: str) -> IntParameter:
    """Make a parameter that is a number of tokens, of rows of so many."""
    rule = f"in [{low}, V] = [{low}, {vocabulary}]"
    return IntParameter(name=name, rule=rule, way_out=way_out, low=low, high=vocabulary)


REDUCTIONS = ("exact", "fixed", "fast")
"""How masses may add up: section 8 of the rule."""


def check_reduction(reduction: Any) -> str:
    """Check the name of a reduction; return it as a plain str, which a subclass's is not."""
    if isinstance(reduction, str) and reduction in REDUCTIONS:
        return REDUCTIONS[REDUCTIONS.index(reduction)]
    raise ValueError(
        f'`reduction` must be "exact", "fixed" or "fast", got {brief(reduction)} ("exact", the '
        "default, adds integers, whose sum no order changes)"
    )
