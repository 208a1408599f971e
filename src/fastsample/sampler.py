"""`Sampler`: it remembers sequences, so that a loop need only bring logits."""

from __future__ import annotations

import copy
from collections.abc import Callable
from collections.abc import Sequence as AnySequence
from dataclasses import replace
from time import perf_counter_ns
from typing import Any

import numpy as np

from . import checks
from .engines import Run, Step, resolve
from .job import Job
from .latency import Latency
from .logits import Rows, as_rows, memory_of_logits
from .params import (
    SamplingParams,
    check_measure,
    check_position,
    check_threads,
    make_plan,
    replace_fields,
)
from .result import SampleResult, as_given
from .roster import Batch, Roster, as_ids, as_number
from .sample import as_result, as_told, draw, first_bad, marks
from .sequences import Sequence, start, token_lists
from .turn import Turn


class Sampler:
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
    engine, isa, n_threads
        As in `sample`.
    **keywords
        Fields of `SamplingParams`; they win over those of `params`.

    Raises
    ------
    TypeError
        Other `params`, a keyword that is not a field, a value of the wrong kind.
    ValueError
        A value out of range, an unknown engine or instruction set.
    RuntimeError
        An engine or instruction set that this machine lacks.

    Notes
    -----
    ``sampler(logits)`` returns an int for logits of shape (V,), and int64 tokens of shape (B,) for
    (B, V), a torch.int64 tensor for a torch tensor. `sample` tells log-probabilities too.

    Penalties look at each sequence's own tokens: its prompt, and the output that the sampler keeps,
    both drawn and taken over with `accept`. One thread at a time may use a sampler; another is
    refused.

    Guarantees: a sequence's token is the one of ``fastsample.sample(row, seed=..., stream=...,
    position=..., prompt=..., output=...)`` with what `sequence` tells of it, whatever the machine
    and whoever else is in the batch; also in a clone, after pickling, in a forked child.

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

    _roster: Roster
    _valid_vocab: int | None
    _latency: Latency | None
    _engine: str | None
    _isa: str | None
    _n_threads: int | None
    _run: Run
    _make_step: Callable[..., Step] | None
    _turn: Turn

    def __init__(
        self,
        params: SamplingParams | AnySequence[SamplingParams] | None = None,
        /,
        *,
        prompt: Any = None,
        valid_vocab: int | None = None,
        measure: bool = False,
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
                "engine": engine,
                "isa": isa,
                "n_threads": check_threads(n_threads),
            }
        )
        if isa is not None:
            # A step without rows, in which the engine refuses an instruction set that it lacks.
            draw(as_rows(np.empty((0, 1), np.float32)), make_plan(0), None, engine=engine, isa=isa)

    @property
    def ids(self) -> tuple[int, ...]:
        """The numbers of the sequences, ascending: the rows of a call that names none."""
        return self._roster.ids

    @property
    def params(self) -> SamplingParams:
        """The parameters as given, where all sequences share them."""
        params: SamplingParams = self._roster.shared("params")
        return params

    @property
    def seed(self) -> int:
        """The seed in use, that of `params` or a fresh one, where all sequences share it."""
        seed: int = self._roster.shared("seed")
        return seed

    @property
    def position(self) -> int:
        """How many tokens have been drawn for each sequence, the prompt not counted.

        Those that it took over with `accept` count too. Where it is the same number for all.
        """
        position: int = self._roster.shared("position")
        return position

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

    def __setattr__(self, name: str, value: Any) -> None:
        if name[0] != "_":
            way_out = "call reset(position)" if name == "position" else "make a new Sampler"
            raise AttributeError(
                f"`{name}` cannot be set: the parameters of a Sampler are fixed ({way_out})"
            )
        super().__setattr__(name, value)

    def sequence(self, number: int) -> Sequence:
        """Look at one sequence: its parameters, seed, stream, position, prompt and output."""
        return Sequence(self._roster.chosen((as_number(number),))[0])

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
            Another thread is using this sampler.
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
            job = Job(rows.values, rows.vocabulary, batch.plan, adjustments)
            self._run(job, batch.outcome, isa=self._isa, n_threads=self._n_threads)
            if np.count_nonzero(batch.outcome.status):
                raise first_bad(job, rows.shape, batch.outcome.status)
            tokens = batch.drawn.tolist()
            self._prepare(batch, rows)
            self._roster.move_on(batch, tokens)
            drawn = as_given(batch.drawn.copy(), rows.shape, torch=rows.torch)
            self._record(started, len(tokens))
        return drawn if rows.shape else tokens[0]

    def _prepare(self, batch: Batch, rows: Rows) -> None:
        """Let the engine prepare calls of this batch with such rows that nothing adjusts."""
        if self._make_step is None or batch.step is not None or batch.has_penalties:
            return
        batch.step = self._make_step(
            batch.ids,
            batch.outputs,
            [one.skipped for one in batch.sequences],
            rows.values.shape[1],
            rows.vocabulary,
            batch.plan,
            batch.outcome.tokens,
            batch.outcome.status,
            self._turn.owner,
            memory_of_logits,
            as_ids,
            as_given,
            None if self._latency is None else self._latency.memory,
            self._isa,
            self._n_threads or 0,
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
        form: str | tuple[str, ...] = "raw",
        on_invalid: str = "raise",
    ) -> SampleResult:
        """Draw like a call of the sampler, and tell all that `fastsample.sample` tells.

        Parameters
        ----------
        logits, sequences, mask, bias
            As in a call.
        logprobs, form, on_invalid
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
            told = as_told(logprobs, form, rows.vocabulary)
            marks(on_invalid, 0)
            batch = self._roster.batch_of(len(rows.values), as_ids(sequences))
            batch.to_next_position()
            adjustments = batch.adjustments(rows, mask, bias)
            outcome = draw(
                rows,
                batch.plan,
                adjustments,
                told,
                kept_count=True,
                engine=self._engine,
                isa=self._isa,
                n_threads=self._n_threads,
                on_invalid=on_invalid,
            )
            tokens = outcome.tokens.ravel().tolist()
            self._roster.move_on(batch, tokens)
            result = as_result(outcome, rows, self._seed_of(batch, rows), told)
            self._record(started, len(tokens) - tokens.count(-1))
        return result

    def accept(self, tokens: Any, *, sequences: Any = None) -> None:
        """Append tokens that came from elsewhere, such as those that a grammar forces.

        The position moves on by one for each, as if they had been drawn. Before the first call of
        a sampler made from one `SamplingParams`, its continuations all get them.

        Parameters
        ----------
        tokens : int, list of int, or a list of these
            For one sequence a token or a list of tokens; for several a list with one of these for
            each, so that the tokens of a call may be handed to another sampler's `accept`. A -1,
            which a marked row has in place of a token, is skipped.
        sequences : int or list of int, optional
            Whose they are. None: one entry for each of `ids`.

        Raises
        ------
        TypeError, ValueError
            Something else than tokens, an unknown or repeated number, another number of entries.
        RuntimeError
            Another thread is using this sampler.

        Examples
        --------
        >>> import fastsample
        >>> sampler = fastsample.Sampler(seed=1, presence_penalty=0.5)
        >>> sampler.accept([5, 9])
        >>> sampler.position, sampler.sequence(0).output
        (2, [5, 9])
        """
        with self._turn:
            chosen = self._roster.chosen(as_ids(sequences))
            lists = token_lists("tokens", tokens, len(chosen), skip_marks=True)
            for sequence, accepted in zip(chosen, lists, strict=True):
                sequence.output.extend(accepted)

    def add(
        self,
        params: SamplingParams | None = None,
        *,
        prompt: Any = (),
        stream: int = 0,
        **keywords: Any,
    ) -> int:
        """Let a sequence come, in a sampler made from a list.

        Parameters
        ----------
        params : SamplingParams, optional
            The defaults where left out; without a seed it gets a fresh one.
        prompt : list of tokens
            Its tokens before the first draw.
        stream : int
            In [0, 2**32). Sequences of equal seed draw with equal numbers unless their streams
            differ.
        **keywords
            Fields of `SamplingParams`; they win over those of `params`.

        Returns
        -------
        int
            Its number, which no other sequence of this sampler has had or will have.

        Raises
        ------
        TypeError
            As the sampler's own making; also where it was not made from a list.
        ValueError
            A value out of range.
        RuntimeError
            Another thread is using this sampler.
        """
        chosen = replace_fields(params, keywords)
        (tokens,) = token_lists("prompt", prompt, 1)
        sequence = start(chosen, tokens, checks.STREAM.one(stream))
        with self._turn:
            return self._roster.add(sequence)

    def remove(self, number: int) -> Sequence:
        """Let a sequence go, and return it; no other moves.

        Raises
        ------
        TypeError, ValueError, RuntimeError
            As `add`; also ValueError for an unknown number.
        """
        with self._turn:
            return Sequence(self._roster.remove(as_number(number)))

    def reset(self, position: int = 0, *, sequences: Any = None) -> None:
        """Go to a position. Parameters, seed and prompt stay, output from there on is forgotten.

        At 0, a sampler made from one `SamplingParams` starts anew: the next call decides how many
        continuations there are. A position beyond the output leaves a gap of unknown tokens after
        those that stand; going back into the gap, or to its start, forgets none of these.

        Parameters
        ----------
        position : int
            In [0, 2**64).
        sequences : int or list of int, optional
            Which of them go there; None: all.
        """
        position = check_position(position)
        with self._turn:
            self._roster.reset(position, as_ids(sequences))

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
                "engine": self._engine,
                "isa": self._isa,
                "n_threads": self._n_threads,
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._roster = state["roster"]
        self._valid_vocab = state["valid_vocab"]
        self._latency = Latency() if state["measure"] else None
        self._engine = state["engine"]
        self._isa = state["isa"]
        self._n_threads = state["n_threads"]
        engine = resolve(self._engine, self._isa)
        self._run, self._make_step = engine.run, engine.make_step
        self._turn = Turn()

    def __repr__(self) -> str:
        sequences = self._roster.chosen(None)
        if self._roster.comes_and_goes or len({one.position for one in sequences}) > 1:
            return f"Sampler({len(sequences)} sequences)"
        params = replace(self.params, seed=self.seed)
        return f"Sampler({params}, position={self.position})"
