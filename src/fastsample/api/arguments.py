"""Checks of the arguments that several public functions share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines.contract import LOGPROBS_MODES, LogprobRequest
from fastsample.params.foreign import brief, shown
from fastsample.params.table import DRAWS
from fastsample.params.validation import vocabulary_parameter


def parse_logprobs(
    logprobs: Any, logprobs_mode: Any, vocabulary: int, tokens: Any = None
) -> LogprobRequest | None:
    """Check `logprobs` and `logprobs_mode`; None where no log-probabilities are wanted.

    `tokens` are what `parse_logprob_tokens` returns.
    """
    is_name = isinstance(logprobs_mode, str)
    modes = (logprobs_mode,) if is_name else logprobs_mode
    if not is_name or logprobs_mode not in LOGPROBS_MODES:
        _check_modes(modes, logprobs_mode)
    if logprobs is None:
        if tokens is None:
            return None
        return LogprobRequest(modes, None, not is_name, tokens)
    if type(logprobs) is not int or not 0 <= logprobs <= vocabulary:
        way_out = "the number of top tokens; 0 returns the drawn token alone"
        logprobs = vocabulary_parameter("logprobs", 0, vocabulary, way_out).one(logprobs)
    return LogprobRequest(modes, logprobs, not is_name, tokens)


def _check_modes(modes: Any, logprobs_mode: Any) -> None:
    if not isinstance(modes, tuple) or not all(isinstance(mode, str) for mode in modes):
        raise TypeError(
            f"`logprobs_mode` must be a name or a tuple of names, got "
            f"{shown(logprobs_mode)} (the names are {LOGPROBS_MODES})"
        )
    if not modes or any(mode not in LOGPROBS_MODES or modes.count(mode) > 1 for mode in modes):
        raise ValueError(
            f"`logprobs_mode` must be some of {LOGPROBS_MODES}, each once, got "
            f"{brief(logprobs_mode)} (one is enough)"
        )


def parse_draws(n: Any) -> int:
    """Check `n`, and return how many tokens to draw from each row."""
    return 1 if n is None else int(DRAWS.one(n))


def parse_replacement(replacement: Any, n: Any, vocabulary: int, margin: bool) -> bool:
    """Check `replacement` for a call with `n`, which `parse_draws` has checked, and `margin`."""
    effect = "draws tokens that may repeat, False n distinct ones"
    if parse_flag("replacement", replacement, effect):
        return True
    if n is None:
        raise ValueError(
            "`replacement` must be True without `n`, got False (n is how many distinct tokens to "
            "draw; one token needs no `replacement`)"
        )
    if n > vocabulary:
        raise ValueError(
            f"`n` must be at most the number of tokens, {vocabulary}, with replacement=False, got "
            f"{n} (each token is drawn once at most)"
        )
    if margin:
        raise ValueError(
            "`margin` must be False with replacement=False, got True (a margin is that of one "
            "token; n=1 has the first)"
        )
    return False


def parse_flag(name: str, value: Any, effect: str = "adds the field to the result") -> bool:
    """Check an argument that selects more of the result; the message says what True does."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise TypeError(f"`{name}` must be True or False, got {shown(value)} (True {effect})")


def invalid_mask(on_invalid: Any, n_rows: int) -> NDArray[np.bool_] | None:
    """Check `on_invalid`; the rows to mark, none so far, or None where invalid rows are errors."""
    if not isinstance(on_invalid, str) or on_invalid not in ("raise", "mark"):
        raise ValueError(
            f'`on_invalid` must be "raise" or "mark", got {brief(on_invalid)} ("mark" gives an '
            "invalid row the token -1 and a status)"
        )
    return np.zeros(n_rows, np.bool_) if on_invalid == "mark" else None
