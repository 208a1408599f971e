"""The sequences of a `Sampler`: what reads, adds, removes and moves them."""

from __future__ import annotations

from typing import Any

from fastsample.engines.contract import Step
from fastsample.engines.execution import Execution
from fastsample.inputs.logits import MAX_VOCABULARY
from fastsample.params.ignored_tokens import parse_ignored
from fastsample.params.parameters import SamplingParams, replace_fields
from fastsample.params.table import ONE_STREAM, POSITION

from .batch import Batch
from .compiled import prepared
from .exclusive_use import ExclusiveUse, refuse_use
from .sequence_arguments import REWOUND, parse_id, parse_ids, parse_token_lists
from .sequences import Sequence, SequenceTable, start_sequence


class SequenceHolder:
    """The part of a `Sampler` that is about its sequences, but for drawing."""

    __slots__ = ("__dict__", "__weakref__", "_step")  # compiled calls go to the step
    _step: Step | None
    _table: SequenceTable
    _exclusive: ExclusiveUse
    _execution: Execution
    _valid_vocab: int | None
    _reduction: str

    @property
    def ids(self) -> tuple[int, ...]:
        """The numbers of the sequences, ascending: the rows of a call without `sequences`."""
        return self._table.ids

    @property
    def params(self) -> SamplingParams:
        """The parameters, if all sequences share them; else ValueError."""
        return self._table.shared("params")  # type: ignore[no-any-return]

    @property
    def seed(self) -> int:
        """The seed in use, that of `params` or a fresh one, if all sequences share it."""
        return self._table.shared("seed")  # type: ignore[no-any-return]

    @property
    def position(self) -> int:
        """The position of the next draw, if it is the same for all sequences: see `Sequence`."""
        return self._table.shared("position")  # type: ignore[no-any-return]

    def sequence(self, number: int) -> Sequence:
        """Return one sequence: its parameters, seed, stream, position, prompt and output."""
        return self._table.get((parse_id(number),))[0]

    def accept(self, tokens: Any, *, sequences: Any = None) -> None:
        """Append tokens that were not drawn here, such as those that a grammar forces.

        The position of each sequence grows by their number. Before the first call of a sampler of
        continuations, all of them get the tokens.

        Parameters
        ----------
        tokens : int, list of int, or a list of these
            For one sequence a token or a list of tokens; for several a list with one of these for
            each, so that the tokens of a call can be passed to another sampler's `accept`. -1,
            which a marked row has instead of a token, is skipped.
        sequences : int or list of int, optional
            The sequences that they are for. None: one entry for each of `ids`.

        Raises
        ------
        TypeError, ValueError
            Not tokens, an unknown or repeated number, another number of entries, tokens at position
            2**64 or beyond. No sequence has changed then.
        RuntimeError
            The sampler is in use.

        Examples
        --------
        >>> import fastsample
        >>> sampler = fastsample.Sampler(seed=1, presence_penalty=0.5)
        >>> sampler.accept([5, 9])
        >>> sampler.position, sampler.sequence(0).output
        (2, [5, 9])
        """
        with self._exclusive.begin():
            self._suspend()
            chosen = self._table.get(parse_ids(sequences))
            ignored = [one._ignored for one in chosen]
            vocabulary = self._valid_vocab or MAX_VOCABULARY
            lists = parse_token_lists("tokens", tokens, ignored, vocabulary, skip_marks=True)
            self._table.accept(chosen, lists)
            self._resume()

    def rewind(self, n: int, *, sequences: Any = None) -> None:
        """Take back the last n tokens of each sequence, drawn or accepted.

        The position of each goes back by n: the next call draws the token of that position again.
        The opposite of `accept`, for tokens that a model has rejected. It takes time for the n
        tokens, whatever was there before.

        Parameters
        ----------
        n : int
            In [0, 2**64).
        sequences : int or list of int, optional
            The sequences to rewind; None: all.

        Raises
        ------
        TypeError, ValueError
            Not such a number; an unknown or repeated number of a sequence; a sequence with fewer
            tokens, those before a position that `reset` has skipped not counted. No sequence has
            changed then.
        RuntimeError
            The sampler is in use.

        Examples
        --------
        >>> import fastsample
        >>> sampler = fastsample.Sampler(seed=1)
        >>> sampler.accept([5, 9, 2])
        >>> sampler.rewind(2)
        >>> sampler.position, sampler.sequence(0).output
        (1, [5])
        """
        count = REWOUND.one(n)
        with self._exclusive.begin():
            self._suspend()
            self._table.rewind(count, parse_ids(sequences))
            self._resume()

    @prepared
    def add(
        self,
        params: SamplingParams | None = None,
        *,
        prompt: Any = (),
        stream: int = 0,
        **keywords: Any,
    ) -> int:
        """Add a sequence, to a sampler made from a list.

        Parameters
        ----------
        params : SamplingParams, optional
            The defaults where left out; without a seed the sequence gets a fresh one.
        prompt : list of tokens
            The tokens before the first draw.
        stream : int
            In [0, 2**32). Sequences with the same seed draw with the same random numbers unless
            their streams differ.
        **keywords
            Fields of `SamplingParams`; they override those of `params`.

        Returns
        -------
        int
            Its number, which no other sequence of this sampler has had or will have.

        Raises
        ------
        TypeError, ValueError, RuntimeError
            As `Sampler`, and in use; TypeError also where the sampler was not made from a list.
        """
        checked = replace_fields(params, keywords)
        ignored = parse_ignored(checked.ignore_tokens)
        vocabulary = self._valid_vocab or MAX_VOCABULARY
        (tokens,) = parse_token_lists("prompt", prompt, [ignored], vocabulary)
        sequence = start_sequence(checked, tokens, ONE_STREAM.one(stream))
        self._settle([sequence])
        with self._exclusive.begin():
            self._suspend()
            number = self._table.add(sequence)
            self._resume()
        return number

    @prepared
    def remove(self, number: int) -> Sequence:
        """Remove a sequence and return it; no other sequence changes. Errors as in `add`."""
        with self._exclusive.begin():
            self._suspend()
            sequence = self._table.remove(parse_id(number))
            self._resume()
        return sequence

    def reset(self, position: int = 0, *, sequences: Any = None) -> None:
        """Set the position. Parameters, seed and prompt stay; the output from there on is deleted.

        At 0, a sampler of continuations starts again: the next call decides how many there are. A
        position beyond the output skips positions, whose tokens are unknown; a later reset to or
        into the skipped positions deletes nothing before them.

        Parameters
        ----------
        position : int
            In [0, 2**64).
        sequences : int or list of int, optional
            The sequences to set; None: all.
        """
        checked = POSITION.one(position)
        with self._exclusive.begin():
            self._suspend()
            self._table.reset(checked, parse_ids(sequences))
            self._resume()

    # ------------------------------------------------------------ one use at a time

    def _suspend(self) -> None:
        """Let the step of another thread decline; refuse a use during its call."""
        if self._step is not None and not self._step.suspend():
            refuse_use()

    def _resume(self) -> None:
        """Let the step serve calls where the sequences are known."""
        if self._step is not None and not self._table.is_open:
            self._step.resume(self._table)

    def _settle(self, sequences: list[Sequence]) -> None:
        """Refuse sequences that no call could draw: one of them would stop the whole batch."""
        self._execution.settle(Batch(None, sequences).plan, self._reduction)
