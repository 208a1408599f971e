"""Tables of error cases: a call, the type of its exception, and a part of the message."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastsample import Sampler, sample

from .following import DRAWS, NOTHING, Attempt, Mended, attempt_of, follow

ROW = np.array([1.0, 2.0, 3.0], dtype=np.float32)
ROWS = np.stack([ROW] * 4)


class ErrorCase(NamedTuple):
    """A call, the exception that it must raise, and a part of its message, word for word.

    The hint of the message is followed by `mended`, or in `attempt`; `reason` says why it is not.
    """

    call: Callable[[], Any]
    error: type[Exception]
    part: str
    mended: Mended | None = None
    attempt: Attempt | None = None
    reason: str = ""

    def mended_call(self, message: str) -> Mended | None:
        """The call that does what the message says."""
        if self.mended is None and self.attempt is not None:
            return follow(message, self.attempt)
        return self.mended


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


def call_error(
    function: Callable[..., Any],
    error: type[Exception],
    part: str,
    *args: Any,
    means: Any = NOTHING,
    to: tuple[str, Any] | None = None,
    **kwargs: Any,
) -> ErrorCase:
    """A call with one bad argument, with which the message begins."""
    attempt = attempt_of(function, part, args, kwargs, means, to)
    return ErrorCase(lambda: function(*args, **kwargs), error, part, attempt=attempt)


def _in_use(name: str) -> dict[str, Any]:
    """A penalty, where the argument is a history: without one it changes no token."""
    is_history = name in ("prompt", "output")
    return {"frequency_penalty": 1.5, "frequency_scope": "all"} if is_history else {}


def tokens_of_sampler(engine: str | None = None, **arguments: Any) -> list[int]:
    """The tokens of some calls of a sampler made with these arguments."""
    sampler = Sampler(**{"seed": 1, "engine": engine, **arguments})
    return [int(sampler(ROW)) for _ in range(DRAWS)]


def rows_error(
    name: str,
    value: Any,
    error: type[Exception],
    part: str,
    follow: Follow | None = None,
    *,
    logits: Any = ROWS,
    **ways: Any,
) -> ErrorCase:
    """A call of `sample` on four rows with one bad argument; `part` follows that name."""
    arguments = {"seed": 1, "position": 0, "stream": "row", name: value, **_in_use(name)}
    case = call_error(sample, error, f"`{name}` must {part}", logits, **arguments, **ways)
    return case._replace(mended=follow and follow.mended(name, value, logits))


def logits_error(
    value: Any, error: type[Exception], part: str, hint: str = "", tokens: Any = None, **ways: Any
) -> ErrorCase:
    """A call of `sample` on bad logits; `hint` is code that makes logits of the greedy `tokens`."""

    def mended() -> Any:
        names = {"np": np, "torch": sys.modules.get("torch"), "logits": value, "output": value}
        return sample(eval(hint, names), temperature=0).tokens.tolist()

    way_out = Mended(f"`{hint}`", mended, tokens) if hint else None
    case = call_error(sample, error, f"`logits` {part}", value, temperature=0, **ways)
    return case._replace(mended=way_out)


def row_error(
    name: str,
    value: Any,
    error: type[Exception],
    part: str,
    follow: Follow | None = None,
    **ways: Any,
) -> ErrorCase:
    """A call of `sample` on one row with one bad argument; `part` follows that name."""
    arguments = {"seed": 1, "position": 0, name: value, **_in_use(name)}
    case = call_error(sample, error, f"`{name}` must {part}", ROW, **arguments, **ways)
    return case._replace(mended=follow and follow.mended(name, value, ROW))


def stages_error(part: str, to: tuple[str, Any], **arguments: Any) -> ErrorCase:
    arguments = {"seed": 1, "position": 0, "stream": "row", **arguments}
    return call_error(sample, ValueError, f"`stages` must {part}", ROWS, **arguments, to=to)
