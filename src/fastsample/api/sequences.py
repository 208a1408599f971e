"""The sequences of a `Sampler`: parameters, seed, stream, position and tokens of each."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable
from copy import copy
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from fastsample.engines.plan import CHOICES, PLAN, make_plan
from fastsample.inputs.tokens import is_nested
from fastsample.params.foreign import host_array
from fastsample.params.ignored_tokens import IgnoredTokens, parse_ignored
from fastsample.params.parameters import (
    MAX_POSITION,
    SamplingParams,
    fresh_seed,
    replace_fields,
)
from fastsample.params.table import STREAM

from .sequence_arguments import parse_prompts
from .sequence_state import SequenceState, State

NO_TOKENS = array("q")


class Sequence:
    """One sequence of a `Sampler`, to be read; it changes with the sampler.

    Attributes
    ----------
    params : SamplingParams
    seed : int
        The seed of `params`, or the fresh one drawn in its place. A forked child draws a fresh one
        anew: its next tokens are of that seed, those of its output that it was forked with are not.
    stream : int
        The continuation of the seed.
    position : int
        The number of tokens drawn or accepted for it, plus the positions that `Sampler.reset` has
        skipped: the position of its next draw. The prompt is not counted.
    prompt, output : list of int
        Copies of its tokens: those before the first draw, and those since.

    Examples
    --------
    >>> import fastsample
    >>> sampler = fastsample.Sampler([])
    >>> number = sampler.add(temperature=0.8, seed=5, prompt=[3, 1])
    >>> sampler.accept([4, 1], sequences=number)
    >>> sequence = sampler.sequence(number)
    >>> sequence.prompt, sequence.output, sequence.position
    ([3, 1], [4, 1], 2)
    """

    __slots__ = ("__weakref__", "_params", "_state")  # kernels/step.pxi sets both, too

    def __init__(self, params: SamplingParams, state: SequenceState) -> None:
        self._params, self._state = params, state

    @property
    def params(self) -> SamplingParams:
        """The parameters."""
        return self._params

    @property
    def seed(self) -> int:
        """The seed of the next draw."""
        return self._state.seed

    @property
    def stream(self) -> int:
        """The continuation of the seed."""
        return self._state.stream

    @property
    def position(self) -> int:
        """The position of the next draw."""
        return self._state.skipped + self._state.output_count

    @property
    def prompt(self) -> list[int]:
        """The tokens before the first draw."""
        return self._state.prompt_array().tolist()  # type: ignore[no-any-return]

    @property
    def output(self) -> list[int]:
        """The tokens drawn or accepted."""
        return self._state.output_array().tolist()  # type: ignore[no-any-return]

    @property
    def _ignored(self) -> IgnoredTokens:
        return parse_ignored(self._params.ignore_tokens)

    @property
    def _latest_count(self) -> int:
        """The number of tokens after the last position that was skipped."""
        gaps = self._state.gaps
        return self._state.output_count - (gaps[-1][0] if gaps else 0)

    def __repr__(self) -> str:
        return (
            f"Sequence({self.params}, seed={self.seed}, stream={self.stream}, "
            f"position={self.position})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        gaps = [*self._state.gaps]
        return _restore, (self.params, self.seed, self.stream, *self._tokens(), gaps)

    def _tokens(self) -> tuple[array[int], array[int]]:
        prompt, output = self._state.prompt_array(), self._state.output_array()
        return array("q", prompt.tobytes()), array("q", output.tobytes())

    def _on_stream(self, stream: int, prompt: array[int] | None = None) -> Sequence:
        """Copy the sequence to another continuation of its seed, perhaps with its own prompt."""
        if prompt is not None:
            return _restore(self.params, self.seed, stream, prompt, NO_TOKENS, ())
        return _restore(self.params, self.seed, stream, *self._tokens(), self._state.gaps)

    def _go_to(self, position: int) -> None:
        """Forget the output from a position on, or skip positions up to it."""
        gaps, skipped = [], 0
        for before, count in self._state.gaps:
            in_reach = position - (before + skipped)
            if in_reach <= 0:
                break
            gaps.append((before, min(count, in_reach)))
            skipped += gaps[-1][1]
        kept = min(position - skipped, self._state.output_count)
        State.truncate_all([self._state], [kept])
        beyond = position - skipped - kept
        if beyond:
            gaps.append((kept, beyond))
        self._state.gaps = tuple(gaps)


class PreparedParams(NamedTuple):
    """What all sequences of the same parameters have: `SamplingParams` keeps it."""

    record: bytes  # their row of a plan, with any seed and stream
    ignored: array[int]  # tokens that are not counted, ascending
    has_outside: bool  # whether tokens outside of the rows are not counted


def prepare(params: SamplingParams) -> PreparedParams:
    """Find the record of parameters, and keep it with them."""
    prepared: PreparedParams | None = getattr(params, "_prepared", None)
    if prepared is None:
        prepared = _prepared(params.ignore_tokens, *_planned(params))
        object.__setattr__(params, "_prepared", prepared)
    return prepared


_PLANNED = (*CHOICES, "stages")
_planned = attrgetter(*_PLANNED)


@lru_cache(maxsize=256, typed=True)
def _prepared(ignore_tokens: Any, *values: Any) -> PreparedParams:
    """Find what parameters have that differ in their seeds alone."""
    plan = make_plan(1, **dict(zip(_PLANNED, values, strict=True)))
    ignored = parse_ignored(ignore_tokens)
    return PreparedParams(plan.tobytes(), array("q", ignored.ids), ignored.has_outside)


def start_sequence(params: SamplingParams, prompt: array[int], stream: int = 0) -> Sequence:
    """Make a sequence without output; it gets a fresh seed if `params` has none."""
    seed = fresh_seed() if params.seed is None else params.seed
    return _restore(params, seed, stream, prompt, NO_TOKENS, ())


def _restore(
    params: SamplingParams,
    seed: int,
    stream: int,
    prompt: array[int],
    output: array[int],
    gaps: Iterable[tuple[int, int]],
) -> Sequence:
    """Make a sequence of what its copy or its pickle holds."""
    prepared = prepare(params)
    plan = np.frombuffer(bytearray(prepared.record), PLAN)
    plan["seed"], plan["stream"] = seed, stream
    is_fresh = params.seed is None
    state = State(plan.tobytes(), is_fresh, prompt, output, prepared.ignored, prepared.has_outside)
    state.gaps = tuple(gaps)
    return Sequence(params, state)


class SequenceTable:
    """The sequences of a sampler by number.

    Made from a list of parameters, it has a sequence for each of them; sequences can be added and
    removed: it is dynamic. Made from one set of parameters, it has one sequence. With
    ``stream="row"`` the first call widens it to a continuation for each row, unless there is a
    prompt for each: it is open.
    """

    def __init__(
        self,
        params: Any,
        prompt: Any,
        stream: Any,
        keywords: dict[str, Any],
        vocabulary: int,
    ) -> None:
        prompt = host_array("prompt", prompt)
        self.is_dynamic = isinstance(params, (list, tuple))
        by_row = isinstance(stream, str) and stream == "row"
        self.has_continuations = by_row and not self.is_dynamic
        self._can_widen = self.has_continuations and not is_nested(prompt)
        self.is_open = self._can_widen
        streams = itertools.count() if by_row else itertools.repeat(STREAM.one(stream))
        if self.is_dynamic:
            each = [replace_fields(one, keywords) for one in params]
            ignored = [parse_ignored(one.ignore_tokens) for one in each]
            prompts = parse_prompts(prompt, ignored, vocabulary)
            sequences = list(map(start_sequence, each, prompts, streams))
        else:
            shared = replace_fields(params, keywords)
            n_prompts = len(prompt) if is_nested(prompt) else 1
            if n_prompts > 1 and not by_row:
                raise ValueError(
                    f'`stream` must be "row" for {n_prompts} prompts and one set of parameters, '
                    f"got {stream!r} (they are continuations of one seed; a list of params has a "
                    "seed for each)"
                )
            ignored = [parse_ignored(shared.ignore_tokens)] * n_prompts
            prompts = parse_prompts(prompt, ignored, vocabulary)
            first = start_sequence(shared, prompts[0])
            sequences = list(map(first._on_stream, streams, prompts))
        self._sequences = dict(enumerate(sequences))
        self._next_id = len(sequences)

    @property
    def ids(self) -> tuple[int, ...]:
        """The numbers, ascending."""
        return tuple(self._sequences)

    @property
    def sequences(self) -> dict[int, Sequence]:
        """The sequences by number, in their order."""
        return self._sequences

    def get(self, ids: tuple[int, ...] | None) -> list[Sequence]:
        """Return the sequences of these numbers, in this order; all of them for None."""
        if ids is None:
            return list(self._sequences.values())
        unknown = [number for number in ids if number not in self._sequences]
        if unknown:
            way_out = "; add() makes one" if self.is_dynamic else ""
            raise ValueError(
                f"`sequences` must hold numbers of sequences, got {unknown[0]} (`ids` has the "
                f"numbers of all {len(self._sequences)}{way_out})"
            )
        if len(set(ids)) < len(ids):
            twice = next(number for number in ids if ids.count(number) > 1)
            raise ValueError(
                f"`sequences` must hold each number once, got {twice} more than once (a call draws "
                "one token per sequence; add() makes another on the same seed, stream=1)"
            )
        return [self._sequences[number] for number in ids]

    def shared(self, name: str) -> Any:
        """Return an attribute that is the same for all sequences."""
        values = [getattr(one, name) for one in self._sequences.values()]
        if not values or any(value != values[0] for value in values):
            raise ValueError(
                f"`{name}` must be the same for all sequences, got {len(values)} sequences (read "
                f"that of one, by its number in `ids`: sampler.sequence(0).{name})"
            )
        return values[0]

    def for_rows(self, ids: tuple[int, ...] | None, n_rows: int) -> list[Sequence]:
        """Return the sequences of a call, widened to its rows if the table is open."""
        sequences = self.get(ids)
        if self.is_open and ids is None:
            sequences += [sequences[0]._on_stream(b) for b in range(1, n_rows)]
            del sequences[n_rows:]
        return sequences

    def wrong_rows_error(self, sequences: list[Sequence], n_rows: int) -> ValueError:
        """Make the error for a call with another number of rows than sequences."""
        if sequences and not (self.is_dynamic or self.has_continuations):
            stream, start = sequences[0].stream, sequences[0].position
            return ValueError(
                f"`logits` must have one row for a Sampler of one sequence, got {n_rows} "
                '(Sampler(..., stream="row") draws continuations, Sampler([params, ...]) has a '
                "sequence for each of a list; rows that verify a draft are successive positions: "
                f"fastsample.sample(logits, seed=sampler.seed, stream={stream}, "
                f"position=np.arange({start}, {start + n_rows})) with its parameters draws them)"
            )
        more = "; reset() starts again" if self._can_widen else ""
        more = "; add() makes more" if self.is_dynamic else more
        return ValueError(
            f"`logits` must have {len(sequences)} rows, one for each sequence, got {n_rows} "
            f"(sequences=[...] chooses the sequences of the rows{more})"
        )

    def close(self, ids: tuple[int, ...] | None, sequences: list[Sequence]) -> None:
        """Keep the sequences of the first call that succeeds."""
        if self.is_open and sequences:
            if ids is None:
                self._sequences = dict(enumerate(sequences))
            self.is_open = False

    def accept(self, sequences: list[Sequence], lists: list[array[int]]) -> None:
        """Append a list of tokens to the output of each sequence."""
        for sequence, tokens in zip(sequences, lists, strict=True):
            if sequence.position + len(tokens) > MAX_POSITION + 1:
                raise ValueError(
                    f"`tokens` must end before position 2**64, got {len(tokens)} from position "
                    f"{sequence.position} on (reset(position) goes back)"
                )
        State.extend_all([one._state for one in sequences], lists)

    def rewind(self, n: int, ids: tuple[int, ...] | None) -> None:
        """Take back the last n tokens of each sequence."""
        sequences = self.get(ids)
        for number, sequence in zip(self.ids if ids is None else ids, sequences, strict=True):
            if n > sequence._latest_count:
                raise ValueError(
                    "`n` must be at most the number of tokens since the start, or since the last "
                    f"skipped position, got {n} for sequence {number}, which has "
                    f"{sequence._latest_count} (reset(position) goes back to any position)"
                )
        states = [one._state for one in sequences]
        State.truncate_all(states, [one.output_count - n for one in states])

    def add(self, sequence: Sequence) -> int:
        """Add a sequence, under a number that none has had."""
        self._require_dynamic("add")
        number = self._next_id
        self._next_id += 1  # first: an interrupt here skips a number and loses no sequence
        self._sequences[number] = sequence
        return number

    def remove(self, number: int) -> Sequence:
        """Remove a sequence."""
        self._require_dynamic("remove")
        (sequence,) = self.get((number,))
        del self._sequences[number]
        return sequence

    def reset(self, position: int, ids: tuple[int, ...] | None) -> None:
        """Set the position of sequences; all at 0 can be widened again, if they could at first."""
        for sequence in self.get(ids):
            sequence._go_to(position)
        if self._can_widen and position == 0 and ids is None:
            self._sequences = {0: self._sequences[0]}
            self.is_open = True

    def copy(self) -> SequenceTable:
        """Copy the table and every sequence."""
        twin = copy(self)
        twin._sequences = {number: copy(one) for number, one in self._sequences.items()}
        return twin

    def _require_dynamic(self, name: str) -> None:
        if not self.is_dynamic:
            raise TypeError(
                f"`{name}` needs a Sampler made from a list, got one made from one SamplingParams "
                "(make it with Sampler([params]); a call can also leave out a row, with "
                "sequences=[...])"
            )
