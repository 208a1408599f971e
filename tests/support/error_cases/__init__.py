"""Tables of error cases: a call, the type of its exception, and a part of the message."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastsample import sample

ROW = np.array([1.0, 2.0, 3.0], dtype=np.float32)
ROWS = np.stack([ROW] * 4)


class Mended(NamedTuple):
    """A call that does what a hint says: a part of the hint, word for word, and the tokens."""

    hint: str
    call: Callable[[], Any]
    tokens: Any


class ErrorCase(NamedTuple):
    """A call, the exception that it must raise, and a part of its message, word for word.

    `mended` follows the hint of the message; a case without it stands in `not_followed.txt`.
    """

    call: Callable[[], Any]
    error: type[Exception]
    part: str
    mended: Mended | None = None


class Follow(NamedTuple):
    """How to follow the hint about an argument.

    `hint` is code in the message, an expression of the argument; or words, that lead to `value`.
    `tokens` are those that the call then draws greedily.
    """

    hint: str
    tokens: Any
    value: Any = NotImplemented
    arguments: dict[str, Any] | None = None  # further ones that the hint names

    def mended(self, name: str, value: Any, logits: np.ndarray) -> Mended:
        def call() -> Any:
            names = {"np": np, "torch": sys.modules.get("torch"), name: value}
            is_code = self.value is NotImplemented
            given = eval(self.hint, names) if is_code else self.value
            return sample(
                logits, temperature=0, **{name: given}, **(self.arguments or {})
            ).tokens.tolist()

        hint = f"`{self.hint}`" if self.value is NotImplemented else self.hint
        return Mended(hint, call, self.tokens)


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


def rows_error(
    name: str, value: Any, error: type[Exception], part: str, follow: Follow | None = None
) -> ErrorCase:
    """A call of `sample` on four rows with one bad argument; `part` follows that name."""
    arguments = {"seed": 1, "position": 0, "stream": "row", name: value}
    return ErrorCase(
        lambda: sample(ROWS, **arguments),
        error,
        f"`{name}` must {part}",
        follow and follow.mended(name, value, ROWS),
    )


def logits_error(
    value: Any, error: type[Exception], part: str, hint: str = "", tokens: Any = None
) -> ErrorCase:
    """A call of `sample` on bad logits; `hint` is code that makes logits of the greedy `tokens`."""

    def mended() -> Any:
        names = {"np": np, "torch": sys.modules.get("torch"), "logits": value, "output": value}
        return sample(eval(hint, names), temperature=0).tokens.tolist()

    way_out = Mended(f"`{hint}`", mended, tokens) if hint else None
    return ErrorCase(lambda: sample(value), error, f"`logits` {part}", way_out)


def row_error(
    name: str, value: Any, error: type[Exception], part: str, follow: Follow | None = None
) -> ErrorCase:
    """A call of `sample` on one row with one bad argument; `part` follows that name."""
    arguments = {"seed": 1, "position": 0, name: value}
    return ErrorCase(
        lambda: sample(ROW, **arguments),
        error,
        f"`{name}` must {part}",
        follow and follow.mended(name, value, ROW),
    )


def stages_error(part: str, **arguments: Any) -> ErrorCase:
    return ErrorCase(lambda: sample(ROWS, **arguments), ValueError, f"`stages` must {part}")
