"""What a sampler keeps of one sequence: parameters, tokens and skipped positions."""

from __future__ import annotations

from array import array
from itertools import compress
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastsample.engines.plan import PLAN

from .compiled import native
from .fresh_seeds import masked


class SequenceState(Protocol):
    """The parameters, the tokens and the position of one sequence.

    The three functions that change outputs change all of them or, after an error or an interrupt,
    none: each is one call of compiled code.
    """

    gaps: tuple[tuple[int, int], ...]
    """Positions that were skipped: (length of the output before, number of positions)."""

    def __init__(
        self,
        record: bytes,
        is_fresh: bool,
        prompt: Any,
        output: Any,
        ignored: array[int],
        has_outside: bool,
    ) -> None:
        """Take a row of a plan, tokens in arrays of type "q", and which are not counted.

        A fresh seed is replaced in a forked child.
        """

    @property
    def record(self) -> bytes:
        """The row of a plan, with its seed and its stream."""

    @property
    def seed(self) -> int:
        """The seed of the next draw."""

    @property
    def stream(self) -> int:
        """The stream of the sequence."""

    @property
    def skipped(self) -> int:
        """By how much the position is larger than the length of the output."""

    @property
    def output_count(self) -> int:
        """The number of tokens of the output."""

    def prompt_array(self) -> NDArray[np.int64]:
        """Return a copy of the prompt."""

    def output_array(self) -> NDArray[np.int64]:
        """Return a copy of the output."""

    @staticmethod
    def extend_all(states: list[Any], lists: list[array[int]]) -> None:
        """Append a list of tokens, in an array of type "q", to the output of each."""

    @staticmethod
    def append_all(states: list[Any], tokens: NDArray[np.int64]) -> None:
        """Append a token to the output of each; -1 appends none."""

    @staticmethod
    def truncate_all(states: list[Any], counts: list[int]) -> None:
        """Keep the first tokens of each output, so many of them."""


class PlainSequenceState:
    """A `SequenceState` without counts, for installations without the compiled module."""

    __slots__ = ("_is_fresh", "_kept_seed", "_output", "_plan", "_prompt", "gaps")

    def __init__(
        self,
        record: bytes,
        is_fresh: bool,
        prompt: Any,
        output: Any,
        ignored: array[int],
        has_outside: bool,
    ) -> None:
        self._plan: NDArray[np.void] = np.frombuffer(record, PLAN)
        seed = int(self._plan["seed"][0])
        self._kept_seed, self._is_fresh = masked(seed) if is_fresh else seed, is_fresh
        self._prompt, self._output = array("q", prompt), array("q", output)
        self.gaps: tuple[tuple[int, int], ...] = ()

    @property
    def record(self) -> bytes:
        """The row of a plan, with its seed and its stream."""
        plan = self._plan.copy()
        plan["seed"] = self.seed
        return bytes(plan.tobytes())

    @property
    def seed(self) -> int:
        """The seed of the next draw."""
        return masked(self._kept_seed) if self._is_fresh else self._kept_seed

    @property
    def stream(self) -> int:
        """The stream of the sequence."""
        return int(self._plan["stream"][0])

    @property
    def skipped(self) -> int:
        """By how much the position is larger than the length of the output."""
        return sum(count for _, count in self.gaps)

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
    def extend_all(states: list[PlainSequenceState], lists: list[array[int]]) -> None:
        """Append a list of tokens to the output of each."""
        list(map(array.extend, [one._output for one in states], lists))

    @staticmethod
    def append_all(states: list[PlainSequenceState], tokens: NDArray[np.int64]) -> None:
        """Append a token to the output of each; -1 appends none."""
        drawn = (tokens >= 0).tolist()
        outputs = [one._output for one in compress(states, drawn)]
        list(map(array.append, outputs, compress(tokens.tolist(), drawn)))

    @staticmethod
    def truncate_all(states: list[PlainSequenceState], counts: list[int]) -> None:
        """Keep the first tokens of each output, so many of them."""
        ends = [slice(count, None) for count in counts]
        list(map(array.__delitem__, [one._output for one in states], ends))


State: type[SequenceState] = PlainSequenceState if native is None else native.SequenceState
"""The class that sequences use: with counts where there is compiled code to read them."""
