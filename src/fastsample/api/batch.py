"""The sequences of one call of a `Sampler` that no prepared call serves."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines.plan import make_plan
from fastsample.inputs.logits import Rows
from fastsample.inputs.logits_processors import LogitsProcessors, make_logits_processors
from fastsample.params.parameters import MAX_POSITION
from fastsample.params.table import PENALTIES

from .sequences import Sequence
from .token_history import history_class


class Batch:
    """The sequences of one call's rows, in their order, and what a call of them needs."""

    def __init__(self, ids: tuple[int, ...] | None, sequences: list[Sequence]) -> None:
        self.ids = ids  # None for all
        self.sequences = sequences
        self.plan: NDArray[np.void] = np.concatenate(
            [make_plan(0), *(one._plan for one in sequences)]
        )
        # Calls append to the outputs; a position is the length of an output plus what was skipped.
        self.histories = [one._history for one in sequences]
        self.skipped = [one._skipped for one in sequences]
        self.has_penalties = any(
            getattr(one.params, penalty.name) != penalty.off[0]
            for one in sequences
            for penalty in PENALTIES
        )

    def require_rows(self, n_rows: int) -> None:
        """Refuse another number of rows than sequences."""
        if len(self.sequences) != n_rows:
            raise ValueError(
                f"`logits` must have {len(self.sequences)} rows, one for each sequence, got "
                f"{n_rows} (choose the sequences of the rows with sequences=[...]; a Sampler made "
                "from a list takes more with add(), another starts again with reset())"
            )

    def write_positions(self) -> None:
        """Write the position of every sequence into the plan."""
        for b, (skipped, one) in enumerate(zip(self.skipped, self.histories, strict=True)):
            position = skipped + one.output_count
            if position > MAX_POSITION:
                raise ValueError(
                    f"`position` must be in [0, 2**64), got {position} (every position of this "
                    "seed has been drawn; take another)"
                )
            self.plan["position"][b] = position

    def processors(self, rows: Rows, **given: Any) -> LogitsProcessors | None:
        """Check a call's mask and bias, and add the tokens where a penalty reads them."""
        if not self.has_penalties:
            return make_logits_processors(rows, **given)
        prompts = [one.prompt_array() for one in self.histories]
        outputs = [one.output_array() for one in self.histories]
        return make_logits_processors(rows, **given, prompt=prompts, output=outputs)

    def append(self, tokens: NDArray[np.int64]) -> None:
        """Append a token to each output; -1 appends none."""
        history_class().append_all(self.histories, tokens)
