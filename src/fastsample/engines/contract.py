"""The contract of engines: what each gets and what it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastsample.inputs.logits_processors import LogitsProcessors as LogitsProcessors
from fastsample.inputs.logits_processors import TokenLists as TokenLists

LOGPROBS_MODES = ("raw", "tempered", "processed")
"""Distributions that log-probabilities can be returned for: section 7 of the rule."""


class SampleRequest(NamedTuple):
    """Rows of logits and how to sample from them, checked."""

    # float32, float16, or uint16 with the bits of bfloat16, of shape (B, columns); any strides and
    # alignment; read only
    values: NDArray[Any]
    vocabulary: int  # columns from this one on are padding, and are not read
    plan: NDArray[np.void]  # of PLAN, shape (B,), C-contiguous
    processors: LogitsProcessors | None
    reduction: str = "exact"  # how masses are summed; kept sets do not depend on it
    # int64 of shape (B, K), C-contiguous: tokens whose log-probabilities are returned, -1 for none
    logprob_tokens: NDArray[np.int64] | None = None
    replacement: bool = True  # whether draws of a row are independent; else tokens are distinct


class LogprobRequest(NamedTuple):
    """Which log-probabilities to return."""

    modes: tuple[str, ...]  # of LOGPROBS_MODES, each at most once
    top_count: int | None  # how many top tokens to return per row; None: no draws either
    has_mode_axis: bool  # whether results have an axis for the modes
    tokens: Any = None  # the `logprob_tokens` of the `SampleRequest`, or a tensor of them


class LogprobResult(NamedTuple):
    """Log-probabilities in F modes: of D draws of each row, N top tokens and K given tokens.

    D is the number of draws, or 0 where only given tokens are wanted. A draw or a given token of -1
    gets nan and rank 0.
    """

    modes: tuple[str, ...]
    logprobs: NDArray[np.float64]  # of shape (F, B, D)
    ranks: NDArray[np.int64]  # of shape (F, B, D)
    top_tokens: NDArray[np.int64]  # of shape (F, B, N)
    top_logprobs: NDArray[np.float64]  # of shape (F, B, N)
    token_logprobs: NDArray[np.float64]  # of shape (F, B, K)
    token_ranks: NDArray[np.int64]  # of shape (F, B, K)

    @classmethod
    def empty(
        cls, modes: tuple[str, ...], n_rows: int, draws: int, top_count: int, token_count: int = 0
    ) -> LogprobResult:
        """Allocate the arrays for an engine to fill."""
        shape = (len(modes), n_rows)
        return cls(
            modes,
            np.empty((*shape, draws), np.float64),
            np.empty((*shape, draws), np.int64),
            np.empty((*shape, top_count), np.int64),
            np.empty((*shape, top_count), np.float64),
            np.empty((*shape, token_count), np.float64),
            np.empty((*shape, token_count), np.int64),
        )

    @classmethod
    def of_request(cls, request: LogprobRequest, n_rows: int, draws: int) -> LogprobResult:
        """Allocate the arrays for what is wanted."""
        token_count = 0 if request.tokens is None else request.tokens.shape[1]
        if request.top_count is None:
            return cls.empty(request.modes, n_rows, 0, 0, token_count)
        return cls.empty(request.modes, n_rows, draws, request.top_count, token_count)

    def write_nothing(self) -> None:
        """Write what rows get from which nothing can be drawn."""
        self.logprobs[:], self.ranks[:] = np.nan, 0
        self.top_tokens[:], self.top_logprobs[:] = -1, np.nan
        self.token_logprobs[:], self.token_ranks[:] = np.nan, 0


class SampleOutput(NamedTuple):
    """What an engine writes: C-contiguous arrays that the caller has allocated.

    A row from which nothing can be drawn gets token -1, kept count 0, log-probabilities nan, rank 0
    and top tokens -1. Without replacement, a row that has fewer tokens than draws gets -1 after
    them.
    """

    # of shape (B, n): n draws per row, on the streams from `stream` on; on one without replacement
    tokens: NDArray[np.int64]
    status: NDArray[np.uint8]  # of shape (B,); read and written: a row is skipped where it is not 0
    kept_count: NDArray[np.int64] | None = None  # of shape (B,); None where it is not wanted
    logprobs: LogprobResult | None = None  # None where none are wanted

    @classmethod
    def empty(
        cls,
        n_rows: int,
        *,
        draws: int = 1,
        kept_count: bool = False,
        logprobs: LogprobRequest | None = None,
    ) -> SampleOutput:
        """Allocate the arrays for an engine to fill; every status is 0."""
        return cls(
            np.empty((n_rows, draws), np.int64),
            np.zeros(n_rows, np.uint8),
            np.empty(n_rows, np.int64) if kept_count else None,
            LogprobResult.of_request(logprobs, n_rows, draws) if logprobs else None,
        )

    def write_nothing(self) -> None:
        """Write what a row gets from which nothing can be drawn, for all rows."""
        self.tokens[:] = -1
        if self.kept_count is not None:
            self.kept_count[:] = 0
        if self.logprobs is not None:
            self.logprobs.write_nothing()


RowSet = tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.float32]]
"""Tokens, masses and logits of a row's kept set."""

NO_TOKENS: RowSet = (np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.float32))
"""That of a row from which nothing can be drawn."""


class KeptSets(NamedTuple):
    """The kept sets of a batch, concatenated, each in the order of section 3 of the rule."""

    tokens: NDArray[np.int64]
    masses: NDArray[np.uint64]
    logits: NDArray[np.float32]  # after mask, bias and penalties
    offsets: NDArray[np.int64]  # row b has tokens[offsets[b] : offsets[b + 1]]; an invalid one none

    @classmethod
    def of_rows(cls, rows: list[RowSet]) -> KeptSets:
        """Concatenate the kept sets of rows."""
        tokens, masses, logits = map(np.concatenate, zip(NO_TOKENS, *rows, strict=True))
        return cls(tokens, masses, logits, np.cumsum([0, *(len(row[0]) for row in rows)]))


# ---------------------------------------------------------------- functions


class Engine(NamedTuple):
    """An engine that is loaded: the functions of its module.

    The first three end in ``*, isa=None, n_threads=None``. An engine checks no argument; what a row
    holds is never an error, and sets its status.

    Attributes
    ----------
    name : str
    run : (SampleRequest, SampleOutput) -> None
        Draws for every row of the request.
    write_softmax : (function, SampleRequest, out, status) -> None
        Writes "softmax" or "log_softmax" of each row to float32 `out` of shape (B, vocabulary), or
        "logsumexp" to float64 of shape (B,), at the temperature of the plan, without processors and
        filters. `out` is C-contiguous, written in valid rows, and may be the memory of
        `request.values`. `status` is uint8 of shape (B,), 0 at first.
    kept_sets : (SampleRequest, status) -> KeptSets
        Finds the kept set of each row. `status` as in `SampleOutput`.
    make_step, make_draw : function or None
        Make a `Step` or a `Draw`: see kernels/step.pxi and kernels/draw.pxi.
    isas : tuple of str
        The instruction sets that a call may name.
    """

    name: str
    run: Callable[..., None]
    write_softmax: Callable[..., None]
    kept_sets: Callable[..., KeptSets]
    make_step: Callable[..., Step] | None
    make_draw: Callable[..., Draw] | None
    isas: tuple[str, ...]


class Step(Protocol):
    """The calls of a sampler, prepared for what stays the same in all of them."""

    def suspend(self) -> bool:
        """Decline all calls from here on: the sequences may change. False during a call."""

    def resume(self, table: Any) -> None:
        """Serve calls for the sequences of a `SequenceTable`, and add and remove some."""

    def __call__(self, logits: Any, **arguments: Any) -> Any:
        """Do a call of `Sampler`, with its keywords, as `draw` does."""

    def draw(
        self,
        logits: Any,
        at: Any,
        sequences: Any,
        mask: Any,
        bias: Any,
        started: int = 0,
        is_checked: bool = False,
        is_tensor: bool = False,
    ) -> Any:
        """Do a call of `Sampler`: draw, append the tokens, and return them.

        None where it declines: the general path returns the same, or raises the error. Nothing has
        changed then. Logits are declined but for plain arrays and tensors.

        The call began at `started`, by `time.perf_counter_ns`; 0: now.
        With `is_checked`, the logits are memory that `inputs.logits.memory_of_logits` has found, of
        a tensor where `is_tensor` is True.
        """

    def sample(
        self,
        logits: Any,
        at: Any,
        sequences: Any,
        mask: Any,
        bias: Any,
        logprobs: Any,
        logprobs_mode: Any,
        logprob_tokens: Any,
        kept_count: Any,
        on_invalid: Any,
        started: int = 0,
        is_checked: bool = False,
        is_tensor: bool = False,
    ) -> Any:
        """Do a call of `Sampler.sample` without margins, as above."""


class Draw(Protocol):
    """A call of `sample`, prepared for parameters that are the same in all rows and calls."""

    def __call__(
        self,
        logits: Any,
        seed: Any,
        position: Any,
        stream: Any,
        at: Any = None,
        mask: Any = None,
        bias: Any = None,
        prompt: Any = None,
        output: Any = None,
        valid_vocab: Any = None,
        logprobs: Any = None,
        logprobs_mode: Any = "raw",
        kept_count: Any = False,
        logprob_tokens: Any = None,
        is_checked: bool = False,
        is_tensor: bool = False,
    ) -> Any:
        """Draw, and return a `SampleResult`; None where it declines, as a `Step` does."""
