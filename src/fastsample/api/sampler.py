"""`Sampler`: sequences for a generation loop, which then passes nothing but logits."""

from __future__ import annotations

import copy
from collections.abc import Sequence as AnySequence
from dataclasses import replace
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines.contract import SampleOutput, SampleRequest, Step
from fastsample.engines.execution import Execution
from fastsample.engines.plan import make_plan
from fastsample.engines.reference import RULE_VERSION
from fastsample.inputs.logits import (
    MAX_VOCABULARY,
    Rows,
    as_rows,
    check_valid_vocab,
    memory_of_logits,
)
from fastsample.inputs.logprob_tokens import parse_logprob_tokens
from fastsample.inputs.mask import is_short_allowed
from fastsample.params.foreign import shown
from fastsample.params.parameters import SamplingParams
from fastsample.params.validation import Bad, check_reduction

from .arguments import invalid_mask, parse_flag, parse_logprobs
from .batch import Batch
from .compiled import prepared
from .exclusive_use import ExclusiveUse
from .latency import Latency
from .result import (
    SampleResult,
    Status,
    as_caller_array,
    find_margins,
    make_result,
    require_valid_rows,
)
from .sequence_arguments import parse_ids
from .sequence_holder import SequenceHolder
from .sequences import Sequence, SequenceTable, prepare


class Sampler(SequenceHolder):
    """Sample one sequence, B continuations of one prompt, or many sequences.

    A sampler holds sequences. Each has fixed parameters, a seed, a stream, a position, a prompt and
    an output. A call draws one token for each, appends it to the output and adds 1 to the position.
    After an error, every sequence is as it was.

    Parameters
    ----------
    params : SamplingParams or list of SamplingParams, optional
        One set of parameters, or the defaults where left out: one sequence, number 0.
        A list, which may be empty: one sequence for each, numbered from 0. Each has the seed of its
        parameters, or a fresh one. `add` and `remove` change the set.
    stream : int or "row"
        In [0, 2**32): the stream of all sequences. "row" puts sequence b on stream b, and makes
        continuations of one set of parameters: the first call decides how many. With logits of
        shape (B, V) they are B, with the same seed.
    prompt : tokens, or one list of tokens per sequence, optional
        The tokens before the first draw, for penalties. They do not count in the position.
    valid_vocab : int, optional
    short_mask : {"raise", "ban"}
        As in `sample`, for all calls.
    measure : bool
        Whether to record the time of every call in `latency`, which takes about 0.1 us per call.
    reduction : {"exact", "fixed", "fast"}
        As in `sample`, for all calls.
    engine, isa, n_threads
        As in `sample`.
    **keywords
        Fields of `SamplingParams`; they override those of `params`.

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As `sample`; TypeError also for a keyword that is not a field. Unpickling raises ValueError
        where the sampler was pickled under another `RULE_VERSION`.

    Notes
    -----
    ``sampler(logits)`` returns an int for logits of shape (V,), and int64 tokens of shape (B,) for
    (B, V), as a torch.int64 tensor for a torch tensor. `sample` returns log-probabilities too.

    Penalties use each sequence's own tokens: its prompt, and the output that the sampler records,
    drawn or passed to `accept`. The native engine counts only what is new: the cost of a call does
    not grow with the history.

    A sampler serves one call at a time. A use during a call, by another thread, a signal handler or
    code of its mask or bias, raises RuntimeError and changes nothing. An exception of a signal
    handler, such as KeyboardInterrupt, leaves all sequences of a call as they were, or all of them
    one token on.

    A sequence's token is that of ``fastsample.sample(row, seed=..., stream=..., position=...,
    prompt=..., output=...)`` with the attributes of `sequence`, on every machine and whatever other
    sequences are in the batch; also in a clone and after pickling. The reduction "fast" has no
    such guarantee.

    A forked child has every sequence as it was, but draws seeds that nobody gave anew, so that
    workers do not repeat each other's tokens. Its attributes show the new ones.

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

    A batch that gains and loses sequences:

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

    _batch: Batch | None

    def __init__(
        self,
        params: SamplingParams | AnySequence[SamplingParams] | None = None,
        /,
        *,
        stream: int | str = 0,
        prompt: Any = None,
        valid_vocab: int | None = None,
        short_mask: str = "raise",
        measure: bool = False,
        reduction: str = "exact",
        engine: str | None = None,
        isa: str | None = None,
        n_threads: int | None = None,
        **keywords: Any,
    ) -> None:
        options = {
            "valid_vocab": valid_vocab,
            "short_mask": short_mask,
            "measure": measure,
            "reduction": reduction,
            "engine": engine,
            "isa": isa,
            "n_threads": n_threads,
        }
        vocabulary = MAX_VOCABULARY
        if valid_vocab is not None:
            vocabulary = check_valid_vocab(valid_vocab, MAX_VOCABULARY)
        self._set_up(
            {"table": SequenceTable(params, prompt, stream, keywords, vocabulary), **options}
        )
        if isa is not None:
            # A request without rows: the engine refuses an instruction set that it lacks.
            no_rows = SampleRequest(np.empty((0, 1), np.float32), 1, make_plan(0), None)
            self._execution.sample(no_rows, SampleOutput.empty(0))

    @property
    def reduction(self) -> str:
        """How masses are summed in all calls: "exact", "fixed" or "fast"."""
        return self._reduction

    @property
    def latency(self) -> Latency:
        """How long the calls took; AttributeError unless made with ``measure=True``.

        A call of the sampler, or of its `sample`, is measured from its start to its tokens: one
        call, however many rows it has. Calls that end in an error are not counted. A clone, a copy
        and an unpickled sampler start with an empty one.

        Examples
        --------
        >>> import numpy as np
        >>> import fastsample
        >>> sampler = fastsample.Sampler(seed=1, stream="row", measure=True)
        >>> tokens = [sampler(np.zeros((4, 100), dtype=np.float32)) for _ in range(20)]
        >>> sampler.latency.count, sampler.latency.tokens
        (20, 80)
        """
        if self._latency is None:
            raise AttributeError(
                "`latency` needs a Sampler that measures, got one that does not (make it with "
                "measure=True)"
            )
        return self._latency

    # ------------------------------------------------------------ drawing

    def __call__(
        self,
        logits: Any,
        *,
        at: Any = None,
        sequences: Any = None,
        mask: Any = None,
        bias: Any = None,
    ) -> Any:
        """Draw the next token of each row, append it and add 1 to the position.

        Parameters
        ----------
        logits, at, mask, bias
            As in `fastsample.sample`.
        sequences : int, or list of B int, optional
            The numbers of the sequences of the rows. None: row b is that of ``ids[b]``.

        Returns
        -------
        int, or int64 array or torch.int64 tensor of shape (B,)

        Raises
        ------
        TypeError, ValueError
            As `fastsample.sample`; also ValueError for an unknown or repeated number, for another
            B than the number of sequences, for a token of the history that `logits` has no column
            for, and at position 2**64.
        RuntimeError
            The sampler is in use.
        """
        started = 0 if self._latency is None else perf_counter_ns()
        step = self._step
        if step is not None:
            drawn = step.draw(logits, at, sequences, mask, bias, started)
            if drawn is not None:
                return drawn
            memory, torch = memory_of_logits(logits)
            if memory is not logits:
                drawn = step.draw(memory, at, sequences, mask, bias, started, True, torch)
                if drawn is not None:
                    return drawn
        rows = as_rows(logits, self._valid_vocab, at)
        output = SampleOutput.empty(len(rows.values))
        self._draw(started, rows, sequences, mask, bias, output)
        if not rows.shape:
            return int(output.tokens[0, 0])
        return as_caller_array(output.tokens.reshape(rows.shape), torch=rows.torch)

    @prepared
    def sample(
        self,
        logits: Any,
        *,
        at: Any = None,
        sequences: Any = None,
        mask: Any = None,
        bias: Any = None,
        logprobs: int | None = None,
        logprobs_mode: str | tuple[str, ...] = "raw",
        logprob_tokens: Any = None,
        kept_count: bool = False,
        margin: bool = False,
        on_invalid: str = "raise",
    ) -> SampleResult:
        """Draw like a call of the sampler, and return all that `fastsample.sample` returns.

        Parameters
        ----------
        logits, at, sequences, mask, bias
            As in a call.
        logprobs, logprobs_mode, logprob_tokens, kept_count, margin, on_invalid
            As in `fastsample.sample`. A sequence whose row is marked as invalid gets no token and
            keeps its position.

        Returns
        -------
        SampleResult
            Its seed is one per row for a sampler made from a list.

        Examples
        --------
        >>> import numpy as np
        >>> import fastsample
        >>> sampler = fastsample.Sampler(temperature=0.5, seed=1)
        >>> result = sampler.sample(np.zeros(4, dtype=np.float32), logprobs=2)
        >>> result.top_tokens, result.top_logprobs.round(3)
        (array([0, 1]), array([-1.386, -1.386]))
        """
        started = 0 if self._latency is None else perf_counter_ns()
        step = self._step
        if step is not None and margin is False:
            details = (logprobs, logprobs_mode, logprob_tokens, kept_count, on_invalid, started)
            memory, torch = memory_of_logits(logits)
            if memory is not logits:
                arguments = (memory, at, sequences, mask, bias, *details)
                result: SampleResult | None = step.sample(*arguments, True, torch)
                if result is not None:
                    return result
        rows = as_rows(logits, self._valid_vocab, at)
        marked, given = invalid_mask(on_invalid, len(rows.values)), None
        if logprob_tokens is not None:
            given = parse_logprob_tokens(logprob_tokens, rows, marked)
        logprob_request = parse_logprobs(logprobs, logprobs_mode, rows.vocabulary, given)
        wants_margin = parse_flag("margin", margin)
        counts = parse_flag("kept_count", kept_count)
        output = SampleOutput.empty(len(rows.values), kept_count=counts, logprobs=logprob_request)
        margins = np.empty((len(rows.values), 1)) if wants_margin else None
        batch = self._draw(started, rows, sequences, mask, bias, output, given, marked, margins)
        seeds = batch.plan["seed"]  # a child that was forked since has others
        seed: Any = seeds.copy()
        if not (self._table.is_dynamic and rows.shape):
            seed = int(seeds[0]) if len(seeds) else self.seed
        tokens = as_caller_array(output.tokens.reshape(rows.shape), torch=rows.torch)
        return make_result(output, rows, seed, tokens, logprob_request, margins)

    def _draw(
        self,
        started: int,
        rows: Rows,
        sequences: Any,
        mask: Any,
        bias: Any,
        output: SampleOutput,
        given: NDArray[np.int64] | None = None,
        marked: Bad | None = None,
        margins: NDArray[np.float64] | None = None,
    ) -> Batch:
        """Draw a token for each row, and append it to its sequence; `marked` rows get none.

        With None for these, a row that cannot be drawn is an error.
        """
        ids = parse_ids(sequences)
        with self._exclusive.begin():
            self._suspend()
            chosen = self._table.for_rows(ids, len(rows.values))
            batch = self._batch
            if batch is None or not batch.serves(ids, chosen):
                batch = self._batch = Batch(ids, chosen)
            batch.require_rows(len(rows.values), self._table)
            bad = batch.find_bad(rows.vocabulary)
            if bad and marked is None:
                raise batch.bad_sequence_error(bad, self._table)
            output.status[list(bad)] = Status.BAD_PARAM
            batch.write_positions(bad)
            processors = batch.processors(
                rows, bad, marked, mask=mask, bias=bias, allow_short_mask=self._allow_short_mask
            )
            if marked is not None:
                output.status[marked] = Status.BAD_PARAM
            request = SampleRequest(
                rows.values, rows.vocabulary, batch.plan, processors, self._reduction, given
            )
            self._execution.sample(request, output)
            if marked is None:
                require_valid_rows(request, output.status, rows.shape)
            if margins is not None:
                margins[:] = find_margins(request, output.status)
            tokens = output.tokens[:, 0]
            self._table.close(batch.ids, batch.sequences)
            batch.append(tokens)
            self._resume()
            if self._latency is not None:
                drawn = int(np.count_nonzero(tokens >= 0))
                self._latency.record(perf_counter_ns() - started, drawn)
        return batch

    def _make_step(self) -> Step | None:
        """Let the engine prepare the calls of this sampler."""
        make_step = self._execution.engine.make_step
        return make_step and make_step(
            Sampler,
            self._valid_vocab or 0,
            MAX_VOCABULARY,
            self._table.is_dynamic,
            SampleResult,
            SamplingParams,
            Sequence,
            prepare,
            None if self._latency is None else self._latency.memory,
            self._execution.isa,
            self._execution.n_threads or 0,
            self._reduction,
        )

    # ------------------------------------------------------------ the sampler as an object

    def clone(self) -> Sampler:
        """Return a copy that draws the same tokens; neither changes the other."""
        return copy.copy(self)

    def __getstate__(self) -> dict[str, Any]:
        with self._exclusive.begin():
            self._suspend()
            table = self._table.copy()
            self._resume()
        return {"rule_version": RULE_VERSION, "table": table, **self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        version = state.get("rule_version", 1)  # version 0.1.0 wrote none
        if version != RULE_VERSION:
            raise ValueError(
                f"a copy of a Sampler must be of rule version {RULE_VERSION}, got {version}: its "
                "tokens would be others (use the release that wrote it, or make a new Sampler)"
            )
        self._set_up({name: value for name, value in state.items() if name != "rule_version"})

    def _set_up(self, state: dict[str, Any]) -> None:
        self._table: SequenceTable = state["table"]
        self._options = {name: value for name, value in state.items() if name != "table"}
        valid_vocab = state["valid_vocab"]
        if valid_vocab is not None:
            valid_vocab = check_valid_vocab(valid_vocab, MAX_VOCABULARY)
        self._valid_vocab: int | None = valid_vocab
        self._options["valid_vocab"] = valid_vocab  # the number, which its array may change
        self._allow_short_mask = is_short_allowed(state["short_mask"])
        measure = state["measure"]
        if not isinstance(measure, bool):
            raise TypeError(
                f"`measure` must be True or False, got {shown(measure)} "
                "(True keeps the time of every call in `latency`)"
            )
        self._latency = Latency() if measure else None
        self._reduction = check_reduction(state["reduction"])
        self._execution = Execution.of(state["engine"], state["isa"], state["n_threads"])
        self._settle(self._table.get(None))
        self._exclusive = ExclusiveUse()
        self._batch = None
        self._step = self._make_step()
        self._resume()

    def __setattr__(self, name: str, value: Any) -> None:
        if name[0] != "_":
            way_out = "call reset(position)" if name == "position" else "make a new Sampler"
            raise AttributeError(
                f"`{name}` cannot be set: the parameters of a Sampler are fixed ({way_out})"
            )
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        sequences = self._table.get(None)
        mode = "" if self._reduction == "exact" else f", reduction={self._reduction!r}"
        if self._table.is_dynamic or len({one.position for one in sequences}) > 1:
            return f"Sampler({len(sequences)} sequences{mode})"
        params = replace(self.params, seed=self.seed)
        return f"Sampler({params}, position={self.position}{mode})"
