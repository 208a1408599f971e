"""Tables of error cases: a call, the type of its exception, and a part of the message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastsample import sample

ROW = np.array([1.0, 2.0, 3.0], dtype=np.float32)
ROWS = np.stack([ROW] * 4)


class ErrorCase(NamedTuple):
    """A call, the exception that it must raise, and a part of its message, word for word."""

    call: Callable[[], Any]
    error: type[Exception]
    part: str


class Unreadable:
    """An array whose memory NumPy cannot reach."""

    ndim = 1

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("on another device")


class Foreign:
    """An array of another library, which DLPack does not help to read."""

    def __init__(self, device: int = 1, source: Any = None) -> None:
        self.device, self.source = device, source

    def __dlpack__(self, **_: Any) -> Any:
        if self.source is None:
            raise BufferError("it is busy")
        return self.source.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


def rows_with(row: int, token: int, value: float) -> np.ndarray:
    """The four rows with one logit replaced."""
    rows = ROWS.copy()
    rows[row, token] = value
    return rows


def frozen(out: np.ndarray) -> np.ndarray:
    out.flags.writeable = False
    return out


def rows_error(name: str, value: Any, error: type[Exception], part: str) -> ErrorCase:
    """A call of `sample` on four rows with one bad argument; `part` follows that name."""
    arguments = {"seed": 1, "position": 0, "stream": "row", name: value}
    return ErrorCase(lambda: sample(ROWS, **arguments), error, f"`{name}` must {part}")


def logits_error(value: Any, error: type[Exception], part: str) -> ErrorCase:
    return ErrorCase(lambda: sample(value), error, f"`logits` {part}")


def row_error(name: str, value: Any, error: type[Exception], part: str) -> ErrorCase:
    """A call of `sample` on one row with one bad argument; `part` follows that name."""
    arguments = {"seed": 1, "position": 0, name: value}
    return ErrorCase(lambda: sample(ROW, **arguments), error, f"`{name}` must {part}")


def stages_error(part: str, **arguments: Any) -> ErrorCase:
    return ErrorCase(lambda: sample(ROWS, **arguments), ValueError, f"`stages` must {part}")
