"""Who is there: the sequences of a `Sampler` by their numbers, and the batch of one call."""

from __future__ import annotations

from array import array
from copy import copy
from itertools import compress
from typing import Any

import numpy as np

from fastsample.engines.contract import SampleOutput, Step
from fastsample.engines.plan import make_plan
from fastsample.inputs.logits import Rows
from fastsample.inputs.logits_processors import Adjustments, make_adjustments
from fastsample.params.parameters import MAX_POSITION, SamplingParams, replace_fields

from .sequences import State, Tokens, is_per_sequence, prompts_of, start


class Batch:
    """The sequences of one call's rows, in their order, and what a step of theirs needs.

    Attributes
    ----------
    ids : tuple of int, or None for all sequences there are
    sequences : list of State
    plan : array of PLAN, shape (B,)
    outcome : SampleOutput
        Room for the tokens of a step that is told nothing else, used again by each.
    drawn : int64 array of shape (B,)
        The tokens in it.
    outputs : list of array
        The sequences' own.
    due : list of array
        Those to which the call under way will append; empty once another has used the sampler.
    has_penalties : bool
        Whether a step looks at their histories.
    step : Step or None
        What makes the next calls for them, where their engine prepares that.
    """

    def __init__(self, ids: tuple[int, ...] | None, sequences: list[State]) -> None:
        n_rows = len(sequences)
        self.ids = ids
        self.sequences = sequences
        self.plan = np.concatenate([make_plan(0), *(one.settings for one in sequences)])
        self.outcome = SampleOutput.empty(n_rows)
        self.drawn = self.outcome.tokens.reshape(n_rows)
        self.outputs = [one.output for one in sequences]
        self.due: list[Tokens] = []
        self.has_penalties = any(_has_penalties(one.params) for one in sequences)
        self.step: Step | None = None
        self._positions = self.plan["position"]

    def to_next_position(self) -> None:
        """Write every sequence's position into the plan."""
        for b, sequence in enumerate(self.sequences):
            position = sequence.skipped + len(sequence.output)
            if position > MAX_POSITION:
                raise ValueError(
                    f"`position` must be in [0, 2**64), got {position} (every position of this "
                    "seed has been drawn; take another)"
                )
            self._positions[b] = position

    def adjustments(self, rows: Rows, mask: Any, bias: Any) -> Adjustments | None:
        """Lay out a step's mask and bias, and the histories where a penalty looks at them."""
        if not self.has_penalties:
            return make_adjustments(rows, mask=mask, bias=bias)
        # Copies: an array cannot grow while another looks into its memory.
        prompts = [np.array(one.prompt, np.int64) for one in self.sequences]
        outputs = [np.array(output, np.int64) for output in self.outputs]
        return make_adjustments(rows, mask=mask, bias=bias, prompt=prompts, output=outputs)

    def append(self, tokens: list[int]) -> None:
        """Give each sequence its token, if `due` still says so; -1 gives it none."""
        given = [token for token in tokens if token >= 0]
        outputs = compress(self.due, [token >= 0 for token in tokens])
        # In one call of C code, so that an interrupt finds all rows moved on or none, and what
        # a signal's handler does with the sampler comes before all of them or after.
        if len(list(map(array.append, outputs, given))) < len(given):
            raise _used_meanwhile()


def _used_meanwhile() -> RuntimeError:
    return RuntimeError(
        "this Sampler was used while one of its calls was under way, by a signal's handler, a "
        "finalizer or an argument's own code, and the call has drawn nothing (what was done "
        "meanwhile stands; call again)"
    )


def _has_penalties(params: SamplingParams) -> bool:
    return (
        params.repetition_penalty != 1.0
        or params.frequency_penalty != 0.0
        or params.presence_penalty != 0.0
    )


class Roster:
    """Sequences by number.

    Made from a list, it starts with a sequence for each of the parameters in it; more come, and
    some go. Made from one set of parameters, it starts with one sequence and is open: the first
    call widens it to as many continuations as there are rows. A prompt for each closes it at once.

    Parameters
    ----------
    params : SamplingParams, list of SamplingParams, or None
    prompt : tokens, or one list of tokens per sequence, or None
    keywords : dict
        Fields that win over those of `params`.

    Attributes
    ----------
    comes_and_goes : bool
        Whether it was made from a list.
    batch : Batch or None
        That of the last call, where it may be used again; its step is ready only while it is here.
    """

    def __init__(self, params: Any, prompt: Any, keywords: dict[str, Any]) -> None:
        self.comes_and_goes = isinstance(params, (list, tuple))
        self._widens = not self.comes_and_goes and not is_per_sequence(prompt)
        self._is_open = self._widens
        if self.comes_and_goes:
            each = [replace_fields(one, keywords) for one in params]
            prompts = prompts_of(prompt, len(each))
            sequences = [start(one, tokens) for one, tokens in zip(each, prompts, strict=True)]
        else:
            first, *others = prompts_of(prompt, 1 if self._widens else len(prompt))
            sequences = [start(replace_fields(params, keywords), first)]
            for stream, tokens in enumerate(others, 1):
                sequences.append(sequences[0].on_stream(stream, tokens))
        self._sequences = dict(enumerate(sequences))
        self._next_id = len(sequences)
        self.batch: Batch | None = None
        self._under_way: list[Tokens] | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        """The numbers, ascending."""
        return tuple(self._sequences)

    def chosen(self, ids: tuple[int, ...] | None) -> list[State]:
        """The sequences of these numbers, in this order; all of them for None."""
        if ids is None:
            return list(self._sequences.values())
        unknown = [number for number in ids if number not in self._sequences]
        if unknown:
            raise ValueError(
                f"`sequences` must hold numbers of sequences, got {unknown[0]} (`ids` has those "
                f"of the {len(self._sequences)} that are here; add() makes one)"
            )
        if len(set(ids)) < len(ids):
            twice = next(number for number in ids if ids.count(number) > 1)
            raise ValueError(
                f"`sequences` must hold each number once, got {twice} more than once (a sequence "
                "is given one token a call; add() makes another on the same seed, stream=1)"
            )
        return [self._sequences[number] for number in ids]

    def shared(self, name: str) -> Any:
        """An attribute that is the same for all sequences."""
        values = [getattr(one, name) for one in self._sequences.values()]
        if not values or any(value != values[0] for value in values):
            raise ValueError(
                f"`{name}` must be asked of one sequence where they differ or there is none, got "
                f"{len(values)} sequences (pass a number of `ids`: sampler.sequence(0).{name})"
            )
        return values[0]

    def batch_of(self, n_rows: int, ids: tuple[int, ...] | None) -> Batch:
        """The batch of a call's rows: the last one, where it is the same and was handed back."""
        due: list[Tokens] = []
        batch = self._take_batch(due)
        if batch is None or batch.ids != ids:
            sequences = self.chosen(ids)
            if self._is_open and ids is None:
                first = sequences[0]
                sequences += [first.on_stream(b) for b in range(1, n_rows)]
                del sequences[n_rows:]
            batch = Batch(ids, sequences)
        if len(batch.sequences) != n_rows:
            raise ValueError(
                f"`logits` must have {len(batch.sequences)} rows, one for each sequence, got "
                f"{n_rows} (name the sequences that have a row with sequences=[...], or start anew "
                "with reset())"
            )
        batch.due = due
        if self._under_way is due:
            due.extend(batch.outputs)
        return batch

    def move_on(self, batch: Batch, tokens: list[int]) -> None:
        """Take note of a call that has succeeded: its rows are the sequences from here on.

        Not of one while which another has used the sampler: its rows may not be what they were.
        """
        all_rows = dict(enumerate(batch.sequences)) if batch.ids is None else self._sequences
        if self._under_way is not batch.due:
            raise _used_meanwhile()
        if self._is_open and batch.sequences:
            # Side by side, so that an interrupt finds both or none.
            self._sequences, self._is_open = all_rows, False
        batch.append(tokens)
        if self._under_way is batch.due and not self._is_open:
            self.batch = batch
            if batch.step is not None:
                batch.step.ready = True
            self._under_way = None

    def accept(self, sequences: list[State], lists: list[Tokens]) -> None:
        """Give each sequence its tokens."""
        for sequence, accepted in zip(sequences, lists, strict=True):
            if sequence.position + len(accepted) > MAX_POSITION + 1:
                raise ValueError(
                    f"`tokens` must end before position 2**64, got {len(accepted)} from position "
                    f"{sequence.position} on (reset(position) goes back)"
                )
        self._stop_what_is_under_way()
        # In one call of C code, so that an interrupt finds all of them moved on or none.
        list(map(array.extend, [one.output for one in sequences], lists))

    def _stop_what_is_under_way(self, due: list[Tokens] | None = None) -> None:
        """Let a call inside which another uses the sampler write nothing; `due` is the other's."""
        if self._under_way is not None:
            self._under_way.clear()
        self._under_way = due

    def _take_batch(self, due: list[Tokens] | None = None) -> Batch | None:
        """Take the last call's batch away: no other call may use it now.

        Before anything changes, so that an interrupt leaves no step behind that is out of date; and
        after it, for a call that a signal's handler has made meanwhile.
        """
        self._stop_what_is_under_way(due)
        batch = self.batch
        if batch is not None and batch.step is not None:
            batch.step.ready = False
        self.batch = None
        return batch

    def add(self, sequence: State) -> int:
        """Let a sequence come, under a number that none has had."""
        self._check_comes_and_goes("add")
        number = self._next_id
        self._next_id += 1  # first: an interrupt here loses a number, never a sequence
        self._take_batch()
        self._sequences[number] = sequence
        self._take_batch()
        return number

    def remove(self, number: int) -> State:
        """Let a sequence go."""
        self._check_comes_and_goes("remove")
        (sequence,) = self.chosen((number,))
        self._take_batch()
        del self._sequences[number]
        self._take_batch()
        return sequence

    def reset(self, position: int, ids: tuple[int, ...] | None) -> None:
        """Put sequences at a position; all of them at 0 start anew, open where they began so."""
        sequences = self.chosen(ids)
        self._take_batch()
        for sequence in sequences:
            sequence.go_to(position)
        if self._widens and position == 0 and ids is None:
            self._sequences = {0: self._sequences[0]}
            self._is_open = True
        self._take_batch()

    def copy(self) -> Roster:
        """Copy it and every sequence."""
        twin = copy(self)
        twin._sequences = {number: copy(one) for number, one in self._sequences.items()}
        twin.batch = twin._under_way = None
        return twin

    def _check_comes_and_goes(self, name: str) -> None:
        if not self.comes_and_goes:
            raise TypeError(
                f"`{name}` needs a Sampler made from a list, got one made from one SamplingParams "
                "(make it with Sampler([params]); a row may also be left out of a call with "
                "sequences=[...])"
            )


def as_number(number: Any) -> int:
    """Check one number of a sequence."""
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
        raise TypeError(
            f"`sequences` must be numbers of sequences, got {type(number).__name__} {number!r} "
            "(an integer that add() returned, or a list of them)"
        )
    return int(number)


def as_ids(sequences: Any) -> tuple[int, ...] | None:
    """Take one number of a sequence, or several, as a tuple of them; None stays None."""
    if sequences is None:
        return None
    given = sequences.tolist() if hasattr(sequences, "tolist") else sequences
    ids = tuple(given) if isinstance(given, (list, tuple, range)) else (given,)
    return ids if set(map(type, ids)) <= {int} else tuple(as_number(number) for number in ids)
