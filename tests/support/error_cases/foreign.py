"""Errors in objects that are not arrays of NumPy, and in stand-ins for those of other libraries.

Each stand-in has the interface that was found in the library that it names.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from fastsample import kept_set, reduce_sum, sample
from tests.support.error_cases import (
    ROW,
    ROWS,
    ErrorCase,
    call_error,
    rows_error,
    tokens_of_sampler,
)

NO_DLPACK = "must be a NumPy array, a torch CPU tensor or an array with __dlpack__, got"
THROUGH_DLPACK = "must be an array that NumPy reads through DLPack, or bfloat16, got a"
NO_LAST = np.array([True, True, False])


class Series:
    """pandas.Series: no DLPack, and positions by label."""

    ndim = 1

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.values, dtype)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, label: int) -> Any:
        raise KeyError(label)


class OrtValue:
    """onnxruntime.OrtValue: DLPack, and neither indices nor a dtype."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def numpy(self) -> np.ndarray:
        return self.values


class Float8Array(Series):
    """jax.Array of float8: NumPy reads it by a conversion, and not through DLPack."""

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("Unsupported dtype in DLTensor.")


class DynamicJaxprTracer:
    """A value inside of jax.jit, as long as it is traced."""

    ndim = 2

    def __dlpack__(self, **_: Any) -> Any:
        raise TypeError("Abstract tracer value encountered\nwhere concrete value is expected")

    __array__ = __dlpack__


class CuPyArray:
    """cupy.ndarray: on a GPU, and copied to the host by a call alone."""

    ndim = 2
    __cuda_array_interface__ = ("version", 3)

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("it is on a GPU")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def get(self) -> np.ndarray:
        return self.values


ShapeDtypeStruct = type("ShapeDtypeStruct", (), {"ndim": 2, "shape": (4, 3)})
"""jax.ShapeDtypeStruct: a shape without values."""
CData = type("_CDataBase", (), {})
"""A pointer of cffi."""


def pointer_to(values: np.ndarray) -> Any:
    return values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))


LOGITS: list[tuple[Any, str, Any]] = [
    (memoryview(ROWS.copy()), f"{NO_DLPACK} memoryview", ROWS),
    (array("f", ROW), f"{NO_DLPACK} array", ROW),
    (array("d", ROW), f"{NO_DLPACK} array", ROW),
    ((ctypes.c_float * 3)(*ROW), f"{NO_DLPACK} c_float_Array_3", ROW),
    (ROWS.tolist(), f"{NO_DLPACK} list", ROWS),
    (list(ROWS), f"{NO_DLPACK} list", ROWS),
    (range(1, 4), f"{NO_DLPACK} range", ROW),
    (ROW.tobytes(), f"{NO_DLPACK} bytes (pass `np.frombuffer(", ROW),
    (bytearray(ROW.tobytes()), f"{NO_DLPACK} bytearray (pass `np.frombuffer(", ROW),
    (memoryview(ROW.tobytes()), f"{NO_DLPACK} memoryview (pass `np.frombuffer(", ROW),
    (Series(ROW), f"{NO_DLPACK} Series", ROW),
    (OrtValue(ROWS.astype(float)), "must be float32, float16 or bfloat16, got float64", ROWS),
    (OrtValue(ROWS + 0j), "must be float32, float16 or bfloat16, got complex64", ROWS),
    (Float8Array(ROWS), f"{THROUGH_DLPACK} tests.support.error_cases.foreign.Float8Array", ROWS),
    (
        CuPyArray(ROWS),
        "must be on the CPU, got a tests.support.error_cases.foreign.CuPyArray",
        ROWS,
    ),
    (ROWS.astype(object), "must be float32, float16 or bfloat16, got object", ROWS),
    (ROWS + 0j, "must be float32, float16 or bfloat16, got complex64", ROWS),
    (ROWS.astype("U3"), "must be float32, float16 or bfloat16, got <U3", ROWS),
]
WITHOUT_NUMBERS: list[Any] = [
    *(None, "logits", {}, {1.0}, 3, 0.5, object(), [[1.0], [1.0, 2.0]], ["a"], iter([1.0])),
    *(ctypes.c_void_p(8), ShapeDtypeStruct(), np.float32(1)),
]


def logits_cases() -> Iterator[ErrorCase]:
    for value, part, means in LOGITS:
        yield call_error(sample, TypeError, f"`logits` {part}", value, temperature=0, means=means)
    for value, part, means in (LOGITS[0], LOGITS[10], LOGITS[14]):
        yield call_error(kept_set, TypeError, f"`logits` {part}", value, means=means)
        yield call_error(reduce_sum, TypeError, f"`x` {part[:10]}", value, means=means)
    for value in WITHOUT_NUMBERS:
        part = f"`logits` {NO_DLPACK} {type(value).__name__} (pass an array of NumPy with numbers)"
        to = ("pass an array of NumPy with numbers", ROW)
        yield call_error(sample, TypeError, part, value, temperature=0, to=to)
    for value, words in (
        (np.array([None, "a"]), "got object (pass an array of numbers)"),
        (ROWS.astype("M8[s]"), "got datetime64[s] (pass an array of numbers)"),
    ):
        part = f"`logits` must be float32, float16 or bfloat16, {words}"
        to = ("pass an array of numbers", ROWS)
        yield call_error(sample, TypeError, part, value, temperature=0, to=to)
    yield call_error(
        sample,
        ValueError,
        "`logits` must have shape (V,) or (B, V), got (4, 1, 3) (pass `np.from_dlpack(logits)[",
        OrtValue(ROWS[:, None]),
        temperature=0,
        means=ROWS,
    )
    yield call_error(
        sample,
        ValueError,
        "`logits` must have shape (V,) or (B, V), got (2, 2, 1, 3) (pass `logits.reshape(-1, 3)`)",
        ROWS.reshape(2, 2, 1, 3),
        temperature=0,
        means=ROWS,
    )
    yield call_error(
        sample,
        TypeError,
        f"`logits` {NO_DLPACK} LP_c_float (pass `np.ctypeslib.as_array(logits, shape=(n,))`, n",
        pointer_to(ROW),
        temperature=0,
        to=(
            "`np.ctypeslib.as_array(logits, shape=(n,))`",
            np.ctypeslib.as_array(pointer_to(ROW), (3,)),
        ),
    )
    yield call_error(
        sample,
        TypeError,
        f"`logits` {NO_DLPACK} _CDataBase (pass `np.frombuffer(ffi.buffer(logits, n), np.float32)`",
        CData(),
        temperature=0,
        to=("n its number of bytes", np.frombuffer(ROW.tobytes(), np.float32)),
    )
    outside = ("call it with values, outside of jax.jit and jax.vmap", ROWS)
    part = f"`logits` {THROUGH_DLPACK} tests.support.error_cases.foreign.DynamicJaxprTracer: Abs"
    yield call_error(sample, TypeError, part, DynamicJaxprTracer(), temperature=0, to=outside)


MASKS: list[tuple[Any, str]] = [
    (Series(NO_LAST), "be an array, got Series (pass `np.asarray(mask)`)"),
    (Series(NO_LAST.astype(int)), "be an array, got Series (pass `np.asarray(mask).astype(bool)`)"),
    (array("i", [1, 1, 0]), "be an array, got array (pass `np.asarray(mask).astype(bool)`)"),
    (memoryview(NO_LAST), "be an array, got memoryview (pass `np.asarray(mask)`)"),
    (bytes([1, 1, 0]), "be an array, got bytes (pass `np.frombuffer(mask, np.uint8)"),
    (OrtValue(NO_LAST.astype(np.float32)), "be bool, or int32 with a bit per token, got float32"),
    (OrtValue([0b011]), "be bool, or int32 with a bit per token, got int64 (pass"),
    (CuPyArray(NO_LAST), "be on the CPU, got a tests.support.error_cases.foreign.CuPyArray"),
]


def argument_cases() -> Iterator[ErrorCase]:
    for mask, part in MASKS:
        yield rows_error("mask", mask, TypeError, part, means=NO_LAST)
    yield rows_error(
        "mask",
        OrtValue(np.ones((4, 1, 3), bool)),
        ValueError,
        "have shape (3,) or (4, 3), got (4, 1, 3) (pass `np.from_dlpack(mask).reshape(4, 3)`)",
        to=("np.from_dlpack(mask).reshape(4, 3)", np.ones((4, 3), bool)),
    )
    for name in ("prompt", "output"):
        yield rows_error(
            name,
            CuPyArray([[1, 2]] * 4),
            TypeError,
            "be an array that NumPy reads, got CuPyArray: Implicit conversion to a NumPy array",
            means=[[1, 2]] * 4,
        )
        yield rows_error(
            name,
            ShapeDtypeStruct(),
            TypeError,
            "be an array that NumPy reads, got ShapeDtypeStruct (pass a list of numbers)",
            to=("pass a list of numbers", [[1], [2], [0], [1]]),
        )
    yield rows_error(
        "bias",
        (np.arange(3), CuPyArray([0.0, 9.0, 1.0])),
        TypeError,
        "be an array that NumPy reads, got CuPyArray: Implicit conversion to a NumPy array is",
        to=("bias[1].get()", {1: 9.0, 2: 1.0}),
    )
    yield rows_error(
        "temperature",
        CuPyArray([[0.0, 1.0, 2.0, 1.0]]),
        TypeError,
        "be a number, got CuPyArray: Implicit conversion to a NumPy array is not allowed.",
        to=("temperature.get()", [0.0, 1.0, 2.0, 1.0]),
    )
    yield call_error(
        tokens_of_sampler,
        TypeError,
        "`prompt` must be an array that NumPy reads, got CuPyArray: Implicit conversion to a N",
        prompt=CuPyArray([1, 2]),
        frequency_penalty=1.5,
        frequency_scope="all",
        means=[1, 2],
    )


class Fraction(SimpleNamespace):
    """A number of another library."""

    def __float__(self) -> float:
        return float(self.value)

    def __eq__(self, other: object) -> bool:
        return self.value == other

    __hash__ = None  # type: ignore[assignment]


def number_cases() -> Iterator[ErrorCase]:
    yield rows_error(
        "temperature", Fraction(value=0.5), TypeError, "be a number, got Fraction", means=0.5
    )
    yield rows_error(
        "top_k",
        np.ma.array([1, 2, 3, 1], mask=[0, 1, 0, 0]),
        TypeError,
        "be an integer, got a masked array (pass `top_k.filled(0)`;",
        means=[1, 0, 3, 1],
    )
    yield rows_error(
        "top_k",
        np.array([1.0, 2.0, 3.0, 1.0]),
        TypeError,
        "be an integer, got an array of float64 (pass `top_k.astype(int)`",
        means=[1, 2, 3, 1],
    )
    yield rows_error(
        "temperature",
        np.array(["0.5", "1", "2", "0"]),
        TypeError,
        "be a number, got an array of <U3 (pass `temperature.astype(float)`",
        means=[0.5, 1, 2, 0],
    )
    for half in (0.5, np.array([0.5] * 4)):
        yield rows_error(
            "top_k", half, TypeError, "be an integer, got", to=("0, -1 and None are off", 0)
        )


ERROR_CASES = [*logits_cases(), *argument_cases(), *number_cases()]
