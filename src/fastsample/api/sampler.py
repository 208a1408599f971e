"""`Sampler`: it remembers sequences, so that a loop need only bring logits."""

from __future__ import annotations

import copy
from collections.abc import Callable
from collections.abc import Sequence as AnySequence
from dataclasses import replace
from time import perf_counter_ns
from typing import Any

import numpy as np

from fastsample.engines import resolve
from fastsample.engines.contract import Run, SampleOutput, SampleRequest, Step
from fastsample.engines.plan import make_plan
from fastsample.inputs.logits import MAX_VOCABULARY, Rows, as_rows, memory_of_logits
from fastsample.params.parameters import SamplingParams, check_threads
from fastsample.params.validation import check_reduction

from .arguments import invalid_mask, parse_logprobs
from .latency import Latency
from .members import Members
from .result import SampleResult, as_caller_array, make_result, require_valid_rows
from .roster import Batch, Roster, as_ids
from .turn import Turn


class Sampler(Members):
    """Draw the tokens of one sequence, of B continuations of one, or of many that come and go.

    A sampler holds sequences. Each has its own parameters, which are fixed, a seed, a stream, a
    position and tokens. A call draws one token for each, appends it and moves the position on by
    one; after an error all stands where it stood.

    Parameters
    ----------
    params : SamplingParams or list of SamplingParams, optional
        One, or the defaults where left out: the first call decides how many sequences there are.
        With logits of shape (V,) it is one, number 0. With shape (B, V) they are B continuations of
        that one: the same seed, on the streams 0 to B - 1.
        A list, which may be empty: one sequence for each, numbered from 0. Each has the seed of its
        parameters, or a fresh one, on stream 0; more may come with `add` and go with `remove`.
    prompt : tokens, or one list of tokens per sequence, optional
        The tokens before the first draw, for penalties. They do not count in the position.
    valid_vocab : int, optional
        As in `sample`, for all calls.
    measure : bool
        Whether the time of every call is kept, in `latency`: its cost is 60 ns a call at most.
    reduction : {"exact", "fixed", "fast"}
        As in `sample`, for all calls.
    engine, isa, n_threads
        As in `sample`.
    **keywords
        Fields of `SamplingParams`; they win over those of `params`.

    Raises
    ------
    TypeError
        Other `params`, a keyword that is not a field, a value of the wrong kind.
    ValueError
        A value out of range, an unknown reduction, engine or instruction set.
    RuntimeError
        An engine or instruction set that this machine lacks.

    Notes
    -----
    ``sampler(logits)`` returns an int for logits of shape (V,), and int64 tokens of shape (B,) for
    (B, V), a torch.int64 tensor for a torch tensor. `sample` tells log-probabilities too.

    Penalties look at each sequence's own tokens: its prompt, and the output that the sampler keeps,
    both drawn and taken over with `accept`. One thread at a time may use a sampler; another is
    refused. Where a signal's handler, a finalizer or an argument's own code uses it in the midst of
    a call, what that did stands, and the call draws nothing and raises RuntimeError if it has
    looked at its sequences already.

    Guarantees: a sequence's token is the one of ``fastsample.sample(row, seed=..., stream=...,
    position=..., prompt=..., output=...)`` with what `sequence` tells of it, whatever the machine
    and whoever else is in the batch; also in a clone, after pickling, in a forked child. In the
    reduction "fast" there is no such guarantee.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> logits = np.array([1.0, 1.5, 1.2, 0.3], dtype=np.float32)
    >>> sampler = fastsample.Sampler(temperature=0.8, top_k=3, seed=7)
    >>> tokens = [sampler(logits) for _ in range(5)]
    >>> sampler.reset()
    >>> tokens == [sampler(logits) for _ in range(5)]
    True
    >>> sampler.position
    5

    A batch whose rows come and go:

    >>> greedy, warm = fastsample.SamplingParams(temperature=0), fastsample.SamplingParams(seed=3)
    >>> sampler = fastsample.Sampler([greedy, warm])
    >>> tokens = sampler(np.stack([logits, logits]))
    >>> done = sampler.remove(0)
    >>> done.output
    [1]
    >>> sampler.add(presence_penalty=0.5, prompt=[1, 1, 3], seed=4)
    2
    >>> tokens = sampler(np.stack([logits, logits]), sequences=[2, 1])
    >>> sampler.ids, sampler.sequence(1).position, sampler.sequence(2).position
    ((1, 2), 2, 1)
    """

    _valid_vocab: int | None
    _latency: Latency | None
    _reduction: str
    _engine: str | None
    _isa: str | None
    _n_threads: int | None
    _run: Run
    _make_step: Callable[..., Step] | None

    def __init__(
        self,
        params: SamplingParams | AnySequence[SamplingParams] | None = None,
        /,
        *,
        prompt: Any = None,
        valid_vocab: int | None = None,
        measure: bool = False,
        reduction: str = "exact",
        engine: str | None = None,
        isa: str | None = None,
        n_threads: int | None = None,
        **keywords: Any,
    ) -> None:
        self.__setstate__(
            {
                "roster": Roster(params, prompt, keywords),
                "valid_vocab": valid_vocab,
                "measure": check_measure(measure),
                "reduction": check_reduction(reduction),
                "engine": engine,
                "isa": isa,
                "n_threads": check_threads(n_threads),
            }
        )
        if isa is not None:
            # A step without rows, in which the engine refuses an instruction set that it lacks.
            no_rows = SampleRequest(np.empty((0, 1), np.float32), 1, make_plan(0), None)
            self._run(no_rows, SampleOutput.empty(0), isa=isa)

    @property
    def reduction(self) -> str:
        """How masses add up in all calls: "exact", "fixed" or "fast"."""
        return self._reduction

    @property
    def latency(self) -> Latency:
        """How long the calls took, of a sampler that was made with ``measure=True``.

        What is measured is a call of the sampler, or of its `sample`, from the look at its logits
        to its tokens; one call, however many rows it has, and their tokens are counted too. A call
        that ended in an error is left out. A clone, a copy and what comes out of a pickle start
        with an empty one.

        Raises
        ------
        AttributeError
            The sampler does not measure.

        Examples
        --------
        >>> import numpy as np
        >>> import fastsample
        >>> sampler = fastsample.Sampler(seed=1, measure=True)
        >>> for _ in range(20):
        ...     tokens = sampler(np.zeros((4, 100), dtype=np.float32))
        >>> sampler.latency.count, sampler.latency.tokens
        (20, 80)
        >>> sampler.latency.p50 <= sampler.latency.p99 <= sampler.latency.max
        True
        """
        if self._latency is None:
            raise AttributeError(
                "`latency` needs a Sampler that measures, got one that does not (make it with "
                "measure=True)"
            )
        return self._latency

    def __call__(
        self, logits: Any, *, sequences: Any = None, mask: Any = None, bias: Any = None
    ) -> Any:
        """Draw the next token of each row, append it and move the position on by one.

        Parameters
        ----------
        logits : array of shape (V,) or (B, V)
            As in `fastsample.sample`.
        sequences : int, or list of B int, optional
            Whose row each one is. None: row b is that of the b-th of `ids`.
        mask, bias
            As in `fastsample.sample`, for this call.

        Returns
        -------
        int, or int64 array or torch.int64 tensor of shape (B,)

        Raises
        ------
        TypeError, ValueError
            As `fastsample.sample`; also ValueError for an unknown or repeated number, for another
            B than there are sequences, for a token of the history that `logits` has no column for,
            and at position 2**64.
        RuntimeError
            Another thread is using this sampler, or it was used in the midst of this call.
        """
        batch = self._roster.batch
        if batch is not None and batch.step is not None:
            drawn = batch.step(logits, sequences, mask, bias)
            if drawn is not None:
                return drawn
        return self._draw(logits, sequences, mask, bias)

    def _draw(self, logits: Any, sequences: Any, mask: Any, bias: Any) -> Any:
        """Draw as a call does, whatever adjusts the logits; also where nothing is prepared."""
        started = perf_counter_ns()
        with self._turn:
            rows = as_rows(logits, self._valid_vocab)
            batch = self._roster.batch_of(len(rows.values), as_ids(sequences))
            batch.to_next_position()
            adjustments = batch.adjustments(rows, mask, bias)
            request = SampleRequest(
                rows.values, rows.vocabulary, batch.plan, adjustments, self._reduction
            )
            self._run(request, batch.outcome, isa=self._isa, n_threads=self._n_threads)
            require_valid_rows(request, batch.outcome.status, rows.shape)
            tokens = batch.drawn.tolist()
            drawn = as_caller_array(batch.drawn.copy(), rows.shape, torch=rows.torch)
            self._prepare(batch)
            # Last: from here on the batch, and the memory of its tokens, are the next call's.
            self._roster.move_on(batch, tokens)
            self._record(started, len(tokens))
        return drawn if rows.shape else tokens[0]

    def _prepare(self, batch: Batch) -> None:
        """Let the engine prepare calls of this batch with rows that nothing adjusts."""
        if self._make_step is None or batch.step is not None or batch.has_penalties:
            return
        batch.step = self._make_step(
            batch.ids,
            batch.outputs,
            [one.skipped for one in batch.sequences],
            self._valid_vocab or 0,
            MAX_VOCABULARY,
            batch.plan,
            batch.outcome.tokens,
            batch.outcome.status,
            self._turn.owner,
            memory_of_logits,
            as_ids,
            as_caller_array,
            None if self._latency is None else self._latency.memory,
            self._isa,
            self._n_threads or 0,
            self._reduction,
        )

    def _record(self, started: int, tokens: int) -> None:
        """Measure a call that the engine has not measured itself."""
        if self._latency is not None:
            self._latency.record(perf_counter_ns() - started, tokens)

    def sample(
        self,
        logits: Any,
        *,
        sequences: Any = None,
        mask: Any = None,
        bias: Any = None,
        logprobs: int | None = None,
        logprobs_mode: str | tuple[str, ...] = "raw",
        on_invalid: str = "raise",
    ) -> SampleResult:
        """Draw like a call of the sampler, and tell all that `fastsample.sample` tells.

        Parameters
        ----------
        logits, sequences, mask, bias
            As in a call.
        logprobs, logprobs_mode, on_invalid
            As in `fastsample.sample`. A sequence whose row is marked as bad gets no token and stays
            at its position.

        Returns
        -------
        SampleResult
            Its seed is one per row for a sampler made from a list.

        Raises
        ------
        TypeError, ValueError, RuntimeError
            As a call.

        Examples
        --------
        >>> import numpy as np
        >>> import fastsample
        >>> sampler = fastsample.Sampler(temperature=0.5, seed=1)
        >>> result = sampler.sample(np.zeros(4, dtype=np.float32), logprobs=2)
        >>> result.top_tokens, result.top_logprobs.round(3)
        (array([0, 1]), array([-1.386, -1.386]))
        """
        started = perf_counter_ns()
        with self._turn:
            rows = as_rows(logits, self._valid_vocab)
            logprob_request = parse_logprobs(logprobs, logprobs_mode, rows.vocabulary)
            invalid = invalid_mask(on_invalid, 0)
            batch = self._roster.batch_of(len(rows.values), as_ids(sequences))
            batch.to_next_position()
            adjustments = batch.adjustments(rows, mask, bias)
            request = SampleRequest(
                rows.values, rows.vocabulary, batch.plan, adjustments, self._reduction
            )
            output = SampleOutput.empty(len(rows.values), kept_count=True, logprobs=logprob_request)
            self._run(request, output, isa=self._isa, n_threads=self._n_threads)
            if invalid is None:
                require_valid_rows(request, output.status, rows.shape)
            tokens = output.tokens.ravel().tolist()
            self._roster.move_on(batch, tokens)
            drawn = as_caller_array(output.tokens, rows.shape, torch=rows.torch)
            seed = self._seed_of(batch, rows)
            result = make_result(output, rows, seed, drawn, logprob_request)
            self._record(started, len(tokens) - tokens.count(-1))
        return result

    def clone(self) -> Sampler:
        """Copy the sampler: from here on both draw the same, neither moves the other."""
        return copy.copy(self)

    def _seed_of(self, batch: Batch, rows: Rows) -> Any:
        """What a result tells: one seed for one row, and for continuations; else one per row."""
        if not self._roster.comes_and_goes:
            return self.seed
        seeds = [one.seed for one in batch.sequences]
        return np.array(seeds, np.uint64) if rows.shape else seeds[0]

    def __getstate__(self) -> dict[str, Any]:
        with self._turn:
            return {
                "roster": self._roster.copy(),
                "valid_vocab": self._valid_vocab,
                "measure": self._latency is not None,
                "reduction": self._reduction,
                "engine": self._engine,
                "isa": self._isa,
                "n_threads": self._n_threads,
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._roster = state["roster"]
        self._valid_vocab = state["valid_vocab"]
        self._latency = Latency() if state["measure"] else None
        # A sampler that was pickled before there were modes drew in the only one there was.
        self._reduction = check_reduction(state.get("reduction", "exact"))
        self._engine = state["engine"]
        self._isa = state["isa"]
        self._n_threads = state["n_threads"]
        engine = resolve(self._engine, self._isa)
        self._run, self._make_step = engine.run, engine.make_step
        self._turn = Turn()

    def __repr__(self) -> str:
        sequences = self._roster.chosen(None)
        mode = "" if self._reduction == "exact" else f", reduction={self._reduction!r}"
        if self._roster.comes_and_goes or len({one.position for one in sequences}) > 1:
            return f"Sampler({len(sequences)} sequences{mode})"
        params = replace(self.params, seed=self.seed)
        return f"Sampler({params}, position={self.position}{mode})"


def check_measure(measure: Any) -> bool:
    """Check a switch: a bool and nothing else."""
    if not isinstance(measure, bool):
        raise TypeError(
            f"`measure` must be True or False, got {type(measure).__name__} {measure!r} "
            "(True keeps the time of every call in `latency`)"
        )
    return measure
