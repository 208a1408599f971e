"""Log-probabilities in the form of OpenAI's API for chat completions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

VERY_UNLIKELY = -9999.0
"""What that API has for a token so unlikely that it gives no log-probability; JSON has no -inf."""

Decode = Callable[[int], "str | bytes"]


def openai_logprobs(result: Any, decode: Decode, mode: int | None) -> Any:
    """Make the objects that `SampleResult.to_openai` returns."""
    if result.logprobs is None:
        raise ValueError(
            "`to_openai` needs log-probabilities of the draws, got a result without them (sample "
            "with logprobs=0, or logprobs=5 for five top tokens)"
        )
    if not callable(decode):
        way_out = ", such as `decode.__getitem__`" if hasattr(decode, "__getitem__") else ""
        raise TypeError(
            f"`decode` must be a function of one token, got {type(decode).__name__} (it returns "
            f"the token's str or bytes{way_out})"
        )
    arrays = [result.logprobs, result.top_tokens, result.top_logprobs]
    if result.logprobs.ndim > result.tokens.ndim:
        arrays = [array[_mode_index(mode, len(array))] for array in arrays]
    elif mode is not None:
        raise ValueError(
            f"`mode` must be left out for a result of one mode, got {mode!r} (with `logprobs_mode` "
            "a tuple, it is a place in it)"
        )
    row_axes = arrays[1].ndim - 1
    lists = [array.tolist() for array in (result.tokens, *arrays)]
    return _of_rows(row_axes, decode, *lists)


def _mode_index(mode: Any, count: int) -> int:
    if isinstance(mode, bool) or not isinstance(mode, int) or not 0 <= mode < count:
        raise ValueError(
            f"`mode` must be in [0, {count}), got {mode!r} (the result has {count} modes; 0 is the "
            "first of its `logprobs_mode`)"
        )
    return mode


def _of_rows(
    axes: int, decode: Decode, tokens: Any, logprobs: Any, top_tokens: Any, top_logprobs: Any
) -> Any:
    """An object for each draw, in lists for the axes of rows and draws."""
    if axes:
        rows = zip(tokens, logprobs, top_tokens, top_logprobs, strict=True)
        return [_of_rows(axes - 1, decode, *row) for row in rows]
    if isinstance(tokens, list):
        draws = zip(tokens, logprobs, strict=True)
        return [_of_draw(decode, *draw, top_tokens, top_logprobs) for draw in draws]
    return _of_draw(decode, tokens, logprobs, top_tokens, top_logprobs)


def _of_draw(
    decode: Decode, token: int, logprob: float, top_tokens: list[int], top_logprobs: list[float]
) -> dict[str, Any] | None:
    if token < 0 or math.isnan(logprob):
        return None
    top = zip(top_tokens, top_logprobs, strict=True)
    entry = {
        **_entry(decode, token, logprob),
        "top_logprobs": [_entry(decode, *one) for one in top],
    }
    return {"content": [entry], "refusal": None}


def _entry(decode: Decode, token: int, logprob: float) -> dict[str, Any]:
    text = decode(token)
    if isinstance(text, bytes):
        name, data = text.decode("utf-8", "replace"), list(text)
        return {"token": name, "logprob": max(logprob, VERY_UNLIKELY), "bytes": data}
    if not isinstance(text, str):
        raise TypeError(
            f"`decode` must return str or bytes, got {type(text).__name__} {text!r:.40} for token "
            f"{token} (bytes where a token can be a part of a character)"
        )
    name = _without_surrogates(text)
    # A replacement character may stand for bytes that are no text.
    known = None if "\N{REPLACEMENT CHARACTER}" in name else [*name.encode()]
    return {"token": name, "logprob": max(logprob, VERY_UNLIKELY), "bytes": known}


def _without_surrogates(text: str) -> str:
    """A text that UTF-8 can encode: pairs of surrogates are characters, others are replaced."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
