"""Section 2 on a copy of the row, in NumPy: few tokens are in a bias or a history.

Every operation is one of float32, in the processor's default mode.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines.contract import LogitsProcessors, TokenLists
from fastsample.engines.reference.rows import read

from .settings import RowParams

_PROMPT, _OUTPUT = -2, -3


def adjust(
    row: NDArray[np.float32], processors: LogitsProcessors, b: int, params: RowParams
) -> None:
    """Adjust row b of a batch in place."""
    mask, bias, prompt, output = processors
    if mask is not None:
        _ban(row, mask[b % len(mask)])
    with np.errstate(all="ignore"):
        if bias is not None:
            assert bias.values is not None
            values = bias.values[bias.offsets[b] : bias.offsets[b + 1]]
            tokens = _list_of(bias, b)
            row[tokens] = read(row[tokens]) + values
        if prompt is not None or output is not None:
            _penalise(row, _list_of(prompt, b), _list_of(output, b), params)


def _list_of(lists: TokenLists | None, b: int) -> NDArray[np.int64]:
    if lists is None:
        return np.empty(0, np.int64)
    return lists.tokens[lists.offsets[b] : lists.offsets[b + 1]]


def _ban(row: NDArray[np.float32], mask: NDArray[Any]) -> None:
    if mask.dtype != np.bool_:
        mask = np.unpackbits(mask.astype("<u4").view(np.uint8), bitorder="little").view(np.bool_)
    covered = min(len(row), len(mask))
    np.copyto(row[:covered], np.float32(-np.inf), where=~mask[:covered])
    row[covered:] = -np.inf


def _penalise(
    row: NDArray[np.float32],
    prompt: NDArray[np.int64],
    output: NDArray[np.int64],
    params: RowParams,
) -> None:
    """Repetition, frequency, presence; a logit that is -inf before them stays -inf."""
    history = np.concatenate([prompt, output])

    def within(scope: int) -> NDArray[np.int64]:
        if scope in (_PROMPT, _OUTPUT):
            return prompt if scope == _PROMPT else output
        return history if scope < 0 else history[max(0, len(history) - scope) :]

    banned = history[row[history] == -np.inf]
    repetition = np.float32(params.repetition_penalty)
    if repetition != 1:
        tokens = np.unique(within(params.repetition_scope))
        x = read(row[tokens])
        row[tokens] = np.where(x > 0, x / repetition, x * repetition)
    frequency = np.float32(params.frequency_penalty)
    if frequency != 0:
        tokens, counts = np.unique(within(params.frequency_scope), return_counts=True)
        row[tokens] = read(row[tokens]) - read(frequency * counts.astype(np.float32))
    presence = np.float32(params.presence_penalty)
    if presence != 0:
        tokens = np.unique(within(params.presence_scope))
        row[tokens] = read(row[tokens]) - presence
    row[banned] = -np.inf
