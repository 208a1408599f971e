"""What comes back: the tokens, in the caller's form, or the error that a bad row is."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .reference import EMPTY


@dataclass(frozen=True, slots=True, eq=False)
class SampleResult:
    """What `sample` returns.

    Attributes
    ----------
    tokens : int64 array or torch.int64 tensor of shape ``logits.shape[:-1]``
        The chosen token of each row: an array without dimensions for logits of shape (V,).
    seed : int or uint64 array of shape (B,)
        The seed that was used, also when none was given; per-row seeds are a copy. What draws the
        same tokens again after a call without a seed: ``sample(logits, seed=result.seed,
        position=0, stream="row", ...)`` with the same parameters.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> logits = np.array([4.0, 2.0, 1.0], dtype=np.float32)
    >>> first = fastsample.sample(logits)
    >>> again = fastsample.sample(logits, seed=first.seed, position=0, stream="row")
    >>> bool(again.tokens == first.tokens)
    True
    """

    tokens: Any
    seed: Any


def bad_row(
    values: NDArray[np.float32], shape: tuple[int, ...], status: NDArray[np.uint8]
) -> ValueError:
    """Make the error for the first row whose status is not OK."""
    row = int(np.flatnonzero(status)[0])
    name = f"`logits` row {row}" if shape else "`logits`"
    if status[row] == EMPTY:
        return ValueError(f"{name} is -inf at every token (leave at least one token to draw)")
    logits = values[row]
    token = int(np.flatnonzero(np.isnan(logits) | (logits == np.inf))[0])
    return ValueError(
        f"{name} holds {logits[token]} at token {token} (a logit must be finite, or -inf to ban "
        "its token; look for an overflow in what made the row)"
    )


def check_out(out: Any, shape: tuple[int, ...], *, torch: bool) -> NDArray[np.int64]:
    """Check `out` before anything is drawn, and return its memory as an array.

    It must be of the logits' own kind, an int64 array or a torch.int64 CPU tensor, have the shape
    of the tokens, and be writable.
    """
    kind: type[Any] = sys.modules["torch"].Tensor if torch else np.ndarray
    if not isinstance(out, kind):
        raise TypeError(
            f"`out` must be a {kind.__module__}.{kind.__qualname__} as `logits` is, got "
            f"{type(out).__name__} (leave it out to get a new one)"
        )
    device = str(out.device) if torch else "cpu"
    if device != "cpu" or str(out.dtype) not in ("int64", "torch.int64"):
        raise TypeError(
            f"`out` must be int64 on the CPU, got {out.dtype} on {device} "
            "(leave it out to get a new one)"
        )
    memory: NDArray[np.int64] = out.numpy() if torch else out
    if memory.shape != shape:
        raise ValueError(
            f"`out` must have shape logits.shape[:-1] = {shape}, got {memory.shape} "
            "(leave it out to get a new one)"
        )
    if not memory.flags.writeable:
        raise ValueError("`out` must be writable, got a read-only array (pass a copy)")
    return memory


def as_given(tokens: NDArray[np.int64], shape: tuple[int, ...], *, torch: bool) -> Any:
    """Give tokens of shape (B,) the form of the logits: their shape, array or tensor."""
    shaped = tokens.reshape(shape)
    return sys.modules["torch"].from_numpy(shaped) if torch else shaped
