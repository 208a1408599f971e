"""The sequences of one call of a `Sampler` that no prepared call serves."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines.plan import PLAN
from fastsample.inputs.logits import Rows
from fastsample.inputs.logits_processors import LogitsProcessors, make_logits_processors
from fastsample.params.parameters import MAX_POSITION
from fastsample.params.table import PENALTIES
from fastsample.params.validation import Bad

from .fresh_seeds import generation
from .sequence_state import State
from .sequences import Sequence, SequenceTable


class Batch:
    """The sequences of one call's rows, in their order, and what a call of them needs."""

    def __init__(self, ids: tuple[int, ...] | None, sequences: list[Sequence]) -> None:
        self.ids = ids  # None for all
        self.sequences = sequences
        self.generation = generation()
        self.states = [one._state for one in sequences]
        records = bytearray(b"".join(one.record for one in self.states))
        self.plan: NDArray[np.void] = np.ndarray((len(sequences),), PLAN, records)
        self.has_penalty = [
            any(getattr(one.params, penalty.name) != penalty.off[0] for penalty in PENALTIES)
            for one in sequences
        ]

    def serves(self, ids: tuple[int, ...] | None, sequences: list[Sequence]) -> bool:
        """Return whether it is of these sequences, and of the seeds that this process has."""
        is_same = self.ids == ids and self.sequences == sequences
        return is_same and self.generation == generation()

    def require_rows(self, n_rows: int, table: SequenceTable) -> None:
        """Refuse another number of rows than sequences."""
        if len(self.sequences) != n_rows:
            raise table.wrong_rows_error(self.sequences, n_rows)

    def find_bad(self, vocabulary: int) -> dict[int, str]:
        """Say for each row whose sequence cannot be drawn what is wrong with it."""
        bad = {}
        for b, one in enumerate(self.sequences):
            if one.position > MAX_POSITION:
                bad[b] = (
                    f"`position` must be in [0, 2**64), got {one.position} for sequence {{number}} "
                    "(every position of this seed has been drawn, take another; {way_out})"
                )
            elif self.has_penalty[b] and (outside := _token_outside(one, vocabulary)) is not None:
                bad[b] = (
                    f"sequence {{number}} must hold tokens in [0, {vocabulary}), got {outside} "
                    '({way_out}; made with ignore_tokens="outside", it skips them in penalties)'
                )
        return bad

    def bad_sequence_error(self, bad: dict[int, str], table: SequenceTable) -> ValueError:
        """Make the error for the first sequence that cannot be drawn."""
        row, message = next(iter(bad.items()))
        number = row if table.is_open else (table.ids if self.ids is None else self.ids)[row]
        way_out = (
            f"remove({number}) lets the others be drawn"
            if table.is_dynamic
            else "make a new Sampler"
        )
        return ValueError(message.format(number=number, way_out=way_out))

    def write_positions(self, bad: Collection[int]) -> None:
        """Write the position of every sequence that can be drawn into the plan."""
        for b, one in enumerate(self.sequences):
            if b not in bad:
                self.plan["position"][b] = one.position

    def processors(
        self, rows: Rows, bad: Collection[int], marked: Bad | None, **given: Any
    ) -> LogitsProcessors | None:
        """Check a call's mask and bias, and add the tokens where a penalty reads them.

        Rows with a bad bias of their own are marked in `marked`; without it they are an error.
        """
        given["bad"] = marked
        is_read = [has and b not in bad for b, has in enumerate(self.has_penalty)]
        if not any(is_read):
            return make_logits_processors(rows, **given)
        pairs = zip(self.states, is_read, strict=True)
        parts = [
            (one.prompt_array(), one.output_array()) if read else ((), ()) for one, read in pairs
        ]
        prompts, outputs = map(list, zip(*parts, strict=True))
        ignored = [one._ignored for one in self.sequences]
        return make_logits_processors(
            rows, **given, prompt=prompts, output=outputs, ignored=ignored
        )

    def append(self, tokens: NDArray[np.int64]) -> None:
        """Append a token to each output; -1 appends none."""
        State.append_all(self.states, tokens)


def _token_outside(sequence: Sequence, vocabulary: int) -> int | None:
    """Return the first token of a sequence that is neither a column of the rows nor ignored."""
    for tokens in (sequence._state.prompt_array(), sequence._state.output_array()):
        is_bad = ((tokens < 0) | (tokens >= vocabulary)) & ~sequence._ignored.among(
            tokens, vocabulary
        )
        if is_bad.any():
            return int(tokens[is_bad][0])
    return None
