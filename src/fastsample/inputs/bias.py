"""Biases: numbers that are added to the logits of some tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.params.foreign import at, host_array
from fastsample.params.validation import Bad

from .arrays import nearest_float32
from .logits import Rows
from .tokens import is_integer, text_error, token_list

Terms = tuple[NDArray[np.int64], NDArray[np.float32]]

_FORMS = (
    "a dict {token: value}, a list of pairs (token, value), of B dicts, or a tuple (tokens, values)"
)


def parse_bias(bias: Any, rows: Rows, bad: Bad | None = None) -> list[Terms]:
    """Check a bias; return the tokens and the values of each row.

    Rows whose own bias is out of range are marked in `bad`; without it they are an error.
    """
    n_rows = len(rows.values)
    if _is_pairs(bias):
        _refuse_two_readings(bias)
        return [_of_pairs(bias, rows)] * n_rows
    if isinstance(bias, list) or _is_dict_per_row(bias):
        if len(bias) != n_rows:
            raise ValueError(
                f"`bias` must have one entry for each of the {n_rows} rows, got {len(bias)} "
                "(one per row of `logits`, in their order)"
            )
        return [_of_row(one, rows, b, bad) for b, one in enumerate(bias)]
    if isinstance(bias, tuple):
        return [_of_arrays(bias, rows)] * n_rows
    return [_of_dict(bias, rows, None)] * n_rows


def _is_dict_per_row(bias: Any) -> bool:
    """Return whether a bias is a tuple of dicts rather than of two arrays."""
    return isinstance(bias, tuple) and any(one is None or isinstance(one, Mapping) for one in bias)


# ---------------------------------------------------------------- pairs


def _is_pair(one: Any) -> bool:
    return isinstance(one, (list, tuple)) and len(one) == 2


def _is_pairs(bias: Any) -> bool:
    """Return whether a bias is a list of pairs, or may be meant as a tuple of pairs."""
    if not isinstance(bias, (list, tuple)) or not bias or not all(map(_is_pair, bias)):
        return False
    return isinstance(bias, list) or len(bias) != 2 or _may_be_token(bias[1][0])


def _may_be_token(value: Any) -> bool:
    return is_integer(value) or isinstance(value, str)


def _refuse_two_readings(bias: Any) -> None:
    """Refuse pairs that could be arrays of tokens and values."""
    are_tuples = isinstance(bias, list) and all(isinstance(one, tuple) for one in bias)
    if are_tuples or (isinstance(bias, list) and len(bias) != 2):
        return
    if len(bias) == 2 and not all(_may_be_token(token) for token in (*bias[0], bias[1][0])):
        return
    readings = "`list(map(tuple, bias))` for pairs (token, value)"
    if len(bias) == 2:
        readings += "; `tuple(map(np.asarray, bias))` for (tokens, values)"
    raise ValueError(f"`bias` must have one reading, got {bias!r:.60} (pass {readings})")


def _of_pairs(bias: Any, rows: Rows) -> Terms:
    return _terms([token for token, _ in bias], [value for _, value in bias], rows, None)


# ---------------------------------------------------------------- dicts and arrays


def _of_row(bias: Any, rows: Rows, row: int, bad: Bad | None) -> Terms:
    try:
        return _of_dict(bias, rows, row)
    except ValueError:
        if bad is None:
            raise
        bad[row] = True
        return _of_dict(None, rows, row)


def _of_dict(bias: Any, rows: Rows, row: int | None) -> Terms:
    if bias is None:
        bias = {}
    if not isinstance(bias, Mapping):
        raise TypeError(
            f"`bias` must be {_FORMS}, got {type(bias).__name__}{at(row)} (leave it out where "
            "there is none; add one that is as wide as the rows to `logits`)"
        )
    return _terms(list(bias.keys()), list(bias.values()), rows, row)


def _of_arrays(bias: tuple[Any, ...], rows: Rows) -> Terms:
    if len(bias) != 2:
        raise ValueError(
            f"`bias` must be two arrays (tokens, values) where it is a tuple, got {len(bias)} "
            "things (a list has pairs (token, value), or one dict per row)"
        )
    tokens, values = (
        host_array("bias", part, code=f"bias[{place}]") for place, part in enumerate(bias)
    )
    return _terms(tokens, values, rows, None)


_NUMBERS = "pass numbers, which are added to logits; 0 changes nothing"

_JSON_KEY = re.compile(r"-?[0-9]+")


def _terms(keys: Any, values: Any, rows: Rows, row: int | None) -> Terms:
    if isinstance(keys, list) and any(isinstance(key, str) for key in keys):
        keys = [_token_of_json(key, row) for key in keys]
    tokens = token_list("bias", keys, rows.vocabulary, row)
    numbers = _values(values, tokens, row)
    distinct, counts = np.unique(tokens, return_counts=True)
    if len(distinct) < len(tokens):
        raise ValueError(
            f"`bias` must hold each token once, got token {distinct[counts > 1][0]} "
            f"{counts.max()} times{at(row)} (add its values up)"
        )
    return tokens, numbers


def _token_of_json(key: Any, row: int | None) -> Any:
    """Read a key of JSON, whose keys are strings, as a token."""
    if not isinstance(key, str):
        return key
    if _JSON_KEY.fullmatch(key):
        return int(key)
    raise text_error("bias", key, row)


def _values(given: Any, tokens: NDArray[np.int64], row: int | None) -> NDArray[np.float32]:
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(
            "`bias` must have numbers as values, got a masked array (pass the values that it does "
            "not mask, `bias[1].compressed()`, and their tokens)"
        )
    try:
        numbers = np.asarray(given)
    except (TypeError, RuntimeError, ValueError) as error:
        raise TypeError(
            f"`bias` must have numbers as values, got {type(given).__name__}: {error} ({_NUMBERS})"
        ) from error
    numbers = _widened(numbers)
    if numbers.dtype.kind not in "fiu" and numbers.size:
        raise TypeError(
            f"`bias` must have numbers as values, got {numbers.dtype}{at(row)} ({_NUMBERS})"
        )
    if numbers.shape != tokens.shape:
        raise ValueError(
            f"`bias` must have a value for each token, got {numbers.shape} values for "
            f"{tokens.shape} tokens (two arrays of one length)"
        )
    values = nearest_float32(numbers)
    bad = np.flatnonzero(~(values < np.inf))
    if len(bad):
        raise ValueError(
            f"`bias` must be finite or -inf in float32, got {numbers[bad[0]]} for token "
            f"{tokens[bad[0]]}{at(row)} (-inf bans a token; a mask that bans the others forces it)"
        )
    return values


def _widened(numbers: NDArray[Any]) -> NDArray[Any]:
    """Replace Python numbers among which one fits no integer of NumPy by float64."""
    listed = numbers.ravel().tolist() if numbers.dtype == object else [None]
    if not all(isinstance(one, float) or is_integer(one) for one in listed):
        return numbers
    return np.array([_as_float(one) for one in listed], np.float64).reshape(numbers.shape)


def _as_float(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
