"""`ignore_tokens`: the tokens of a history that penalties skip."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .foreign import brief, host_array

OUTSIDE = "outside"

LEAST_TOKEN, MOST_TOKENS = -(2**31), 2**31
"""Tokens of histories are 32-bit integers, also those that are ignored."""


class IgnoredTokens(NamedTuple):
    """Which tokens of a history no penalty counts."""

    ids: tuple[int, ...]  # ascending
    has_outside: bool  # all that are not in [0, V)

    def among(self, tokens: NDArray[Any], vocabulary: int) -> NDArray[np.bool_]:
        """Return which of some tokens are ignored, in rows of a vocabulary."""
        ignored = np.isin(tokens, self.ids) if self.ids else np.zeros(tokens.shape, np.bool_)
        if self.has_outside:
            ignored |= (tokens < 0) | (tokens >= vocabulary)
        return ignored

    @property
    def value(self) -> tuple[Any, ...]:
        """The value of the argument that says so."""
        return (*self.ids, OUTSIDE) if self.has_outside else self.ids


NONE_IGNORED = IgnoredTokens((), False)


def parse_ignored(value: Any) -> IgnoredTokens:
    """Check `ignore_tokens`: tokens, "outside", or both in a list."""
    if value is None or (type(value) is tuple and not value):
        return NONE_IGNORED
    plain = host_array("ignore_tokens", value)
    listed = plain.tolist() if hasattr(plain, "tolist") else plain
    if isinstance(listed, (str, int)):
        listed = (listed,)
    if not isinstance(listed, (list, tuple, set, frozenset, range)):
        raise _wrong_kind(value)
    ids = set()
    for one in listed:
        if isinstance(one, str) and one == OUTSIDE:
            continue
        if isinstance(one, bool) or not isinstance(one, (int, np.integer)):
            raise _wrong_kind(one)
        if not LEAST_TOKEN <= one < MOST_TOKENS:
            raise ValueError(
                f"`ignore_tokens` must hold tokens in [-2**31, 2**31), got {one} "
                '("outside" is all that are not columns of the logits)'
            )
        ids.add(int(one))
    return IgnoredTokens(tuple(sorted(ids)), any(isinstance(one, str) for one in listed))


def _wrong_kind(value: Any) -> TypeError:
    return TypeError(
        f'`ignore_tokens` must be tokens, "outside" or a list of these, got {brief(value)} '
        '("outside" is all that are not columns of the logits)'
    )
