"""What error messages say to do about a value that is not the number that a parameter takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .foreign import fault_of_host_tensor, is_tensor, way_to_array


def way_to_number(name: str, value: Any, *, is_integer: bool, off: Any) -> str:
    """Say how to make the numbers of a parameter of a value of another kind; "" if unknown.

    `off` is a number that changes nothing.
    """
    if is_tensor(value):
        return _way_of_tensor(name, value, is_integer)
    if isinstance(value, np.ma.MaskedArray):
        if value is np.ma.masked:
            return ""
        has_masked = np.ma.getmaskarray(value).any()
        return f"pass `{name}.filled({off})`" if has_masked else f"pass `{name}.data`"
    if isinstance(value, np.ndarray) and value.ndim:
        dtype = "int" if is_integer else "float"
        return f"pass `{name}.astype({dtype})`" if _is_castable(value, is_integer) else ""
    if isinstance(value, bool) or value is None or isinstance(value, (np.bool_, complex)):
        return ""
    if hasattr(value, "__array__") and not isinstance(value, np.generic):
        return way_to_array(name, value)
    cast = int if is_integer else float
    try:
        number = cast(value)
        is_same = isinstance(value, str) or bool(number == value)
    except Exception:  # of any object
        return ""
    return f"pass `{cast.__name__}({name})`" if is_same else ""


def _way_of_tensor(name: str, tensor: Any, is_integer: bool) -> str:
    fault = fault_of_host_tensor(name, tensor)
    if fault is not None:
        return fault.way_out
    if is_integer and tensor.is_floating_point():
        return f"pass `{name}.long()`, if it holds whole numbers"
    return ""


def _is_castable(array: Any, is_integer: bool) -> bool:
    """Return whether a cast of an array keeps its numbers."""
    if array.dtype.kind not in ("fOU" if is_integer else "OU"):
        return False
    try:
        numbers = array.astype(float)
        with np.errstate(invalid="ignore"):  # NaN, and what no integer holds
            return bool((numbers == array.astype(int)).all()) if is_integer else True
    except (TypeError, ValueError, OverflowError):
        return False
