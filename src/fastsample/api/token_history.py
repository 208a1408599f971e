"""The tokens of one sequence of a `Sampler`, its prompt and its output."""

from __future__ import annotations

from array import array
from functools import cache
from itertools import compress
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastsample.params.ignored_tokens import NONE_IGNORED, IgnoredTokens


class TokenHistory(Protocol):
    """The tokens of one sequence.

    The three functions that change histories change all of them or, after an error or an interrupt,
    none: each is one call of compiled code.
    """

    @property
    def output_count(self) -> int:
        """The number of tokens of the output."""

    def prompt_array(self) -> NDArray[np.int64]:
        """Return a copy of the prompt."""

    def output_array(self) -> NDArray[np.int64]:
        """Return a copy of the output."""

    @staticmethod
    def extend_all(histories: list[Any], lists: list[array[int]]) -> None:
        """Append a list of tokens, in an array of type "q", to the output of each."""

    @staticmethod
    def append_all(histories: list[Any], tokens: NDArray[np.int64]) -> None:
        """Append a token to the output of each; -1 appends none."""

    @staticmethod
    def truncate_all(histories: list[Any], counts: list[int]) -> None:
        """Keep the first tokens of each output, so many of them."""


class PlainTokenHistory:
    """A `TokenHistory` without counts, for installations without the compiled module."""

    __slots__ = ("_output", "_prompt")

    def __init__(
        self, prompt: Any, output: Any, ignored: Any = None, has_outside: bool = False
    ) -> None:
        self._prompt, self._output = array("q", prompt), array("q", output)

    @property
    def output_count(self) -> int:
        """The number of tokens of the output."""
        return len(self._output)

    def prompt_array(self) -> NDArray[np.int64]:
        """Return a copy of the prompt."""
        return np.array(self._prompt, np.int64)

    def output_array(self) -> NDArray[np.int64]:
        """Return a copy of the output."""
        # A copy: an array cannot grow while another holds its memory.
        return np.array(self._output, np.int64)

    @staticmethod
    def extend_all(histories: list[PlainTokenHistory], lists: list[array[int]]) -> None:
        """Append a list of tokens to the output of each."""
        list(map(array.extend, [one._output for one in histories], lists))

    @staticmethod
    def append_all(histories: list[PlainTokenHistory], tokens: NDArray[np.int64]) -> None:
        """Append a token to the output of each; -1 appends none."""
        drawn = (tokens >= 0).tolist()
        outputs = [one._output for one in compress(histories, drawn)]
        list(map(array.append, outputs, compress(tokens.tolist(), drawn)))

    @staticmethod
    def truncate_all(histories: list[PlainTokenHistory], counts: list[int]) -> None:
        """Keep the first tokens of each output, so many of them."""
        ends = [slice(count, None) for count in counts]
        list(map(array.__delitem__, [one._output for one in histories], ends))


@cache
def history_class() -> type[TokenHistory]:
    """Return the class that sequences use: with counts where there is compiled code to read them.

    The compiled code is loaded when it is first needed: where it cannot be, the import of the
    package still works.
    """
    try:
        from fastsample._native import TokenHistory as CompiledTokenHistory
    except ImportError:
        return PlainTokenHistory
    return CompiledTokenHistory


def make_history(
    prompt: array[int], output: array[int], ignored: IgnoredTokens = NONE_IGNORED
) -> TokenHistory:
    """Make a history of tokens in arrays of type "q", with those that are not counted."""
    ids = array("q", ignored.ids)
    return history_class()(prompt, output, ids, ignored.has_outside)  # type: ignore[call-arg]
